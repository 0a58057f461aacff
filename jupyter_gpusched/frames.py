"""The cards as they are sent to many at once: put together once for each caller, however many of their tabs look.

Kept only as long as the state is the same. Knows nothing of who may see what: that is ``views``'.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from . import wire
from .callers import Caller
from .core.ledger import Card, read_books
from .core.model import GpuUuid
from .core.state import State
from .views import Views

KEPT_S = 1.0
"""So long nothing that depends on the time alone is told anew, such as that a reservation begins."""


class CardFrames:
    """``of`` gives the views of the cards, ``line`` their frame of a stream as bytes."""

    def __init__(self) -> None:
        self._state: State | None = None
        self._at = 0.0
        self._books: Mapping[GpuUuid, Card] = {}
        self._views: dict[Caller, list[wire.GpuView]] = {}
        self._lines: dict[tuple[Caller, int], bytes] = {}

    def of(self, views: Views) -> list[wire.GpuView]:
        """The same list while it would say the same; nobody may change it."""
        if views.state is not self._state or not 0 <= views.now - self._at <= KEPT_S:
            self._state, self._at = views.state, views.now
            self._books = read_books(views.state, views.now).cards
            self._views, self._lines = {}, {}
        found = self._views.get(views.caller)
        if found is None:
            found = self._views[views.caller] = views.gpus(self._books)
        return found

    def line(self, views: Views, seq: int) -> bytes:
        gpus = self.of(views)
        key = views.caller, seq
        if key not in self._lines:
            self._lines[key] = msgspec.json.encode(wire.GpusFrame(seq=seq, gpus=gpus))
        return self._lines[key]
