"""One job's life: which event is legal in which phase, and where it leads.

Everything about phases lives here, in two parts: ``TRANSITIONS``, the table from which the
documentation draws its diagram, and ``advance``, which takes one step. A pair that is not
in the table raises ``IllegalTransition`` and the old job stays valid. Knows nothing of
other jobs, of cards or of the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from .asked import Hold
from .frozen import replace
from .messages import (
    Amended,
    CancelRequested,
    Claimed,
    DependencyFailed,
    Evicted,
    Exited,
    GpuLost,
    HoldRequested,
    Instruction,
    Launch,
    LaunchFailed,
    LetIn,
    MainEnded,
    Overrun,
    Placed,
    ReleaseRequested,
    SampleNow,
    Started,
    StopAttempt,
    Unblocked,
    Vanished,
    Voided,
)
from .model import (
    Attempt,
    ExitRecord,
    Grant,
    GrantState,
    IllegalTransition,
    Job,
    Outcome,
    Phase,
    Request,
    Stop,
    Terms,
)
from .operations import SCHEDULER
from .quantities import show_seconds

JobEvent = (
    Placed
    | Claimed
    | Evicted
    | Started
    | MainEnded
    | Exited
    | LaunchFailed
    | Voided
    | Vanished
    | GpuLost
    | Overrun
    | CancelRequested
    | HoldRequested
    | ReleaseRequested
    | Unblocked
    | DependencyFailed
    | LetIn
    | Amended
)
Moved = tuple[Job, list[Instruction]]

_QUEUED, _STARTING, _RUNNING, _STOPPING = Phase.QUEUED, Phase.STARTING, Phase.RUNNING, Phase.STOPPING
_BY_CODE = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.TIMEOUT, Phase.CANCELLED, Phase.QUEUED})

TRANSITIONS: Mapping[tuple[Phase, type[JobEvent]], frozenset[Phase]] = {
    (_QUEUED, Claimed): frozenset({_QUEUED}),
    (_QUEUED, Placed): frozenset({_STARTING}),
    (_QUEUED, CancelRequested): frozenset({Phase.CANCELLED}),
    (_QUEUED, Amended): frozenset({_QUEUED}),
    (_QUEUED, HoldRequested): frozenset({_QUEUED}),
    (_QUEUED, ReleaseRequested): frozenset({_QUEUED}),
    (_QUEUED, Unblocked): frozenset({_QUEUED}),
    (_QUEUED, DependencyFailed): frozenset({Phase.CANCELLED}),
    (_QUEUED, LetIn): frozenset({_QUEUED}),
    (_STARTING, Started): frozenset({_RUNNING}),
    (_STARTING, MainEnded): frozenset({_STOPPING}),
    (_STARTING, Exited): _BY_CODE,
    (_STARTING, LaunchFailed): frozenset({Phase.FAILED}),
    (_STARTING, Voided): frozenset({_QUEUED}),
    (_STARTING, Vanished): frozenset({Phase.LOST}),
    (_STARTING, GpuLost): frozenset({_STOPPING}),
    (_STARTING, Overrun): frozenset({_STOPPING}),
    (_STARTING, Evicted): frozenset({_STOPPING}),
    (_STARTING, CancelRequested): frozenset({_STOPPING}),
    (_RUNNING, MainEnded): frozenset({_STOPPING}),
    (_RUNNING, Exited): _BY_CODE,
    (_RUNNING, Vanished): frozenset({Phase.LOST}),
    (_RUNNING, GpuLost): frozenset({_STOPPING}),
    (_RUNNING, Overrun): frozenset({_STOPPING}),
    (_RUNNING, Evicted): frozenset({_STOPPING}),
    (_RUNNING, CancelRequested): frozenset({_STOPPING}),
    (_STOPPING, Started): frozenset({_STOPPING}),
    (_STOPPING, MainEnded): frozenset({_STOPPING}),
    (_STOPPING, Exited): _BY_CODE,
    (_STOPPING, LaunchFailed): frozenset({Phase.CANCELLED, Phase.FAILED}),
    (_STOPPING, Voided): frozenset({Phase.CANCELLED, _QUEUED}),
    (_STOPPING, Vanished): frozenset({Phase.LOST}),
    (_STOPPING, CancelRequested): frozenset({_STOPPING}),
    # To cancel what has ended already is no error and changes nothing.
    (Phase.SUCCEEDED, CancelRequested): frozenset({Phase.SUCCEEDED}),
    (Phase.FAILED, CancelRequested): frozenset({Phase.FAILED}),
    (Phase.CANCELLED, CancelRequested): frozenset({Phase.CANCELLED}),
    (Phase.TIMEOUT, CancelRequested): frozenset({Phase.TIMEOUT}),
    (Phase.LOST, CancelRequested): frozenset({Phase.LOST}),
}
"""(phase, event) -> the phases to which it can lead. What is not listed is illegal."""

NOT_RETRIED = frozenset({"launch_failed", "cwd_missing", "stdin"})
"""Reasons for which another try would end the same way."""

FIRST_BACKOFF_S = 5.0
LONGEST_BACKOFF_S = 300.0

_ENDED_BY_STOP = {
    "cancelled": (Phase.CANCELLED, Outcome.CANCELLED),
    "timeout": (Phase.TIMEOUT, Outcome.TIMEOUT),
    "preempted": (Phase.QUEUED, Outcome.PREEMPTED),
}


def advance(job: Job, event: JobEvent, now: float) -> Moved:
    """Move one job by one event and say what the shell must do about it.

    ``now`` is seconds since the epoch. A pair that ``TRANSITIONS`` does not list, and an echo
    of an earlier attempt, raise ``IllegalTransition``. Without a change the same job comes back.
    """
    if (job.phase, type(event)) not in TRANSITIONS or not _speaks_of_now(job, event):
        raise IllegalTransition(job, event)
    match event:
        case Placed():
            return _placed(job, event, now)
        case Claimed():
            return _claimed(job, event), []
        case Evicted():
            return _evicted(job, event, now)
        case Started():
            return _started(job, event, now), []
        case MainEnded():
            return _main_ended(job, now), []
        case Exited():
            return _exited(job, event, now)
        case LaunchFailed():
            return _launch_failed(job, event, now), []
        case Voided():
            return _voided(job, now), []
        case Vanished():
            return _vanished(job, event, now)
        case GpuLost():
            return _ended_for(job, "gpu_lost", event.what, now)
        case Overrun():
            return _ended_for(job, "vram_exceeded", event.what, now)
        case CancelRequested():
            return _cancel_requested(job, event, now)
        case HoldRequested():
            return _held(job, event, now), []
        case ReleaseRequested():
            return _back(replace(job, held=None), now), []
        case Unblocked():
            return _back(replace(job, blocked=False), now), []
        case LetIn():
            return _back(replace(job, waits_turn=False), now), []
        case DependencyFailed():
            return _dependency_failed(job, event, now), []
        case Amended():
            return _amended(job, event.terms), []


def backoff_s(failures: int) -> float:
    """How long a job rests after its n-th failed attempt: 5 s, doubled each time, at most 5 min."""
    return min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(failures - 1, 16))


def _speaks_of_now(job: Job, event: JobEvent) -> bool:
    """Whether an event is about the attempt that the job is in, and a placement is whole."""
    match event:
        case Started() | MainEnded() | Exited() | LaunchFailed() | Voided() | Vanished():
            return event.attempt == job.attempt
        case GpuLost() | Overrun() | Evicted():
            return event.attempt == job.attempt
        case Placed():
            whole = len({grant.gpu for grant in event.grants}) == len(event.grants) == job.request.gpus
            return whole and not job.set_aside and all(grant.attempt == job.attempt + 1 for grant in event.grants)
        case Claimed():
            return event.claim is None or not job.set_aside
        case _:
            return True


def _placed(job: Job, event: Placed, now: float) -> Moved:
    number = job.attempt + 1
    moved = replace(
        job,
        phase=Phase.STARTING,
        since=now,
        attempts=(*job.attempts, Attempt(number, event.grants, choice=event.choice)),
        grants=(*job.grants, *event.grants),
        claim=None,
        claim_rests_until=None,
        claim_rests=0,
        not_before=None,
    )
    return moved, [Launch(job.id, number)]


def _claimed(job: Job, event: Claimed) -> Job:
    if event.rests_until is None:
        return replace(job, claim=event.claim)
    return replace(job, claim=event.claim, claim_rests_until=event.rests_until, claim_rests=job.claim_rests + 1)


def _evicted(job: Job, event: Evicted, now: float) -> Moved:
    stop = Stop("preempted", now, job.grace_s, event.by, event.whom)
    return replace(job, phase=Phase.STOPPING, since=now, stop=stop), [
        StopAttempt(job.id, job.attempt, stop.reason, stop.grace_s)
    ]


def _started(job: Job, event: Started, now: float) -> Job:
    """A start that was under way when the job was cancelled is written down; the stop stands."""
    begun = _with_attempt(job, replace(job.attempts[-1], started_at=event.at))
    return begun if job.phase is Phase.STOPPING else replace(begun, phase=Phase.RUNNING, since=now)


def _main_ended(job: Job, now: float) -> Job:
    if job.phase is Phase.STOPPING:
        return job
    return replace(job, phase=Phase.STOPPING, since=now, stop=Stop("stragglers", now, job.grace_s))


def _exited(job: Job, event: Exited, now: float) -> Moved:
    record = event.exit
    phase, outcome = _verdict(job, event)
    reason, message = _words(job, record, outcome)
    remedy = event.remedy if reason == "cuda_oom" else None
    if remedy is not None:
        message += remedy.words
    attempt = replace(
        job.attempts[-1],
        started_at=_known(job.attempts[-1].started_at, record.started_at),
        ended_at=record.ended_at,
        outcome=outcome,
        reason=reason,
        message=message,
        exit_code=record.code,
        signal=record.signal,
        peak_rss_mib=record.peak_rss_mib,
        shortage=record.shortage,
    )
    ended = _releasing(_with_attempt(job, attempt), now)
    look = [SampleNow()] if ended.grants else []
    if phase is Phase.QUEUED:
        rests_until = now + backoff_s(_failures(ended)) if outcome is Outcome.FAILED else None
        if remedy is not None and remedy.request is not None:
            ended = replace(ended, request=remedy.request)
        return _requeued(ended, now, not_before=rests_until), [*look]
    return _final(ended, phase, now, at=record.ended_at), [*look]


def _verdict(job: Job, event: Exited) -> tuple[Phase, Outcome]:
    """The first reason for which the attempt was being ended decides, then its exit code.

    Whoever was cancelled stays cancelled, whatever the code; stragglers decide nothing.
    """
    record = event.exit
    ended_by = _stop_reason(job, record)
    if ended_by is not None:
        return _ENDED_BY_STOP[ended_by]
    if _is_stopped_by(job, "vram_exceeded"):
        return Phase.FAILED, Outcome.FAILED
    if record.code == 0 and not _is_stopped_by(job, "gpu_lost"):
        return Phase.SUCCEEDED, Outcome.SUCCEEDED
    if record.reason == "cuda_oom" and event.remedy is not None and not _is_stopped_by(job, "gpu_lost"):
        retried = event.remedy.request is not None
    else:
        retried = _failures(job) < job.retries and record.reason not in NOT_RETRIED
    return (Phase.QUEUED if retried else Phase.FAILED), Outcome.FAILED


def _stop_reason(job: Job, record: ExitRecord) -> str | None:
    """Ours where we asked for the end, else the supervisor's, which keeps time limits by itself."""
    if job.stop is not None and job.stop.reason in _ENDED_BY_STOP:
        return job.stop.reason
    return record.stopped if record.stopped in _ENDED_BY_STOP else None


