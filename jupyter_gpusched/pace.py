"""How fast one user may ask: a bucket of requests for each, that fills up again at a steady rate.

Knows nothing of requests; time comes from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

MOST_KNOWN = 10_000
"""So many users are remembered before those whose bucket is full again are forgotten."""


@dataclass
class Pace:
    """per_s  requests that a user may go on asking for.
    burst     requests that a user may ask for at once.
    """

    per_s: float
    burst: int
    clock: Callable[[], float]
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)  # by user: how many, and when that was

    def wait_s(self, user: str) -> float:
        """Seconds until this user's next request is admitted; 0 = this one is, and counts."""
        now = self.clock()
        left, since = self._left.get(user, (float(self.burst), now))
        left = min(float(self.burst), left + (now - since) * self.per_s)
        if left < 1:
            return (1 - left) / self.per_s
        if user not in self._left and len(self._left) >= MOST_KNOWN:
            self._forget(now)
        self._left[user] = left - 1, now
        return 0.0

    def _forget(self, now: float) -> None:
        full_after_s = self.burst / self.per_s
        self._left = {user: known for user, known in self._left.items() if now - known[1] < full_after_s}
