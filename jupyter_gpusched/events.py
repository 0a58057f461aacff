"""GET events: what happens, as NDJSON, without end.

Job events come from the journal, so that a slow reader costs nothing and a reconnect with
``after`` misses nothing and sees nothing twice. Of cards and outputs only the newest is ever
sent, and only to a reader that has taken what it was sent before.
"""

from __future__ import annotations

import fcntl
import struct
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
from tornado.iostream import StreamClosedError

from . import wire
from .core.model import JobId, NotAllowed, Unauthorized, Unavailable
from .core.operations import Alert
from .desk import Desk, Handler
from .growth import Reach
from .ports import Recorded
from .views import Views

_Item = TypeVar("_Item")

LONGEST_SILENCE_S = 15.0
"""After so long without a frame an empty line is sent, so that both ends know of each other."""

AT_ONCE = 100
"""So many jobs are shown before others get their turn."""

ADMITTED_S = 60.0
"""So long a reader is believed to be who opened the stream: a token may be revoked meanwhile."""


class EventsHandler(Handler):
    """GET events, from ``after`` on.

    Without it, with one that this journal never gave, or with one whose next events have been pruned, a snapshot
    comes first.
    """

    def initialize(self, desk: Desk) -> None:
        super().initialize(desk)
        self._gone = False
        self._changed: anyio.Event | None = None  # for which the stream waits; set when its reader is gone, too
        self._sent_at = self._admitted_at = time.monotonic()
        self._gpus: list[wire.GpuView] | None = None
        self._told: dict[JobId, Reach] = {}

    async def get(self) -> None:
        self._of_everybody = self.of_everybody()
        self.set_header("Content-Type", "application/x-ndjson")
        after = self.number("after")
        async with self.desk.stream():
            try:
                await self._follow(await self._begin(None if after is None else int(after)))
            except StreamClosedError:
                return

    def _is_told_of(self, owner: str) -> bool:
        return self._of_everybody or owner == self.caller.user

    def on_connection_close(self) -> None:
        self._gone = True
        if self._changed is not None:
            self._changed.set()
        super().on_connection_close()

    async def _begin(self, after: int | None) -> int:
        engine = self.desk.engine
        known = await anyio.to_thread.run_sync(lambda: (engine.store.pruned_to(), engine.store.last_seq()))
        if after is not None and known[0] <= after <= max(engine.last_seq, known[1]):
            await self.flush()
            return after
        return await self._start_over()

    async def _start_over(self) -> int:
        engine = self.desk.engine
        await self.desk.growth.look(job for job in engine.state.busy.values() if job.phase.active)
        seq, views = engine.last_seq, self.views()  # of one moment, however long it takes to show them
        gpus, alerts, shown = self.desk.card_frames.of(views), views.alerts(), []
        jobs = [job for job in views.state.jobs.values() if self._is_told_of(job.owner)]
        for part in batched(jobs, AT_ONCE):
            shown += views.jobs(part)
            await anyio.lowlevel.checkpoint()
        await self._send(wire.SnapshotFrame(seq=seq, jobs=shown, gpus=gpus, alerts=alerts))
        self._gpus = gpus
        return seq

    async def _follow(self, after: int) -> None:
        engine, closing = self.desk.engine, self.desk.closing
        while not closing.is_set() and not self._gone and await self._still_admitted():
            changed = self._changed = engine.watch(None)
            try:
                after = await self._send_journal(after)
                if not self._unread():
                    await self._send_outputs(after)
                    await self._send_gpus(after)
                if time.monotonic() - self._sent_at > LONGEST_SILENCE_S:
                    await self._send_line(b"")
                if not (self._gone or closing.is_set()):
                    await changed.wait()
            finally:
                engine.unwatch(None, changed)

    async def _still_admitted(self) -> bool:
        if time.monotonic() - self._admitted_at < ADMITTED_S:
            return True
        if self.request.connection.stream.closed():  # type: ignore[union-attr]
            return False
        try:
            self.caller = await self.desk.doorkeeper.caller(self.request)
        except (Unauthorized, NotAllowed):
            return False
        except Unavailable:  # nobody can say anything else now: ask again soon
            self._admitted_at += ADMITTED_S / 6
            return True
        self._admitted_at = time.monotonic()
        return True

    async def _send_journal(self, after: int) -> int:
        while True:
            records = await self.desk.tail.after(after)
            if records is None:  # so slow a reader that what it has not read is gone
                return await self._start_over()
            if not records:
                return after
            for part in batched(records, AT_ONCE):
                views = self.views()
                for record in part:
                    if (frame := _frame(record, views, self._is_told_of)) is not None:
                        await self._send(frame)
                await anyio.lowlevel.checkpoint()
            after = records[-1].seq

    async def _send_gpus(self, after: int) -> None:
        views, frames = self.views(), self.desk.card_frames
        gpus = frames.of(views)
        if gpus is not self._gpus and gpus != self._gpus:
            self._gpus = gpus
            await self._send_line(frames.line(views, after))

    async def _send_outputs(self, after: int) -> None:
        jobs = self.desk.engine.state.jobs
        busy = self.desk.engine.state.busy
        reaches = await self.desk.growth.look(job for job in busy.values() if job.phase.active)
        for job_id, reach in reaches.items():
            own = self._is_told_of(jobs[job_id].owner)
            if own and reach != self._told.get(job_id, Reach(reach.attempt)):
                await self._send(
                    wire.OutputsFrame(
                        seq=after,
                        job_id=job_id,
                        attempt=reach.attempt,
                        next=reach.cursor,
                        log_size=reach.log_size,
                        progress=reach.progress,
                    )
                )
        self._told = reaches

    def _unread(self) -> bool:
        """Whether the reader has yet to take something from its socket: whoever is slow gets no backlog."""
        try:
            reader = self.request.connection.stream.socket.fileno()  # type: ignore[union-attr]
            answer = fcntl.ioctl(reader, termios.TIOCOUTQ, bytes(4))
        except (OSError, AttributeError):  # closed meanwhile (then there is no socket), or a kernel that cannot say
            return False
        return bool(struct.unpack("i", answer)[0])

    async def _send(self, frame: msgspec.Struct) -> None:
        await self._send_line(msgspec.json.encode(frame))

    async def _send_line(self, line: bytes) -> None:
        self.write(line + b"\n")
        await self.flush()
        self._sent_at = time.monotonic()


def batched(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    """In pieces of this size, the last one smaller."""
    return (items[start : start + size] for start in range(0, len(items), size))


def _frame(record: Recorded, views: Views, told_of: Callable[[str], bool]) -> wire.JobFrame | wire.AlertFrame | None:
    """An event as this caller is told of it; None for what is nobody's or another's."""
    if record.job is not None:
        if not told_of(record.job.owner):
            return None
        return wire.JobFrame(seq=record.seq, event=record.kind, at=record.at, job=views.past(record.job))
    what = _OF_ALERTS.get(record.kind)
    if what is None:
        return None
    alert = msgspec.convert(record.detail["alert"], Alert)
    return wire.AlertFrame(seq=record.seq, event=what, alert=views.alert(alert)) if views.sees(alert) else None


_OF_ALERTS = {"alert_raised": "raised", "alert_resolved": "resolved"}
