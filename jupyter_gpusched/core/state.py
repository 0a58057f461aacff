"""The whole state of a machine's queue as one frozen value, and how an event changes it.

``apply`` is the core's one door: it moves jobs by ``machine.advance``, takes in samples of
the cards and lets go of memory that they show freed. Beside the live jobs it keeps what a
scheduling pass would otherwise have to search for (the queue by lines, who is busy) and what
the past teaches. It decides nothing about who starts; that is ``policy``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .asides import Asides, Batch, consequences, entered
from .booking import booked, given_back
from .compute import watched as with_compute
from .facts import order_of
from .frozen import quick, replace
from .held import Held
from .idle import Key, Quiet, idled, observe, remembered
from .indexes import busy_now, by_hand_now, members, turns
from .journal import KINDS, detail_of
from .machine import TRANSITIONS, JobEvent, advance
from .messages import (
    CancelRequested,
    CardsEvent,
    Change,
    Claimed,
    Drained,
    Entry,
    Event,
    Exited,
    GpuLost,
    Instruction,
    LimitsChanged,
    MachineChange,
    Quarantined,
    Reordered,
    Reserved,
    Resumed,
    Returned,
    Sampled,
    SampleNow,
    Submitted,
    Together,
    Unreserved,
)
from .model import (
    Gpu,
    GpuSchedError,
    GpuUuid,
    IllegalTransition,
    Job,
    JobId,
    Phase,
    Settings,
)
from .oom import remedy
from .operations import Operations
from .order import renumbered
from .overuse import newly_told, reserved, watch
from .past import Past, appraised
from .persistent import Map
from .quarantine import after_attempt, judge, ordered, shown
from .queue import Queue
from .release import measure, released
from .streaks import Streak, holds, judged


class NotLive(IllegalTransition):
    """A fact about a job that the scheduler has nothing to do with any more, or never had."""

    def __init__(self, job_id: JobId, event: object) -> None:
        GpuSchedError.__init__(self, f"there is no live job {job_id}: {type(event).__name__} does not apply")
        self.event = event


@quick
@dataclass(frozen=True, slots=True)
class State:
    """Live jobs and cards. Never changed in place; build it by ``begin`` and ``apply`` only.

    queue        queued jobs, by lines; without those that are set aside.
    asides       who is set aside and for whom; batches and arrays.
    busy         jobs that are in an attempt or still hold grants, in the order of their ids.
    held         what the busy ones hold, added up.
    releasing    those with a grant that is being released.
    backing_off  queued jobs with a ``not_before``.
    by_hand      queued jobs that their owner put in an order, by owner.
    claimants    queued jobs for which cards are kept.
    past         what ended attempts teach, and who has used how much.
    seen         the cards as last sampled; ``gpus`` are the same with their quarantine.
    operations   what was decided about the machine itself.
    streaks      batches whose jobs fail one after the other; not kept over a restart but from what has ended.
    watch        for how long cards have shown nothing happening; not kept over a restart but for alerts.
    """

    settings: Settings
    jobs: Map[Job] = field(default_factory=Map)
    gpus: Mapping[GpuUuid, Gpu] = field(default_factory=dict)
    queue: Queue = field(default_factory=Queue)
    asides: Asides = field(default_factory=Asides)
    busy: Mapping[JobId, Job] = field(default_factory=dict)
    held: Held = field(default_factory=Held)
    releasing: frozenset[JobId] = frozenset()
    backing_off: frozenset[JobId] = frozenset()
    by_hand: Mapping[str, frozenset[JobId]] = field(default_factory=dict)
    claimants: frozenset[JobId] = frozenset()
    past: Past = field(default_factory=Past)
    seen: Mapping[GpuUuid, Gpu] = field(default_factory=dict)
    operations: Operations = field(default_factory=Operations)
    streaks: Mapping[JobId, Streak] = field(default_factory=dict)
    watch: Mapping[Key, Quiet] = field(default_factory=dict)

    @classmethod
    def begin(
        cls,
        settings: Settings,
        jobs: Iterable[Job] = (),
        gpus: Iterable[Gpu] = (),
        operations: Operations | None = None,
        past: Past | None = None,
        *,
        streaks: Mapping[JobId, Streak] | None = None,
    ) -> State:
        """The state of these jobs (those that are not live are left out) and cards, as the journal has them."""
        kept = operations or Operations()
        alerts = remembered(kept.alerts.values(), settings)
        empty = cls(settings, past=past or Past(), operations=kept, watch=alerts, streaks=streaks or {})
        return _with_jobs(_with_cards(empty, gpus), tuple(jobs))

    @property
    def claimant(self) -> Job | None:
        """The job that has waited so long that cards are kept for it; one at a time."""
        waiting = (self.jobs[job_id] for job_id in self.claimants)
        return next((job for job in waiting if job.claim is not None and not job.claim.evicting), None)


@quick
@dataclass(frozen=True, slots=True)
class Step:
    """What one event led to: ``changes`` are for the journal, ``instructions`` for the shell."""

    state: State
    changes: tuple[Entry, ...] = ()
    instructions: tuple[Instruction, ...] = ()


def apply(state: State, event: Event, now: float) -> Step:
    """Take in one event. Raises ``IllegalTransition``; the old state stays valid.

    An event that changes nothing (a second cancel) leads to the same state and no changes. What
    follows from it for other jobs (a parent has ended) is part of the same step.
    """
    step = _applied(state, event, now)
    return _followed(state, step, event, now) if step.changes else step


def _applied(state: State, event: Event, now: float) -> Step:
    match event:
        case Submitted():
            return _submitted(state, event, now)
        case Sampled():
            return _sampled(state, event, now)
        case Reordered():
            return _reordered(state, event, now)
        case Together():
            return _together(state, event.events, now)
        case LimitsChanged():
            return _limited(state, event, now)
        case Quarantined() | Returned() | Drained() | Resumed() | Reserved() | Unreserved():
            return _ordered(state, event, now)
        case _:
            return _moved(state, event, now)


def release_overdue(state: State, now: float) -> Step:
    """Let go of grants whose memory did not leave its card in time: from now on it is foreign use."""
    return _written(state, _releases(state, now), now)


# --- the four kinds of events ---------------------------------------------------------


def _submitted(state: State, event: Submitted, now: float) -> Step:
    seen: set[JobId] = set()
    for job in event.jobs:
        if job.id in state.jobs or job.id in seen or job.phase is not Phase.QUEUED:
            raise IllegalTransition(state.jobs.get(job.id, job), event)
        seen.add(job.id)
    new = entered(event.jobs, event.ended, state.jobs, now)
    jobs = appraised(new, now, held=state.held, queue=state.queue, gpus=state.gpus, past=state.past)
    detail: dict[str, object] = {} if event.by is None else {"by": event.by}
    changes = tuple(Change(job, "submitted", now, detail) for job in jobs)
    look = (SampleNow(),) if state.releasing else ()  # it was not worth one while nobody waited
    return Step(_with_jobs(state, jobs), changes, look)


def _moved(state: State, event: JobEvent, now: float) -> Step:
    job = state.jobs.get(event.job_id)
    if job is None:
        if isinstance(event, CancelRequested):  # it has ended in the meantime: nothing to do, and no error
            return Step(state)
        raise NotLive(event.job_id, event)
    if isinstance(event, Claimed) and event.claim is not None and not event.claim.evicting:
        claimant = state.claimant
        if claimant is not None and claimant.id != job.id:
            raise IllegalTransition(job, event)
    if isinstance(event, Exited) and event.exit.reason == "cuda_oom" and job.phase.active:
        event = replace(event, remedy=remedy(job, event.exit, state.busy, state.gpus, state.settings))
    moved, instructions = advance(job, event, now)
    if moved is job or (moved.phase is job.phase and moved == job):
        return Step(state, (), tuple(instructions))
    change = Change(moved, KINDS[type(event)], now, detail_of(event, moved))
    after = _with_jobs(state, (moved,))
    if not isinstance(event, Exited):
        return Step(after, (change,), tuple(instructions))
    operations, deaths = after_attempt(state.operations, moved, now)
    return Step(_with_operations(after, operations), (change, *deaths), tuple(instructions))


def _together(state: State, events: Sequence[JobEvent], now: float) -> Step:
    """What several events lead to in one step; one that its job does not admit (any more) leads to nothing."""
    moved: dict[JobId, Job] = {}
    changes: list[Change] = []
    instructions: list[Instruction] = []
    for one in events:
        job = moved.get(one.job_id) or state.jobs.get(one.job_id)
        if job is not None and (job.phase, type(one)) in TRANSITIONS:
            after, then = advance(job, one, now)
            instructions += then
            if after != job:
                moved[job.id] = after
                changes.append(Change(after, KINDS[type(one)], now, detail_of(one, after)))
    return Step(_with_jobs(state, tuple(moved.values())), tuple(changes), tuple(instructions))


def _followed(before: State, step: Step, event: Event, now: float) -> Step:
    """The step with all that follows from it; what one consequence leads to is a consequence as well."""
    state, changes = step.state, list(step.changes)
    if not state.streaks and not any(_concerns_others(change, before) for change in changes):
        return step
    ended = {job.id: job for job in event.ended} if isinstance(event, Submitted) else {}
    latest = [change.job for change in changes if isinstance(change, Change)]
    while latest:
        streaks, full = judged(state.streaks, [job for job in latest if not _had_ended(before, job)])
        if streaks:
            streaks = {batch_id: streak for batch_id, streak in streaks.items() if batch_id in state.asides.batches}
        state = state if streaks == state.streaks else replace(state, streaks=streaks)
        follow: list[JobEvent] = [*consequences(before.asides, state.asides, latest, state.jobs, ended)]
        for batch_id, streak in full.items():
            follow += holds(streak, state.asides.batches.get(batch_id, Batch()).queued)
        more = _together(state, follow, now)
        changes += more.changes
        before, state, latest = state, more.state, [c.job for c in more.changes if isinstance(c, Change)]
    return replace(step, state=state, changes=tuple(changes))


def _concerns_others(change: Entry, before: State) -> bool:
    """Whether anything can follow from it for another job: those of its batch, or those that wait for it."""
    if not isinstance(change, Change):
        return False
    job = change.job
    return job.member is not None or job.blocked or (job.phase.final and job.id in before.asides.dependents)


def _had_ended(before: State, job: Job) -> bool:
    """Whether it is only its memory that an ended job lets go of."""
    known = before.jobs.get(job.id)
    return known is not None and known.phase.final


def _limited(state: State, event: LimitsChanged, now: float) -> Step:
    if event.limits == state.settings.limits:
        return Step(state)
    settings = replace(state.settings, limits=event.limits)
    change = MachineChange(state.operations, "limits_changed", now, {"by": event.by})
    return Step(replace(state, settings=settings), (change,))


def _ordered(state: State, event: CardsEvent | Reserved | Unreserved, now: float) -> Step:
    match event:
        case Reserved():
            operations, changes = booked(state.operations, event, state.gpus, now)
        case Unreserved():
            operations, changes = given_back(state.operations, event, now)
        case _:
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
    aside = [job_id for _, job_id in state.asides.waiting if state.jobs[job_id].owner == moved.owner]
    own = [*order_of(state, now, owner=moved.owner), *aside]
    places = ((job_id, state.jobs[job_id].place_at) for job_id in own)
    numbers = {job_id: at for job_id, at in places if at is not None}
    new = renumbered(own, numbers, moved.id, anchor.id, before=event.before)
    changed = [replace(state.jobs[job_id], place_at=at) for job_id, at in new.items()]
    changes = tuple(Change(job, "reordered", now, {"by": event.by, "moved": moved.id}) for job in changed)
    return Step(_with_jobs(state, changed), changes)


def _sampled(state: State, event: Sampled, now: float) -> Step:
    """Cards as measured now; jobs learn their use, and ended attempts' freed memory is let go."""
    operations, judged = judge(state.operations, event.gpus, now)
    seen = _with_cards(replace(state, operations=operations), event.gpus)
    seen = _with_jobs(seen, with_compute(_busy_jobs(seen), seen.gpus))
    seen = _with_jobs(seen, idled(_busy_jobs(seen), state.gpus, seen.gpus, seen.settings))
    measured, notable = _measurements(seen)
    step = _written(_with_jobs(seen, measured), notable, now)
    freed = _written(step.state, _releases(step.state, now), now)
    observed = replace(freed.state, watch=_watched(freed.state))
    result = Step(observed, (*judged, *step.changes, *freed.changes))
    for loss in _losses(observed):
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
    for job_id in sorted(state.releasing):
        job = state.busy[job_id]
        gone = [grant for grant in job.grants if released(job, grant, state.gpus.get(grant.gpu), state.settings, now)]
        if gone:
            kept = tuple(grant for grant in job.grants if grant not in gone)
            found.append((replace(job, grants=kept), "released", {"gpus": [grant.gpu for grant in gone]}))
    return found


