"""The whole state of a machine's queue as one frozen value, and how an event changes it.

``apply`` is the core's one door: it moves jobs by ``machine.advance``, takes in samples of
the cards and lets go of memory that they show freed. Beside the live jobs it keeps what a
scheduling pass would otherwise have to search for: the queue in rank order, class by
class, and who is busy. It decides nothing about who starts; that is ``policy``.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

from .idle import Key, Quiet, observe, remembered
from .machine import JobEvent, advance
from .messages import (
    Amended,
    CancelRequested,
    Change,
    Claimed,
    Drained,
    Entry,
    Event,
    Exited,
    GpuLost,
    Instruction,
    LaunchFailed,
    MainEnded,
    OperationsEvent,
    Overrun,
    Placed,
    Quarantined,
    Reordered,
    Resumed,
    Returned,
    Sampled,
    Started,
    Submitted,
    Vanished,
    Voided,
)
from .model import Gpu, GpuSchedError, GpuUuid, IllegalTransition, Job, JobId, Phase, Priority, Request, Settings
from .oom import remedy
from .operations import Operations
from .order import dealt
from .overuse import newly_told, reserved, watch
from .quarantine import after_attempt, judge, ordered, shown
from .release import measure, released

BONUS_S = {Priority.LOW: -3600.0, Priority.NORMAL: 0.0, Priority.HIGH: 3600.0}
"""What a priority is worth: a high job is ranked as if it had been submitted an hour earlier."""

_KINDS: Mapping[type[Event], str] = {
    Placed: "placed",
    Claimed: "claimed",
    Started: "started",
    MainEnded: "main_ended",
    Exited: "exited",
    LaunchFailed: "launch_failed",
    Voided: "voided",
    Vanished: "vanished",
    GpuLost: "gpu_lost",
    Overrun: "overrun_ended",
    CancelRequested: "cancel_requested",
    Amended: "amended",
}


class Rank(NamedTuple):
    """A job's place in the queue; smaller is earlier. Time does not change it, only its owner does."""

    key: float
    job_id: JobId


class RequestClass(NamedTuple):
    """Jobs that ask for the same at the same priority: if the first does not fit, none does."""

    request: Request
    priority: Priority


class NotLive(IllegalTransition):
    """A fact about a job that the scheduler has nothing to do with any more, or never had."""

    def __init__(self, job_id: JobId, event: object) -> None:
        GpuSchedError.__init__(self, f"there is no live job {job_id}: {type(event).__name__} does not apply")
        self.event = event


@dataclass(frozen=True, slots=True)
class State:
    """Live jobs and cards. Never changed in place; build it by ``begin`` and ``apply`` only.

    queue        queued jobs by class, each class in rank order.
    busy         jobs that are in an attempt or still hold grants.
    backing_off  queued jobs with a ``not_before``.
    claimant     the queued job for which cards are kept.
    seen         the cards as last sampled; ``gpus`` are the same with their quarantine.
    operations   what was decided about the machine itself.
    watch        for how long cards have shown nothing happening; not kept over a restart but for alerts.
    """

    settings: Settings
    jobs: Mapping[JobId, Job] = field(default_factory=dict)
    gpus: Mapping[GpuUuid, Gpu] = field(default_factory=dict)
    queue: Mapping[RequestClass, tuple[Rank, ...]] = field(default_factory=dict)
    busy: frozenset[JobId] = frozenset()
    backing_off: frozenset[JobId] = frozenset()
    claimant: JobId | None = None
    seen: Mapping[GpuUuid, Gpu] = field(default_factory=dict)
    operations: Operations = field(default_factory=Operations)
    watch: Mapping[Key, Quiet] = field(default_factory=dict)

    @classmethod
    def begin(
        cls,
        settings: Settings,
        jobs: Iterable[Job] = (),
        gpus: Iterable[Gpu] = (),
        operations: Operations | None = None,
    ) -> State:
        """The state of these jobs (those that are not live are left out) and cards, as the journal has them."""
        kept = operations or Operations()
        empty = cls(settings, operations=kept, watch=remembered(kept.alerts.values(), settings))
        return _with_jobs(_with_cards(empty, gpus), tuple(jobs))


