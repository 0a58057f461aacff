"""What the cards showed lately, what each job used over its life, and who held what when memory ran out.

Fed by the engine with what it has just made true; keeps a bounded ring per card and a thinned
curve per job, and leaves with the job's files what must outlive the host. Decides nothing.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import anyio
import anyio.to_thread

from .core.ledger import Card, read_books
from .core.model import Attempt, Gpu, GpuUuid, Job, JobId
from .core.release import is_earlier, use_of
from .core.state import State
from .launch import attempt as files
from .ports import Recorded

log = logging.getLogger(__name__)

MOST_SAMPLES = 900
"""Per card: a quarter of an hour at one sample a second."""

LEAST_APART_S = 0.5
"""Samples that follow each other faster, as when many jobs end, add nothing to a picture."""

MOST_POINTS = 500
"""Of a job's curve; when there are more, neighbours are joined and the larger use stays."""

KEEP_EVERY_S = 60.0
"""So much of a running job's curve may be lost with the host."""

TIMELINE_S = 300.0
"""How far back it is written down who held what before a job ran out of memory."""

MOST_ROWS = 300

Point = tuple[float, int]
"""Seconds since the epoch and MiB."""


_Result = TypeVar("_Result")


class Read(Protocol):
    """Runs a function that reads, beside the loop."""

    async def __call__(self, function: Callable[[], _Result], /) -> _Result: ...


class Held(NamedTuple):
    """One holder of memory on a card. ``job_id`` is for its owner's eyes."""

    kind: str
    user: str | None
    job_id: JobId | None
    vram_mib: int | None
    promised_mib: int | None


class Seen(NamedTuple):
    """A card in one sample."""

    at: float
    used_mib: int | None
    utilization_pct: float | None
    free_mib: int | None
    holders: tuple[Held, ...]


