"""What the scheduler remembers of ended attempts, and what it makes of a job at its submission.

Joins ``history`` (run times) and ``usage`` (who used how much) to the jobs of the state: an
attempt that has just ended teaches, a job that is submitted is appraised. Frozen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .frozen import quick, replace
from .held import Held
from .history import History
from .model import Attempt, Gpu, GpuUuid, Job, Outcome, Request, Settings
from .queue import Queue, kin_of
from .usage import Holding, Usage, least_after

TEACHES = frozenset({Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMEOUT})
"""Ends that say how long such jobs run; one who was cancelled, evicted or lost says nothing."""

_LATELY_S = 600.0
"""For so long an owner's share is known well enough from what it was."""

_USUAL_LOAD = 0.85
"""A first-in-first-out queue keeps about so much of the memory busy."""


@quick
@dataclass(frozen=True, slots=True)
class Past:
    history: History = History()  # noqa: RUF009  frozen
    usage: Usage = Usage()  # noqa: RUF009

    @classmethod
    def of(cls, jobs: Iterable[Job], gpus: Iterable[Gpu], settings: Settings, gone: Usage = Usage()) -> Past:  # noqa: B008  frozen
        """What these ended jobs teach; the most recent ones are enough.

        gone  who has used how much by jobs of which nothing else is known any more.
        """
        past, known = cls(), {gpu.uuid: gpu for gpu in gpus}
        ended = [(attempt.ended_at, job.id, job, attempt) for job in jobs for attempt in job.attempts]
        for at, _, job, attempt in sorted((e for e in ended if e[0] is not None), key=lambda e: (e[0] or 0.0, e[1])):
            if at is not None and attempt.outcome is not None:
                past = past.with_attempt(job, attempt, machine(known.values()), settings)
        return replace(past, usage=past.usage.joined(gone)) if gone.ended else past

    def after(
        self,
        before: Sequence[Job | None],
        changed: Sequence[Job],
        gpus: Mapping[GpuUuid, Gpu],
        settings: Settings,
    ) -> tuple[Past, list[tuple[str, str]], list[tuple[str, str]]]:
        """The past once these jobs have changed; (owner, name) of runs that now say something, and of forgotten."""
        past, named, forgotten = self, [], []
        for was, job in zip(before, changed, strict=True):
            if was is None or not was.phase.active or job.phase.active or not job.attempts:
                continue
            earlier = past.history
            past = past.with_attempt(job, job.attempts[-1], machine(gpus.values()), settings)
            if not earlier.knows(job.owner, job.name) and past.history.knows(job.owner, job.name):
                named.append((job.owner, job.name))
            forgotten += [(job.owner, name) for name in past.history.forgotten(earlier, job.owner)]
        return past, named, forgotten

    def with_attempt(self, job: Job, attempt: Attempt, capacity: int, settings: Settings) -> Past:
        """The past with one ended attempt more."""
        since, until = begun(attempt), attempt.ended_at
        if since is None or until is None or until < since:
            return self
        usage = self.usage.with_end(job.owner, part(job.request, attempt, capacity, settings), since, until)
        if attempt.outcome not in TEACHES:
            return Past(self.history, usage)
        return Past(self.history.with_run(kin_of(job), until - since, compute=job.compute), usage)

    def share(self, owner: str, held: Held, capacity: int, settings: Settings, now: float) -> float:
        """A user's part of the machine of late, between 0 and 1."""
        jobs = held.owners.get(owner, ())
        known: _Had | None = held.shares.get(owner)
        if known is None or known.jobs is not jobs or known.capacity != capacity or known.settings is not settings:
            holding = Holding.of(_parts(jobs, max(1, capacity), settings))
        else:
            holding = known.holding
        share = self.usage.share(owner, holding, now)
        ended = self.usage.ended.get(owner)
        held.shares[owner] = _Had(jobs, capacity, settings, holding, ended, share, now)
        return share

    def least_share(self, owner: str, held: Held, capacity: int, settings: Settings, now: float) -> float:
        """What that is not below; nearly the same, and quick as long as nothing of the owner's has started or ended."""
        known: _Had | None = held.shares.get(owner)
        if known is not None:
            passed_s = now - known.at
            if (
                0.0 <= passed_s < _LATELY_S
                and known.jobs is held.owners.get(owner, ())
                and known.ended is self.usage.ended.get(owner)
                and known.capacity == capacity
                and known.settings is settings
            ):
                return least_after(known.share, passed_s)
        return self.share(owner, held, capacity, settings, now)