@dataclass(frozen=True, slots=True)
class Step:
    """What one event led to: ``changes`` are for the journal, ``instructions`` for the shell."""

    state: State
    changes: tuple[Entry, ...] = ()
    instructions: tuple[Instruction, ...] = ()


def apply(state: State, event: Event, now: float) -> Step:
    """Take in one event. Raises ``IllegalTransition``; the old state stays valid.

    An event that changes nothing (a second cancel) leads to the same state and no changes.
    """
    match event:
        case Submitted():
            return _submitted(state, event, now)
        case Sampled():
            return _sampled(state, event, now)
        case Reordered():
            return _reordered(state, event, now)
        case Quarantined() | Returned() | Drained() | Resumed():
            return _ordered(state, event, now)
        case _:
            return _moved(state, event, now)


def release_overdue(state: State, now: float) -> Step:
    """Let go of grants whose memory did not leave its card in time: from now on it is foreign use."""
    return _written(state, _releases(state, now), now)


def rank(job: Job) -> Rank:
    return Rank((job.submitted_at if job.place_at is None else job.place_at) - BONUS_S[job.priority], job.id)


def class_of(job: Job) -> RequestClass:
    return RequestClass(job.request, job.priority)


def queued(state: State) -> list[Rank]:
    """The whole queue in rank order."""
    return sorted(chain.from_iterable(state.queue.values()))


# --- the four kinds of events ---------------------------------------------------------


def _submitted(state: State, event: Submitted, now: float) -> Step:
    seen: set[JobId] = set()
    for job in event.jobs:
        if job.id in state.jobs or job.id in seen or job.phase is not Phase.QUEUED:
            raise IllegalTransition(state.jobs.get(job.id, job), event)
        seen.add(job.id)
    changes = tuple(Change(job, "submitted", now, {}) for job in event.jobs)
    return Step(_with_jobs(state, event.jobs), changes)


def _moved(state: State, event: JobEvent, now: float) -> Step:
    job = state.jobs.get(event.job_id)
    if job is None:
        if isinstance(event, CancelRequested):  # it has ended in the meantime: nothing to do, and no error
            return Step(state)
        raise NotLive(event.job_id, event)
    if isinstance(event, Claimed) and event.claim is not None and state.claimant not in {None, job.id}:
        raise IllegalTransition(job, event)
    if isinstance(event, Exited) and event.exit.reason == "cuda_oom" and job.phase.active:
        busy = {one: state.jobs[one] for one in state.busy}
        event = replace(event, remedy=remedy(job, event.exit, busy, state.gpus, state.settings))
    moved, instructions = advance(job, event, now)
    if moved == job:
        return Step(state, (), tuple(instructions))
    change = Change(moved, _KINDS[type(event)], now, _detail(event))
    after = _with_jobs(state, (moved,))
    if not isinstance(event, Exited):
        return Step(after, (change,), tuple(instructions))
    operations, deaths = after_attempt(state.operations, moved, now)
    return Step(_with_operations(after, operations), (change, *deaths), tuple(instructions))


def _ordered(state: State, event: OperationsEvent, now: float) -> Step:
    operations, changes = ordered(state.operations, event, state.seen, now)
    return Step(_with_operations(state, operations), changes)


def _reordered(state: State, event: Reordered, now: float) -> Step:
    moved = state.jobs.get(event.job_id)
    anchor = state.jobs.get(event.anchor)
    if moved is None or anchor is None:
        raise NotLive(event.job_id if moved is None else event.anchor, event)
    for job in (moved, anchor):
        if job.phase is not Phase.QUEUED or job.owner != moved.owner or moved.id == anchor.id:
            raise IllegalTransition(job, event)
    own = [(place.key, place.job_id) for place in queued(state) if state.jobs[place.job_id].owner == moved.owner]
    changed = [
        replace(job, place_at=key + BONUS_S[job.priority])
        for job_id, key in dealt(own, moved.id, anchor.id, before=event.before).items()
        if rank(job := state.jobs[job_id]).key != key
    ]
    changes = tuple(Change(job, "reordered", now, {"by": event.by, "moved": moved.id}) for job in changed)
    return Step(_with_jobs(state, changed), changes)


