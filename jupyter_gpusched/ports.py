"""What the engine needs from the outside world, as four small protocols.

Each has one real implementation per kind of world (``store``, ``gpus``, ``launch``); the
engine knows only these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from .core.limits import Rlimits
from .core.messages import Entry, Event
from .core.model import BadRequest, Gpu, Grant, Job, JobId, Unavailable, Work
from .core.operations import Operations
from .core.report import Tally
from .core.usage import Usage


class Fenced(Exception):
    """Another host has taken over this state folder: this engine may write nothing any more."""


class StoreUnavailable(Unavailable):
    """The database cannot be opened, read or written; nothing was half done. Names the file and the remedy."""


class DuplicateKey(BadRequest):
    """The id or idempotency key of a new job is already in the journal; nothing was written."""

    code = "conflict"


class Unwritable(BadRequest):
    """A value that no database can hold; nothing was written."""

    code = "unwritable"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A change as the journal keeps it; ``seq`` rises strictly and is the event stream's cursor.

    job  as it was after the event; None for an event of the machine itself.
    """

    seq: int
    job: Job | None
    kind: str
    at: float
    detail: dict[str, object]


class Store(Protocol):
    """The journal and the jobs of one machine, on local disk. One writer, fenced by the host epoch.

    All calls block; the engine makes them from its writer thread. ``jobs``, ``job``, ``work``
    and ``events`` may be called from any thread.
    """

    def take_over(self, *, at: float, host: str) -> int:
        """Raise the host epoch and return it; from now on writes of older epochs raise ``Fenced``.

        Leaves an event ``took_over`` that names the host.
        """

    def record(
        self,
        changes: Sequence[Entry],
        works: dict[JobId, Work],
        *,
        epoch: int,
    ) -> list[Recorded]:
        """Write events and the jobs they led to in one durable transaction, or nothing.

        works  what newly submitted jobs run, by job id.
        Raises ``Fenced`` when another host has taken over, ``StoreUnavailable`` when the
        database cannot be written in time, ``DuplicateKey`` for a used idempotency key,
        ``Unwritable`` for a value that cannot be written down.
        """

    def forget(self, tombstone: Job, *, by: str, use: Tally, share: Usage, at: float, epoch: int) -> Recorded:
        """Delete a job, what it ran and its history; one event ``deleted`` with ``tombstone`` takes their place.

        by     who wants that.
        use    what it had used, which is kept for its owner; ``share`` what of it counts for its owner's rank.
        Raises ``Fenced`` or ``StoreUnavailable``; then nothing was deleted.
        """

    def gone_since(self, since: float) -> list[tuple[str, Tally]]:
        """Owners and what their deleted jobs had used, of those that were submitted since then, to the hour."""

    def usage_of_gone(self) -> Usage:
        """What deleted jobs had used of late: to delete them gives nobody a better place."""

    def prune(self, *, before: float, most: int, limit: int, epoch: int) -> int:
        """Delete up to ``limit`` of the oldest events that are older than ``before`` or more than ``most``.

        Those of live jobs stay. Returns how many were deleted; 0 = nothing is left to delete. Raises as ``forget``.
        """

    def pruned_to(self) -> int:
        """The latest event that was ever pruned; a cursor before it has missed something."""

    def operations(self) -> Operations:
        """What was decided about the machine itself, as it stands."""

    def live(self) -> list[Job]:
        """Jobs that are not final or still hold grants."""

    def ended(self, limit: int) -> list[Job]:
        """The most recently submitted of the jobs that are neither: what the policy learns from at a start."""

    def oldest_ended(self, after: tuple[float, str], limit: int) -> list[Job]:
        """The same, oldest submission first, after one of (submitted_at, id)."""

    def count_ended(self) -> int:
        """How many of them there are."""

    def job(self, job_id: JobId) -> Job | None: ...

    def work(self, job_id: JobId) -> Work | None: ...

    def find_key(self, owner: str, key: str) -> JobId | None:
        """The job that this owner submitted with this idempotency key."""

    def jobs(
        self,
        *,
        owner: str | None = None,
        phase: str | None = None,
        live: bool | None = None,
        name: str | None = None,
        batch_id: str | None = None,
        limit: int | None = None,
        before: tuple[float, str] | None = None,
    ) -> list[Job]:
        """Newest first by (submitted_at, id); ``before`` is the last job of the previous page."""

    def phases_of(self, batch_id: str) -> dict[str, int]:
        """How many jobs of a batch are in which phase."""

    def runs(self, *, owner: str, code: str | None = None, name: str | None = None, limit: int) -> list[Job]:
        """Runs that succeeded or failed, of the same ``code`` or else of this name; newest first."""

    def events(self, *, after: int, limit: int) -> list[Recorded]: ...

    def events_of(self, job_id: JobId, *, after: int, limit: int) -> list[Recorded]:
        """What happened to one job after a sequence number, oldest first."""

    def last_seq(self) -> int: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ActiveGrant:
    """A grant as the GPU provider needs it to attribute memory: which processes may use it.

    alive  whether the attempt's supervisor or any of its processes may still exist.
    """

    grant: Grant
    alive: bool
    pids: frozenset[int]


class GpuProvider(Protocol):
    """The machine's cards."""

    simulated: bool
    description: str
    """What is simulated or monitored, for ``doctor`` and ``health``: ``1x8G`` or ``nvml``."""

    @property
    def cause(self) -> str | None:
        """One sentence why there is no card, else None."""

    @property
    def fault(self) -> str | None:
        """One sentence on what is broken and should not be; None also where there simply is no card."""

    async def sample(self, grants: Sequence[ActiveGrant], *, now: float) -> tuple[Gpu, ...]:
        """Measure every card; a card that fails alone is returned with ``health`` and its cause."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """Everything needed to start one attempt.

    folder   ``jobs/<id>`` (0700, the owner's).
    rlimits  the kernel's limits for its processes; what is not named stays as the host has it.
    """

    job: Job
    attempt: int
    work: Work
    folder: Path
    rlimits: Rlimits = field(default_factory=dict)


class Launcher(Protocol):
    """Starts, ends and re-adopts attempts. No call blocks; what happened comes as events to ``report``."""

    def prepare(self, order: LaunchOrder) -> None:
        """Get ready for an attempt that is being written down: nothing of it runs, nor could it, before ``launch``.

        Never needed, never fails, never waits.
        """

    def go(self, job_id: JobId, attempt: int) -> None:
        """It is written down: what was prepared may run; ``launch`` follows. From any thread; never fails or waits."""

    def give_up(self, job_id: JobId, attempt: int) -> None:
        """It could not be written down. What was not prepared is no matter."""

    def launch(self, order: LaunchOrder) -> None:
        """Start the attempt. Reports Started, later MainEnded/Exited, or LaunchFailed or Vanished."""

    def stop(self, job: Job, attempt: int, reason: str, grace_s: float, folder: Path) -> None:
        """End the attempt: void its claim (reports Voided) or end its processes (reports Exited)."""

    def adopt(self, job: Job, attempt: int, folder: Path) -> None:
        """After a restart: find out what became of an attempt and go on watching it."""

    def alive(self, job_id: JobId, attempt: int) -> bool: ...

    def pids(self, job_id: JobId, attempt: int) -> frozenset[int]:
        """The processes of the attempt that can be found now."""

    async def close(self) -> None:
        """Stop watching; running attempts go on."""


Report = Callable[[Event], None]
Clock = Callable[[], float]
"""Seconds since the Unix epoch, UTC."""