@dataclass
class Curve:
    """What a job used over its life. ``read`` once what an earlier host kept has been put before it."""

    points: list[Point] = field(default_factory=list)
    step_s: float = 0.0
    read: bool = False
    kept_at: float = 0.0

    def add(self, at: float, used: int) -> None:
        at = round(at, 3)
        if self.points and at - self.points[-1][0] < self.step_s:
            self.points[-1] = self.points[-1][0], max(self.points[-1][1], used)
            return
        self.points.append((at, used))
        if len(self.points) > MOST_POINTS:
            self.points = thinned(self.points, MOST_POINTS // 2)
            self.step_s = (self.points[-1][0] - self.points[0][0]) / (MOST_POINTS // 2)

    def put_before(self, earlier: Sequence[Point]) -> None:
        first = self.points[0][0] if self.points else float("inf")
        self.points = thinned([point for point in earlier if point[0] < first] + self.points, MOST_POINTS)
        self.read = True


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """At most so many points, each the largest use of some neighbours at the time of the first of them."""
    size = -(-len(points) // most)
    groups = (points[at : at + size] for at in range(0, len(points), max(1, size)))
    return [(group[0][0], max(used for _, used in group)) for group in groups]


class History:
    """``observe`` is called inside the engine's loop and never blocks; ``keep`` writes beside it.

    folder  of a job, where its curve and its timelines are kept.
    """

    def __init__(self, folder: Callable[[JobId], Path], clock: Callable[[], float]) -> None:
        self._folder = folder
        self._clock = clock
        self._cards: dict[GpuUuid, deque[Seen]] = {}
        self._curves: dict[JobId, Curve] = {}
        self._timelines: list[tuple[Path, int, list[dict[str, Any]]]] = []
        self._due: set[JobId] = set()  # jobs whose curve is to be kept
        self._ended: set[JobId] = set()  # of these, whose curve will not grow any more
        self._writing = anyio.Lock()
        self._wanted = anyio.Event()

    # --- what happens -----------------------------------------------------------------

    def observe(self, recorded: Sequence[Recorded], state: State, *, sampled: bool) -> None:
        """Take in what the engine has just written down, and the cards if they were just measured."""
        if sampled:
            self._take_cards(state)
            self._take_jobs(state)
        for record in recorded:
            if record.job is None:  # an event of the machine
                continue
            if record.kind == "exited":
                self._take_end(record.job)
            if record.job.id in self._curves and not record.job.phase.active:
                self._keep(record.job.id, ended=record.job.phase.final)

    def _take_cards(self, state: State) -> None:
        cards = read_books(state, self._clock()).cards
        for uuid, gpu in state.gpus.items():
            ring = self._cards.setdefault(uuid, deque(maxlen=MOST_SAMPLES))
            if ring and gpu.sampled_at < ring[-1].at + LEAST_APART_S:
                continue
            holders = _holders(gpu, cards.get(uuid), state)
            if ring and ring[-1].holders == holders:
                holders = ring[-1].holders  # most samples differ in nothing else
            ring.append(Seen(gpu.sampled_at, gpu.used, gpu.utilization_pct, gpu.free, holders))

    def _take_jobs(self, state: State) -> None:
        now = self._clock()
        for job_id in state.busy:
            job = state.jobs[job_id]
            if not job.phase.active or job.used_vram_mib is None:
                continue
            curve = self._curves.setdefault(job_id, Curve(kept_at=now))
            curve.add(now, job.used_vram_mib)
            if now - curve.kept_at >= KEEP_EVERY_S:
                self._keep(job_id, ended=False)

    def _take_end(self, job: Job) -> None:
        last = job.attempts[-1]
        if last.reason == "cuda_oom" and (rows := self._rows_before(job, last)):
            self._timelines.append((self._folder(job.id), last.number, rows))
            self._wanted.set()

    def _rows_before(self, job: Job, last: Attempt) -> list[dict[str, Any]]:
        """Who held what on its cards in the last minutes; others only by user and amount."""
        since = (last.ended_at or self._clock()) - TIMELINE_S
        rows: list[dict[str, Any]] = []
        for grant in last.gpus:
            changes = _changes(seen for seen in self._cards.get(grant.gpu, ()) if seen.at >= since)
            rows += [_row(grant.gpu, seen, job) for seen in changes[-MOST_ROWS // len(last.gpus) :]]
        return sorted(rows, key=lambda row: row["at"])

    # --- what is asked ----------------------------------------------------------------

    def of_cards(self, since: float) -> Iterator[tuple[GpuUuid, Seen]]:
        """Samples after a time, card by card, oldest first."""
        for uuid, ring in self._cards.items():
            for seen in ring:
                if seen.at > since:
                    yield uuid, seen

    async def of_job(self, job_id: JobId, read: Read = anyio.to_thread.run_sync) -> list[Point]:
        """What a job used over its life.

        read  how files are read for whoever asks.
        """
        curve = self._curves.get(job_id)
        if curve is None:
            return await read(partial(files.memory_curve, self._folder(job_id)))
        await self._complete(job_id, curve)
        return list(curve.points)

    async def timeline(
        self, job_id: JobId, attempt: int, read: Read = anyio.to_thread.run_sync
    ) -> list[dict[str, Any]]:
        """Who held what before an attempt ran out of memory; also right after its end."""
        await self._write_all()
        return await read(partial(files.timeline, self._folder(job_id), attempt))

    # --- what is kept -----------------------------------------------------------------

    async def keep(self) -> None:
        """Write what is to be kept, until cancelled; then what was still on its way, and the curves as they are."""
        try:
            while True:
                await self._wanted.wait()
                self._wanted = anyio.Event()
                await self._write_all()
        finally:
            self._due |= self._curves.keys()
            with anyio.CancelScope(shield=True):
                await self._write_all()

    def _keep(self, job_id: JobId, *, ended: bool) -> None:
        self._curves[job_id].kept_at = self._clock()
        self._due.add(job_id)
        if ended:
            self._ended.add(job_id)
        self._wanted.set()

    async def _write_all(self) -> None:
        async with self._writing:
            timelines, self._timelines = self._timelines, []
            for folder, attempt, rows in timelines:
                await _beside(partial(files.keep_timeline, folder, attempt, rows))
            while self._due:
                job_id = self._due.pop()
                curve = self._curves.get(job_id)
                if curve is None:
                    continue
                await self._complete(job_id, curve)
                await _beside(partial(files.keep_memory_curve, self._folder(job_id), list(curve.points)))
                if job_id in self._ended:
                    self._ended.discard(job_id)
                    self._curves.pop(job_id, None)

    async def _complete(self, job_id: JobId, curve: Curve) -> None:
        """Put what an earlier host kept before what this one saw."""
        if curve.read:
            return
        kept = await anyio.to_thread.run_sync(files.memory_curve, self._folder(job_id))
        if not curve.read:
            curve.put_before(kept)


async def _beside(write: Callable[[], None]) -> None:
    """A full disk or a deleted job must not end the history of the others."""
    try:
        await anyio.to_thread.run_sync(write)
    except OSError as error:
        log.warning("what a job used cannot be kept: %s", error)


def _holders(gpu: Gpu, card: Card | None, state: State) -> tuple[Held, ...]:
    grants = card.grants if card is not None else ()
    ours = [
        Held(
            "job",
            job.owner,
            job.id,
            use_of(gpu, job.id, earlier=is_earlier(grants, grant)),
            grant.promised,
        )
        for grant in grants
        if (job := state.jobs.get(grant.job_id)) is not None
    ]
    return (*ours, *(Held("foreign", one.user, None, one.vram, None) for one in gpu.foreign))


def _changes(samples: Iterator[Seen]) -> list[Seen]:
    """The samples without those that show the same as the one before, but with the last."""
    kept: list[Seen] = []
    for seen in samples:
        if len(kept) > 1 and kept[-1][3:] == seen[3:] == kept[-2][3:]:
            kept[-1] = seen
        else:
            kept.append(seen)
    return kept


def _row(gpu: GpuUuid, seen: Seen, job: Job) -> dict[str, Any]:
    holders = [held._replace(job_id=held.job_id if held.user == job.owner else None)._asdict() for held in seen.holders]
    return {"at": seen.at, "gpu_uuid": gpu, "free_mib": seen.free_mib, "holders": holders}
