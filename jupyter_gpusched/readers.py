"""The threads that read in users' folders, whose files are as large and as slow as their owners like.

They are few, so that nothing else waits for them, and no user has all of them. Reads nothing itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
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
        async with self._share(user):
            return await anyio.to_thread.run_sync(function, limiter=self.at_once)

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        """The same for what needs no thread."""
        async with self._share(user), self.at_once:
            yield

    def asking(self, user: str) -> int:
        """How many of this user's are at it, or wait."""
        return self._asking[user]

    @asynccontextmanager
    async def _share(self, user: str) -> AsyncIterator[None]:
        share = self._shares.setdefault(user, anyio.CapacityLimiter(self.for_each))
        self._asking[user] += 1
        try:
            async with share:
                yield
        finally:
            self._asking[user] -= 1
            if not self._asking[user]:
                del self._asking[user], self._shares[user]
