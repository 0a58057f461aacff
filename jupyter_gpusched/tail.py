"""The newest events of the journal, read and decoded once however many streams are open.

A reader that is further behind reads the journal itself. Knows nothing of who may be told what.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import partial

import anyio
import anyio.to_thread

from .engine import Engine
from .ports import Recorded

BATCH = 500
KEPT = 1000


class Tail:
    """Complete for the sequence numbers above ``_low`` up to ``_high``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._records: list[Recorded] = []
        self._low = self._high = -1
        self._reading = anyio.Lock()

    async def after(self, seq: int) -> list[Recorded] | None:
        """Some of the events after ``seq``, oldest first; empty when there is none, None when they were pruned."""
        if seq >= self._engine.last_seq:
            return []
        async with self._reading:
            await self._catch_up()
        if seq >= self._low:
            first = bisect_right(self._records, seq, key=lambda record: record.seq)
            return self._records[first : first + BATCH]
        store = self._engine.store
        found, pruned_to = await anyio.to_thread.run_sync(
            lambda: (store.events(after=seq, limit=BATCH), store.pruned_to())
        )
        return None if pruned_to > seq else found

    async def _catch_up(self) -> None:
        store, newest = self._engine.store, self._engine.last_seq
        if self._high < 0 or newest - self._high > KEPT:  # at the start, or when nobody has read for long
            pruned_to = await anyio.to_thread.run_sync(store.pruned_to)
            self._records, self._low = [], max(0, newest - KEPT // 2, pruned_to)
            self._high = self._low
        while self._high < newest:
            found = await anyio.to_thread.run_sync(partial(store.events, after=self._high, limit=BATCH))
            self._take(found)
            self._high = found[-1].seq if found else newest

    def _take(self, found: list[Recorded]) -> None:
        gone = {record.job.id for record in found if record.kind == "deleted" and record.job is not None}
        if gone:  # of a deleted job only that is told
            self._records = [one for one in self._records if one.job is None or one.job.id not in gone]
        self._records += found
        if len(self._records) > KEPT:
            self._low = self._records[-KEPT - 1].seq
            del self._records[:-KEPT]