def _words(job: Job, record: ExitRecord, outcome: Outcome) -> tuple[str, str]:
    """Reason and sentence of an ended attempt."""
    match outcome:
        case Outcome.CANCELLED:
            return "cancelled", _cancelled_by(job.stop.by if job.stop else None)
        case Outcome.TIMEOUT:
            limit = "its time limit" if job.time_limit_s is None else f"its limit of {show_seconds(job.time_limit_s)}"
            return "timeout", f"ended because it ran longer than {limit}"
        case Outcome.PREEMPTED:
            return "preempted", _evicted_for(job)
        case Outcome.FAILED if job.stop is not None and job.stop.reason == "gpu_lost":
            return "gpu_lost", f"ended because it had lost its card: {job.stop.by}"
        case Outcome.FAILED if job.stop is not None and job.stop.reason == "vram_exceeded":
            return "vram_exceeded", f"ended because {job.stop.by}"
        case _:
            return record.reason, record.message


def _launch_failed(job: Job, event: LaunchFailed, now: float) -> Job:
    """No user code ran, so no memory can be left on a card: its grants go at once."""
    cancelled = _is_cancelled(job)
    outcome = Outcome.CANCELLED if cancelled else Outcome.FAILED
    reason, message = _unstarted_words(job) if cancelled else (event.reason, event.message)
    attempt = replace(job.attempts[-1], ended_at=now, outcome=outcome, reason=reason, message=message)
    phase = Phase.CANCELLED if cancelled else Phase.FAILED
    return _final(_without_grants_of(_with_attempt(job, attempt)), phase, now, at=now)