@dataclass(slots=True)
class _Had:
    """An owner's share at a moment, and what it was worked out of."""

    jobs: tuple[Job, ...]
    capacity: int
    settings: Settings
    holding: Holding
    ended: tuple[float, float] | None
    share: float
    at: float


def _parts(jobs: Iterable[Job], capacity: int, settings: Settings) -> list[tuple[float, float]]:
    """What part of the machine each of these active jobs has, and since when."""
    parts = []
    for job in jobs:
        attempt, request = job.attempts[-1], job.request
        if len(attempt.gpus) == 1 and request.cpus is None and request.memory is None:  # nearly all, and quick
            grant = attempt.gpus[0]
            parts.append((grant.promised / capacity, grant.since))
        elif (since := begun(attempt)) is not None:
            parts.append((part(request, attempt, capacity, settings), since))
    return parts


def appraised(
    jobs: Sequence[Job], now: float, *, held: Held, queue: Queue, gpus: Mapping[GpuUuid, Gpu], past: Past
) -> tuple[Job, ...]:
    """Jobs at their submission, with what they are expected to take and the backlog that they met.

    The backlog is how long the cards would need for all that was there before at the usual
    load, had it been served in the order of arrival.
    """
    capacity = max(1, machine(gpus.values()))
    ahead = float(queue.work)
    for _, work, since, size in held.loads:
        left, least = work - (now - since) * size, 60.0 * size
        ahead += left if left > least else least  # noqa: FURB136  quicker, and there may be many
    told = []
    for job in jobs:
        work = round(past.history.expected_s(kin_of(job)) * footprint(job.request, gpus.values()))
        backlog_s = round(ahead / (_USUAL_LOAD * capacity), 1)
        told.append(replace(job, request=queue.one_of(job.request), work=work, backlog_s=backlog_s))
        ahead += work
    return tuple(told)


def machine(gpus: Iterable[Gpu]) -> int:
    """MiB of all devices. A card that is split counts by its instances."""
    known = list(gpus)
    parents = {gpu.parent_uuid for gpu in known}
    return sum(gpu.total - gpu.reserved for gpu in known if gpu.uuid not in parents)


def footprint(request: Request, gpus: Iterable[Gpu]) -> int:
    """MiB that a request takes on all its cards together; a whole card counts as the largest."""
    if request.gpus == 0:
        return 0
    each = request.vram
    return request.gpus * (max((gpu.total for gpu in gpus), default=0) if each is None else each)


def part(request: Request, attempt: Attempt, capacity: int, settings: Settings) -> float:
    """The part of the machine that an attempt has: of the resource of which it has most."""
    known = capacity or sum(grant.total or 0 for grant in attempt.gpus)  # no card answers: its own are all there are
    return min(1.0, largest_part(promised(attempt), request, known, settings))


def promised(attempt: Attempt) -> int:
    """MiB that an attempt was promised on all its cards."""
    gpus = attempt.gpus
    return gpus[0].promised if len(gpus) == 1 else sum(grant.promised for grant in gpus)


def largest_part(mib: int, request: Request, capacity: int, settings: Settings) -> float:
    part_of_cards = mib / max(1, capacity)
    if request.cpus is None and request.memory is None:
        return part_of_cards
    cpus, memory = (request.cpus or 0) / max(1, settings.cpus), (request.memory or 0) / max(1, settings.memory)
    return max(part_of_cards, cpus, memory)


def begun(attempt: Attempt) -> float | None:
    """When the attempt got its place; for one without GPUs when it started."""
    return attempt.gpus[0].since if attempt.gpus else attempt.started_at
