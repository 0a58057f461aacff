"""The order of the queue for all who look at it: worked out again no more often than it is worth.

A queue of a few jobs is always put in order anew. Of a deep one the order of a moment ago is shown,
so that who looks takes no more than a small part of one processor; who has joined since is found
their place in it. Decides nothing.
"""

from __future__ import annotations

import time

from .core.standing import Standing
from .core.state import State

SHARE = 0.05
"""Most of one processor's time that putting the queue in order may take."""

QUICK_S = 0.005
"""What takes no longer than this is never shown old."""

LONGEST_S = 1.0
"""Ages grow, and places change with them: so old may be the order of a queue in which nothing happens."""


class Standings:
    """Used from one event loop."""

    def __init__(self) -> None:
        self._latest: Standing | None = None
        self._good_until = 0.0  # monotonic

    def at(self, state: State, now: float) -> Standing:
        """How jobs stand in this state, or stood a moment ago."""
        latest = self._latest
        if latest is not None and latest.state.by_hand is state.by_hand and abs(now - latest.now) < LONGEST_S:
            if latest.state.queue is state.queue and latest.state.asides is state.asides:
                return latest
            if time.monotonic() < self._good_until:
                return latest
        begun = time.monotonic()
        self._latest = latest = Standing(state, now)
        took = time.monotonic() - begun
        self._good_until = begun + (took / SHARE if took > QUICK_S else 0.0)
        return latest
