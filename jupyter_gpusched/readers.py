"""The threads that read in users' folders, whose files are as large and as slow as their owners like.

They are few, so that nothing else waits for them, and no user has all of them. Reads nothing itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
import anyio.to_thread

AT_ONCE, FOR_EACH = 4, 2
"""So many read at a time, and so many of them for one user; who comes later waits for an end."""

_Result = TypeVar("_Result")


@dataclass
class Readers:
    """``read`` blocks a thread, not the caller's loop."""

    at_once: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(AT_ONCE))
    for_each: int = FOR_EACH
    _shares: dict[str, anyio.CapacityLimiter] = field(default_factory=dict)
    _asking: Counter[str] = field(default_factory=Counter)

    async def read(self, user: str, function: Callable[[], _Result]) -> _Result:
        """What the function returns, which runs beside the loop when it is this user's turn."""
        share = self._shares.setdefault(user, anyio.CapacityLimiter(self.for_each))
        self._asking[user] += 1
        try:
            async with share:
                return await anyio.to_thread.run_sync(function, limiter=self.at_once)
        finally:
            self._asking[user] -= 1
            if not self._asking[user]:
                del self._asking[user], self._shares[user]