def _sampled(state: State, event: Sampled, now: float) -> Step:
    """Cards as measured now; jobs learn their use, and ended attempts' freed memory is let go."""
    operations, judged = judge(state.operations, event.gpus, now)
    seen = _with_cards(replace(state, operations=operations), event.gpus)
    measured, notable = _measurements(seen)
    step = _written(_with_jobs(seen, measured), notable, now)
    freed = _written(step.state, _releases(step.state, now), now)
    watched = replace(freed.state, watch=_watched(freed.state))
    result = Step(watched, (*judged, *step.changes, *freed.changes))
    for loss in _losses(watched):
        moved = _moved(result.state, loss, now)
        result = Step(moved.state, (*result.changes, *moved.changes), (*result.instructions, *moved.instructions))
    return result


def _watched(state: State) -> Mapping[Key, Quiet]:
    holders: dict[GpuUuid, list[Job]] = defaultdict(list)
    for job in _busy_jobs(state):
        for grant in job.grants:
            if job.phase is Phase.RUNNING and grant.attempt == job.attempt:
                holders[grant.gpu].append(job)
    return observe(state.watch, state.gpus.values(), holders, state.settings)


def _losses(state: State) -> list[GpuLost]:
    """Living attempts under which a card was lost; one whose end is under way needs nothing more."""
    lost = {uuid: gpu for uuid, gpu in state.gpus.items() if gpu.health == "lost"}
    living = [job for job in _busy_jobs(state) if job.phase in {Phase.STARTING, Phase.RUNNING}] if lost else []
    return [
        GpuLost(job.id, job.attempt, f"GPU {gone[0].index}, {gone[0].health_cause}")
        for job in living
        if (gone := [lost[grant.gpu] for grant in job.attempts[-1].gpus if grant.gpu in lost])
    ]


_Found = tuple[Job, str, dict[str, object]]
"""A job after something a sample or the clock showed, and how the journal calls it."""


def _measurements(state: State) -> tuple[list[Job], list[_Found]]:
    """Jobs whose measured use changed, and those of them whose peak is worth a journal entry."""
    changed: list[Job] = []
    notable: list[_Found] = []
    for job in _busy_jobs(state):
        measured = watch(measure(job, state.gpus), state.gpus, state.settings)
        found: list[tuple[str, dict[str, object]]] = []
        if (told := newly_told(measured, state.settings)) is not None:
            found.append(("overuse", _overuse_detail(told, state.settings)))
            measured = reserved(told, state.gpus, state.settings) if state.settings.overuse == "reserve" else told
        if _bucket(measured.peak_vram_mib) > _bucket(job.peak_vram_mib):
            found.append(("measured", {"peak_vram_mib": measured.peak_vram_mib}))
        if measured != job:
            changed.append(measured)
        notable += [(measured, kind, detail) for kind, detail in found]
    return changed, notable


def _overuse_detail(job: Job, settings: Settings) -> dict[str, object]:
    over = job.overuse
    assert over is not None
    figures = {"gpu": over.gpu, "used_mib": over.used, "promised_mib": over.promised}
    return {"attempt": job.attempt, **figures, "policy": settings.overuse}


def _bucket(peak: int | None) -> int:
    """Peaks are journaled in steps of 64 MiB, since every entry costs a write to disk."""
    return -1 if peak is None else peak // 64


def _releases(state: State, now: float) -> list[_Found]:
    found: list[_Found] = []
    for job in _busy_jobs(state):
        gone = [grant for grant in job.grants if released(job, grant, state.gpus.get(grant.gpu), state.settings, now)]
        if gone:
            kept = tuple(grant for grant in job.grants if grant not in gone)
            found.append((replace(job, grants=kept), "released", {"gpus": [grant.gpu for grant in gone]}))
    return found


def _written(state: State, changes: Sequence[_Found], now: float) -> Step:
    after = _with_jobs(state, [job for job, _, _ in changes]) if changes else state
    return Step(after, tuple(Change(job, kind, now, detail) for job, kind, detail in changes))


def _busy_jobs(state: State) -> list[Job]:
    return [state.jobs[job_id] for job_id in sorted(state.busy)]


def _with_cards(state: State, gpus: Iterable[Gpu]) -> State:
    seen = _by_uuid(gpus)
    return replace(state, seen=seen, gpus=shown(state.operations, seen))


