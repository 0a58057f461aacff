"""Who has used how much of the machine of late, so that shares can be fair over time.

A user's share is the part of the machine held, averaged with weights that halve every
``HALF_LIFE_S``: 1 for someone who has had all of it for ever. The large resource counts: GPU
memory, CPUs or host memory, whichever is the larger part. Frozen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

HALF_LIFE_S = 4 * 3600.0
_FORGOTTEN = 1e-4


Held = tuple[str, float, float]
"""A part of the machine that a user has and since when: owner, part, moment."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Shares of what has ended, by user, each as it was at a moment."""

    ended: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def with_end(self, owner: str, part: float, since: float, until: float) -> Usage:
        share, at = self.ended.get(owner, (0.0, until))
        until = max(until, at)
        gained = part * (1.0 - _decay(max(0.0, until - since)))
        kept = {
            who: (much, when)
            for who, (much, when) in self.ended.items()
            if who != owner and much * _decay(until - when) > _FORGOTTEN
        }
        kept[owner] = (share * _decay(until - at) + gained, until)
        return Usage(kept)

    def shares(self, running: Iterable[Held], now: float) -> Mapping[str, float]:
        """Every user's share now, what is running included."""
        shares: defaultdict[str, float] = defaultdict(float)
        for owner, (share, at) in self.ended.items():
            shares[owner] = share * _decay(max(0.0, now - at))
        for owner, part, since in running:
            if now > since:
                shares[owner] += part * (1.0 - _decay(now - since))
        return shares


def _decay(seconds: float) -> float:
    return float(0.5 ** (seconds / HALF_LIFE_S))
