"""How far the outputs of running jobs reach, and how far the jobs say they are.

Files are looked at, never read into an answer: an event says that there is more, not what. Of a
log that has grown the end is read once, for its progress bar.
Nothing is looked at while nobody listens, and once however many do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import anyio.to_thread

from .core.model import Job, JobId
from .launch import attempt as files
from .launch.logs import log_size, log_tail
from .progress import TAIL_BYTES, of_cells, read_progress
from .wire import Progress

LOOK_EVERY_S = 0.5


@dataclass(frozen=True)
class Reach:
    """Where the outputs of an attempt end: the cursor for ``outputs``, and the size of the log.

    counted  bytes of the journal of outputs that the cursor counts.
    """

    attempt: int
    cursor: int = 0
    log_size: int = 0
    counted: int = 0
    progress: Progress | None = None


@dataclass
class Growth:
    """Keeps what was seen last, so that only what is new is counted."""

    folder: Callable[[JobId], Path]
    _seen: dict[JobId, Reach] = field(default_factory=dict)
    _looked_at: float = 0.0
    _looking: anyio.Lock = field(default_factory=anyio.Lock)

    async def look(self, running: Iterable[Job]) -> dict[JobId, Reach]:
        """The reach of each of all the running jobs, not older than half a second."""
        jobs = list(running)
        async with self._looking:
            unseen = [job for job in jobs if self._seen.get(job.id, Reach(0)).attempt != job.attempt]
            if unseen or time.monotonic() - self._looked_at > LOOK_EVERY_S:
                self._seen = await anyio.to_thread.run_sync(self._look, jobs)
                self._looked_at = time.monotonic()
            return {job.id: self._seen[job.id] for job in jobs if job.id in self._seen}

    def seen_within(self, seconds: float) -> bool:
        """Whether the last look is no older; what has started since then is not in it."""
        return time.monotonic() - self._looked_at <= seconds

    def progress(self) -> dict[JobId, Progress]:
        """What the last look found; a job that says nothing has none."""
        return {job_id: reach.progress for job_id, reach in self._seen.items() if reach.progress is not None}

    def _look(self, jobs: list[Job]) -> dict[JobId, Reach]:
        return {job.id: self._reach(job) for job in jobs}

    def _reach(self, job: Job) -> Reach:
        before = self._seen.get(job.id, Reach(job.attempt))
        if before.attempt != job.attempt:
            before = Reach(job.attempt)
        folder = self.folder(job.id)
        size = log_size(folder, job.attempt)
        counted, lines = files.journaled_since(folder, job.attempt, before.counted)
        if counted is None:  # no journal of outputs: the log is the one output, and the cursor a place in it
            return Reach(job.attempt, size, size, progress=self._progress(folder, before, size))
        earlier = before.cursor if before.counted else 0
        progress = self._progress(folder, before, size)
        return replace(before, cursor=earlier + lines, log_size=size, counted=counted, progress=progress)

    def _progress(self, folder: Path, before: Reach, size: int) -> Progress | None:
        """The code cells of a notebook that have run; of all other jobs the last bar in the log."""
        cells = files.cells_done(folder, before.attempt)
        if cells is not None:
            return of_cells(*cells)
        if size == before.log_size:
            return before.progress
        return read_progress(log_tail(folder, before.attempt, TAIL_BYTES).decode(errors="replace"))