def _voided(job: Job, now: float) -> Job:
    """The host won the claim: the attempt never was. It does not count against the retries."""
    cancelled = _is_cancelled(job)
    if _is_stopped_by(job, "preempted"):
        outcome, (reason, message) = Outcome.PREEMPTED, ("preempted", _evicted_for(job))
    else:
        outcome = Outcome.CANCELLED if cancelled else Outcome.LOST
        reason, message = _unstarted_words(job) if cancelled else _NEVER_STARTED
    attempt = replace(job.attempts[-1], ended_at=now, outcome=outcome, reason=reason, message=message)
    freed = _without_grants_of(_with_attempt(job, attempt))
    return _final(freed, Phase.CANCELLED, now, at=now) if cancelled else _requeued(freed, now, not_before=None)


_NEVER_STARTED = ("never_started", "the host stopped before the attempt began; nothing of it ran")


def _vanished(job: Job, event: Vanished, now: float) -> Moved:
    attempt = replace(job.attempts[-1], ended_at=now, outcome=Outcome.LOST, reason="vanished", message=event.message)
    ended = _releasing(_with_attempt(job, attempt), now)
    return _final(ended, Phase.LOST, now, at=now), [SampleNow()] if ended.grants else []


def _ended_for(job: Job, reason: str, what: str, now: float) -> Moved:
    """What lost its card would only wait, and what takes others' memory is ended by the administrator's wish.

    The former is tried elsewhere if it may be; the latter would overrun again.
    """
    stop = Stop(reason, now, job.grace_s, what)
    return replace(job, phase=Phase.STOPPING, since=now, stop=stop), [
        StopAttempt(job.id, job.attempt, stop.reason, stop.grace_s)
    ]