def _written(state: State, changes: Sequence[_Found], now: float) -> Step:
    after = _with_jobs(state, [job for job, _, _ in changes]) if changes else state
    return Step(after, tuple(Change(job, kind, now, detail) for job, kind, detail in changes))


def _busy_jobs(state: State) -> list[Job]:
    return list(state.busy.values())


def _with_cards(state: State, gpus: Iterable[Gpu]) -> State:
    seen = _by_uuid(gpus)
    return replace(state, seen=seen, gpus=shown(state.operations, seen))


def _with_operations(state: State, operations: Operations) -> State:
    if operations is state.operations:
        return state
    return replace(state, operations=operations, gpus=shown(operations, state.seen))


def _by_uuid(gpus: Iterable[Gpu]) -> dict[GpuUuid, Gpu]:
    return {gpu.uuid: gpu for gpu in sorted(gpus, key=lambda gpu: (gpu.index, gpu.uuid))}


# --- keeping the indexes in step with the jobs ------------------------------------------


def _with_jobs(state: State, changed: Sequence[Job]) -> State:
    """The state with these jobs as they are now; a job that is no longer live leaves it.

    Most events are about one job and concern few of the indexes: the others are not asked.
    """
    if not changed:
        return state
    known = state.jobs
    before = [known.get(job.id) for job in changed]
    turned = turns(before, changed, state.asides)
    past, named, forgotten = (
        state.past.after(before, changed, state.gpus, state.settings) if turned.ended else (state.past, (), ())
    )
    queue = state.queue
    for owner, name in forgotten:
        queue = queue.with_forgotten(owner, name, known)
    for owner, name in named:
        queue = queue.with_known(owner, name, known)
    jobs = known.changed(turned.live, turned.gone)
    return replace(
        state,
        jobs=jobs,
        queue=queue.moved(before, changed, past.history) if turned.waited else queue,
        asides=state.asides.moved(before, changed, jobs) if turned.aside else state.asides,
        busy=busy_now(state.busy, turned) if turned.held else state.busy,
        releasing=members(state.releasing, turned.ids, turned.releasing),
        by_hand=by_hand_now(state.by_hand, before, changed) if turned.by_hand else state.by_hand,
        backing_off=members(state.backing_off, turned.ids, turned.backing_off),
        claimants=members(state.claimants, turned.ids, turned.claimants),
        held=state.held.moved(before, changed) if turned.held else state.held,
        past=past,
    )
