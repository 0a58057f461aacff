"""Tokens that nobody here has seen yet: how many the Hub is asked about at a time, and what it said of bad ones.

Whoever has no token can still send requests, and each would cost the Hub one. So a refusal stands for
a moment, and who asks with ever new tokens waits behind the own ones, not before those of others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
from tornado.httputil import HTTPServerRequest

from jupyter_gpusched.core.model import GpuSchedError, Unavailable
from jupyter_gpusched.listening import uid_beside
from jupyter_gpusched.readers import Readers

REFUSED_S = 10.0
"""So long a refusal stands without the Hub being asked again."""

AT_ONCE, FOR_EACH = 8, 2
"""About so many unknown tokens the Hub is asked at a time, and about so many of them from one place."""

MOST_WAITING = 32
"""So many may wait from one place; who comes then is told to come again."""

_MOST_REFUSED = 2000


class Strangers:
    """Used from one event loop; tokens are known by their digests."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._turns = Readers(anyio.CapacityLimiter(AT_ONCE), FOR_EACH)
        self._refused: dict[bytes, tuple[float, GpuSchedError]] = {}  # until when, the oldest first

    def check(self, digest: bytes) -> None:
        """Raises what was said of this token, if that was a moment ago."""
        until, error = self._refused.get(digest, (0.0, None))
        if error is not None and self._clock() < until:
            raise type(error)(error.message, field=error.field, hint=error.hint)

    def remember(self, digest: bytes, error: GpuSchedError) -> None:
        """It was refused. Of very many the oldest are forgotten."""
        self._refused.pop(digest, None)
        while len(self._refused) >= _MOST_REFUSED:
            del self._refused[next(iter(self._refused))]
        self._refused[digest] = self._clock() + REFUSED_S, error

    @asynccontextmanager
    async def turn(self, request: HTTPServerRequest) -> AsyncIterator[None]:
        """When an unknown token may be asked about. Raises ``Unavailable`` where too many wait from the same place."""
        place = await anyio.to_thread.run_sync(place_of, request)
        if self._turns.asking(place) >= MOST_WAITING:
            raise Unavailable(
                "Too many tokens that are not known here come from the same place.", hint="Try again in a moment."
            )
        async with self._turns.turn(place):
            yield


def place_of(request: HTTPServerRequest) -> str:
    """Where a request comes from: the user beside us, or the address; by way of a proxy the one that it last noted.

    Only root and ourselves can be a proxy, since whatever anybody else says of an address may be made up.
    """
    connection = request.connection.stream.socket  # type: ignore[union-attr]
    uid = uid_beside(connection)
    if uid is not None:
        return f"uid {uid}"
    try:
        peer, here = connection.getpeername()[0], connection.getsockname()[0]
    except OSError:
        return "closed"
    noted = request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()[:64]
    of_this_machine = peer == here or peer.startswith("127.")
    return noted if of_this_machine and noted else str(peer)