def _with_operations(state: State, operations: Operations) -> State:
    if operations is state.operations:
        return state
    return replace(state, operations=operations, gpus=shown(operations, state.seen))


def _by_uuid(gpus: Iterable[Gpu]) -> dict[GpuUuid, Gpu]:
    return {gpu.uuid: gpu for gpu in sorted(gpus, key=lambda gpu: (gpu.index, gpu.uuid))}


def _detail(event: JobEvent) -> dict[str, object]:
    match event:
        case Placed(_, grants):
            return {"gpus": [grant.gpu for grant in grants]}
        case Claimed(_, claim):
            return {"gpus": None if claim is None else list(claim.gpus)}
        case Exited(_, attempt, record, _):
            told: dict[str, object] = {"code": record.code, "signal": record.signal, "reason": record.reason}
            if record.survivors:
                told["survivors"] = list(record.survivors)
            if record.stragglers:
                told["stragglers_killed"] = record.stragglers
            return {"attempt": attempt, **told}
        case LaunchFailed(_, attempt, reason, _):
            return {"attempt": attempt, "reason": reason}
        case CancelRequested(_, by, _) | Amended(_, by, _):
            return {"by": by}
        case GpuLost(_, attempt, what) | Overrun(_, attempt, what):
            return {"attempt": attempt, "what": what}
        case _:
            return {"attempt": event.attempt}


# --- keeping the indexes in step with the jobs ------------------------------------------


def _with_jobs(state: State, changed: Sequence[Job]) -> State:
    """The state with these jobs as they are now; a job that is no longer live leaves it."""
    if not changed:
        return state
    jobs = dict(state.jobs)
    for job in changed:
        if job.live:
            jobs[job.id] = job
        else:
            jobs.pop(job.id, None)
    live = [job for job in changed if job.live]
    ids = {job.id for job in changed}
    return replace(
        state,
        jobs=jobs,
        queue=_queue(state, changed),
        busy=_members(state.busy, ids, (job.id for job in live if job.phase.active or job.grants)),
        backing_off=_members(state.backing_off, ids, (job.id for job in live if job.not_before is not None)),
        claimant=_claimant(state, ids, live),
    )


def _members(members: frozenset[JobId], changed: set[JobId], now_in: Iterable[JobId]) -> frozenset[JobId]:
    return (members - changed) | frozenset(now_in)


def _claimant(state: State, changed: set[JobId], live: Sequence[Job]) -> JobId | None:
    claimants = [job.id for job in live if job.claim is not None]
    if claimants:
        return claimants[0]
    return None if state.claimant in changed else state.claimant


def _queue(state: State, changed: Sequence[Job]) -> Mapping[RequestClass, tuple[Rank, ...]]:
    """The queue after some jobs changed: who joins a line, who leaves one, and who changes lines."""
    joins: dict[RequestClass, list[Rank]] = {}
    leaves: dict[RequestClass, list[Rank]] = {}
    for job in changed:
        was, is_now = _line_of(state.jobs.get(job.id)), _line_of(job)
        if was == is_now:
            continue
        if was is not None:
            leaves.setdefault(was[0], []).append(was[1])
        if is_now is not None:
            joins.setdefault(is_now[0], []).append(is_now[1])
    if not joins and not leaves:
        return state.queue
    queue = dict(state.queue)
    for request_class in [*joins, *leaves]:
        line = _line(queue.get(request_class, ()), joins.pop(request_class, ()), leaves.pop(request_class, ()))
        if line:
            queue[request_class] = line
        else:
            queue.pop(request_class, None)
    return queue


def _line_of(job: Job | None) -> tuple[RequestClass, Rank] | None:
    """The line in which a job stands and its place there; None for one that does not wait."""
    return (class_of(job), rank(job)) if job is not None and job.phase is Phase.QUEUED else None


def _line(line: tuple[Rank, ...], joins: Iterable[Rank], leaves: Iterable[Rank]) -> tuple[Rank, ...]:
    ranks = list(line)
    for place in leaves:
        del ranks[bisect_left(ranks, place)]
    for place in joins:
        insort(ranks, place)
    return tuple(ranks)