def _cancel_requested(job: Job, event: CancelRequested, now: float) -> Moved:
    """A second request changes nothing, unless it names a grace that ends sooner than what is left of the first.

    A job that is ended because its card was lost, or for another job, would be tried again; the user's word
    prevents that.
    """
    if job.stop is not None and job.stop.reason in {"gpu_lost", "preempted"} and job.phase is Phase.STOPPING:
        return replace(job, stop=replace(job.stop, reason="cancelled", by=event.by)), []
    if job.phase.final:
        return job, []
    if job.phase is Phase.STOPPING:
        return _ending_sooner(job, event, now)
    grace_s = job.grace_s if event.grace_s is None else event.grace_s
    stopping = replace(job, stop=Stop("cancelled", now, grace_s, event.by), since=now, claim=None)
    if job.phase is Phase.QUEUED:
        reason, message = "cancelled", _cancelled_by(event.by)
        final = replace(stopping, phase=Phase.CANCELLED, ended_at=now, not_before=None)
        return replace(final, reason=reason, message=message), []
    stop = StopAttempt(job.id, job.attempt, "cancelled", grace_s)
    return replace(stopping, phase=Phase.STOPPING), [stop]


def _ending_sooner(job: Job, event: CancelRequested, now: float) -> Moved:
    stop, grace_s = job.stop, event.grace_s
    if stop is None or stop.reason != "cancelled" or grace_s is None or now + grace_s >= stop.since + stop.grace_s:
        return job, []
    sooner = replace(stop, grace_s=max(0.0, now + grace_s - stop.since))
    return replace(job, stop=sooner), [StopAttempt(job.id, job.attempt, "cancelled", grace_s)]


def _held(job: Job, event: HoldRequested, now: float) -> Job:
    """Its place in the array is free for another: it queues for one when it is released.

    The first hold stands; a person who gives a cause later gives it in the place of the first.
    """
    if job.held is not None:
        if event.cause in (None, job.held.cause) or event.by == SCHEDULER:
            return job
        return replace(job, held=Hold(event.by, event.cause, job.held.since))
    since = now if job.aside_since is None else job.aside_since
    turn = job.throttle is not None
    return replace(job, held=Hold(event.by, event.cause, now), aside_since=since, waits_turn=turn, claim=None)


