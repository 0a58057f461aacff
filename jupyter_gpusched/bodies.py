"""How much of what is being sent is in memory: of one user, and of all together.

Small requests are always taken in, so that nobody is kept out by somebody else's large ones. Keeps no bytes itself.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

SMALL = 2**20
"""A request of no more bytes is taken in whatever else is there."""

USERS_AT_ONCE = 2
"""Users who may each send the largest request at a time."""


@dataclass
class Bodies:
    """each  bytes of one user's requests that may be in memory at a time."""

    each: int
    _of: Counter[str] = field(default_factory=Counter)
    _all: int = 0

    def take(self, user: str, size: int, *, of: int) -> bool:
        """Whether ``size`` more bytes of a request are kept, of which ``of`` are there by then; they count then."""
        if of > SMALL and (self._of[user] + size > self.each or self._all + size > self.each * USERS_AT_ONCE):
            return False
        self._of[user] += size
        self._all += size
        return True

    def give_back(self, user: str, size: int) -> None:
        self._all -= size
        self._of[user] -= size
        if self._of[user] <= 0:
            del self._of[user]