def _back(job: Job, now: float) -> Job:
    """Back in the queue once nothing keeps it out of it any more. The time that it was set aside made it no older."""
    if job.set_aside or job.aside_since is None:
        return job
    return replace(job, since=now, aside_s=job.aside_s + max(0.0, now - job.aside_since), aside_since=None)


def _dependency_failed(job: Job, event: DependencyFailed, now: float) -> Job:
    words = f"not started: it was to start after {event.words}"
    ended = replace(job, phase=Phase.CANCELLED, since=now, ended_at=now, not_before=None, blocked=False)
    return replace(ended, reason="dependency_failed", message=words)


def _amended(job: Job, terms: Terms) -> Job:
    """It keeps its place by age. Cards were kept for what it asked for, so another request gives them up."""
    return replace(
        job,
        name=terms.name,
        request=_with_floors(terms.request, job.request),
        priority=terms.priority,
        time_limit_s=terms.time_limit_s,
        grace_s=terms.grace_s,
        retries=terms.retries,
        on_oom=terms.on_oom,
        tags=terms.tags,
        learned=job.learned if terms.request.vram == job.request.vram else None,
        claim=job.claim if _with_floors(terms.request, job.request) == job.request else None,
        preemptible=terms.preemptible,
        notice=terms.notice,
    )


def _with_floors(asked: Request, before: Request) -> Request:
    """Where it ran out of memory it does not go back under the same conditions; another amount is another one."""
    return replace(asked, floors=before.floors if asked.vram == before.vram else ())


# --- small parts ----------------------------------------------------------------------


def _with_attempt(job: Job, attempt: Attempt) -> Job:
    return replace(job, attempts=(*job.attempts[:-1], attempt))


def _releasing(job: Job, now: float) -> Job:
    """The ended attempt's memory may still be on its cards: its grants stay until it is gone."""
    grants = tuple(_let_go(grant, now) if grant.attempt == job.attempt else grant for grant in job.grants)
    return replace(job, grants=grants, used_vram_mib=None, overuse=None)


def _let_go(grant: Grant, now: float) -> Grant:
    return replace(grant, state=GrantState.RELEASING, since=now)


def _without_grants_of(job: Job) -> Job:
    return replace(job, grants=tuple(grant for grant in job.grants if grant.attempt != job.attempt))


def _final(job: Job, phase: Phase, now: float, *, at: float) -> Job:
    last = job.attempts[-1]
    return replace(job, phase=phase, since=now, ended_at=at, reason=last.reason, message=last.message)


def _requeued(job: Job, now: float, *, not_before: float | None) -> Job:
    return replace(job, phase=Phase.QUEUED, since=now, not_before=not_before, stop=None)


def _failures(job: Job) -> int:
    """Attempts that count against the retries: those that ran and failed."""
    return sum(attempt.outcome is Outcome.FAILED for attempt in job.attempts)


def _is_cancelled(job: Job) -> bool:
    return _is_stopped_by(job, "cancelled")


def _is_stopped_by(job: Job, reason: str) -> bool:
    return job.stop is not None and job.stop.reason == reason


def _unstarted_words(job: Job) -> tuple[str, str]:
    return "cancelled", _cancelled_by(job.stop.by if job.stop else None) + " before it began"


def _evicted_for(job: Job) -> str:
    """For what it was ended, and how much work is lost with it."""
    stop, since = job.stop, job.attempts[-1].started_at
    whom = None if stop is None else stop.whom or (None if stop.by is None else f"a more urgent job of {stop.by}")
    lost = ""
    if stop is not None and since is not None:
        cards = len(job.attempts[-1].gpus)
        on = "" if cards < 2 else f" on {cards} GPUs"
        lost = (
            f"; the {show_seconds(max(0.0, stop.since - since))} that it had run{on} are lost but for its checkpoints"
        )
    return f"ended to make room for {whom or 'a more urgent job'}{lost}; it is queued again"


def _cancelled_by(who: str | None) -> str:
    return "cancelled" if who is None else f"cancelled by {who}"


def _known(first: float | None, second: float | None) -> float | None:
    return first if first is not None else second


def diagram() -> list[tuple[str, str, str]]:
    """The edges of the phase diagram (from, event, to), without those that change nothing."""
    edges = chain.from_iterable(
        ((phase.value, event.__name__, to.value) for to in targets if to is not phase)
        for (phase, event), targets in TRANSITIONS.items()
    )
    return sorted(edges)
