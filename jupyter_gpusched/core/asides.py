"""Waiting jobs that no policy sees yet: who depends on whom, whose turn it is in an array, who is held.

An index over the jobs of the state, and what follows from a change of some of them: a parent's
end frees or ends those that wait for it, a place in an array lets the next element in. Frozen;
what becomes of a job is ``machine``'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .frozen import replace
from .messages import DependencyFailed, LetIn, Unblocked
from .model import IllegalTransition, Job, JobId, Phase
from .operations import SCHEDULER
from .persistent import Line, Map

Follow = Unblocked | DependencyFailed | LetIn

_NOBODY: Line[JobId] = Line()


class UnknownParent(IllegalTransition):
    """A job is to start after one that is not live and of whose end nothing was said: it may have ended just now."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The live jobs that were submitted together.

    queued    all that wait, set aside or not.
    turns     those that only wait for their turn, by their number.
    throttle  how many may be under way; None = all.
    under_way  those that are in an attempt, or are waiting without being set aside.
    """

    queued: Line[JobId] = _NOBODY
    turns: Line[tuple[int, JobId]] = Line()  # noqa: RUF009  frozen
    throttle: int | None = None
    under_way: int = 0

    @property
    def next_in(self) -> list[JobId]:
        """Whose turn it is now."""
        if self.throttle is None or not self.turns:
            return []
        free = max(0, self.throttle - self.under_way)
        return [job_id for _, (_, job_id) in zip(range(free), self.turns, strict=False)]


@dataclass(frozen=True, slots=True)
class Asides:
    """``dependents``: of a job that has not ended, who waits for it. ``waiting``: all that are set aside, by age."""

    waiting: Line[tuple[float, JobId]] = Line()  # noqa: RUF009  frozen
    dependents: Map[Line[JobId]] = field(default_factory=Map)
    batches: Map[Batch] = field(default_factory=Map)

    def moved(self, before: Sequence[Job | None], after: Sequence[Job], jobs: Mapping[JobId, Job]) -> Asides:
        """The index after some jobs changed. ``jobs``: all live ones, after the change."""
        told = [(was, job) for was, job in zip(before, after, strict=True) if _concerns(was) or _concerns(job)]
        ended = [job.id for job in after if job.phase.final and job.id in self.dependents]
        if not told and not ended:
            return self
        waiting, joining = self.waiting, []
        dependents: dict[JobId, Line[JobId]] = {}
        for was, job in told:
            if _aside(was) != _aside(job):
                at = job.submitted_at, job.id
                if _aside(job):
                    joining.append(at)
                else:
                    waiting = waiting.without_item(at)
            if job.after is not None and _blocked(was) != _blocked(job):
                for parent in job.after.jobs:
                    known = dependents.get(parent, self.dependents.get(parent, _NOBODY))
                    if not _blocked(job):
                        dependents[parent] = known.without_item(job.id) if known else known
                    elif parent in jobs and not jobs[parent].phase.final:
                        dependents[parent] = known.with_item(job.id)
        dependents |= dict.fromkeys(ended, _NOBODY)
        gone = [parent for parent, line in dependents.items() if not line]
        kept = {parent: line for parent, line in dependents.items() if line}
        return Asides(waiting.with_items(joining), self.dependents.changed(kept, gone), self._batches(told))

    def _batches(self, told: Iterable[tuple[Job | None, Job]]) -> Map[Batch]:
        changed: dict[JobId, Batch] = {}
        joining: dict[JobId, list[Job]] = {}
        for was, job in told:
            if job.batch_id is not None:
                known = changed.get(job.batch_id) or self.batches.get(job.batch_id) or Batch(throttle=job.throttle)
                changed[job.batch_id] = _left(known, was)
                joining.setdefault(job.batch_id, []).append(job)
        for batch_id, jobs in joining.items():
            changed[batch_id] = _joined(changed[batch_id], jobs)
        gone = [batch_id for batch_id, batch in changed.items() if not batch.queued and not batch.under_way]
        for batch_id in gone:
            del changed[batch_id]
        return self.batches.changed(changed, gone)


def _concerns(job: Job | None) -> bool:
    return job is not None and (job.member is not None or job.after is not None or job.set_aside)


def _aside(job: Job | None) -> bool:
    return job is not None and job.phase is Phase.QUEUED and job.set_aside


def _blocked(job: Job | None) -> bool:
    return job is not None and job.phase is Phase.QUEUED and job.blocked


def _under_way(job: Job | None) -> bool:
    return job is not None and (job.phase.active or (job.phase is Phase.QUEUED and not job.set_aside))


def _turn(job: Job | None) -> tuple[int, JobId] | None:
    """Its place among those that only wait for their turn."""
    if job is None or job.phase is not Phase.QUEUED or not job.waits_turn or job.blocked or job.held is not None:
        return None
    return job.array_index or 0, job.id


def _left(batch: Batch, job: Job | None) -> Batch:
    if job is None:
        return batch
    turn = _turn(job)
    return replace(
        batch,
        queued=batch.queued.without_item(job.id) if job.phase is Phase.QUEUED else batch.queued,
        turns=batch.turns if turn is None else batch.turns.without_item(turn),
        under_way=batch.under_way - _under_way(job),
    )


def _joined(batch: Batch, jobs: Sequence[Job]) -> Batch:
    turns = [turn for job in jobs if (turn := _turn(job)) is not None]
    return replace(
        batch,
        queued=batch.queued.with_items(job.id for job in jobs if job.phase is Phase.QUEUED),
        turns=batch.turns.with_items(turns),
        under_way=batch.under_way + sum(map(_under_way, jobs)),
    )


# --- at a submission ----------------------------------------------------------------------


def entered(jobs: Sequence[Job], ended: Sequence[Job], live: Mapping[JobId, Job], now: float) -> tuple[Job, ...]:
    """New jobs with what keeps them out of the queue at first. Raises ``UnknownParent``."""
    together = {job.id for job in jobs}
    past = {job.id for job in ended}
    return tuple(_entered(job, together, past, live, now) for job in jobs)


def _entered(job: Job, together: set[JobId], past: set[JobId], live: Mapping[JobId, Job], now: float) -> Job:
    turn, parents = job.throttle is not None, job.after.jobs if job.after is not None else ()
    if not turn and not parents and job.held is None:
        return job
    if any(parent not in live and parent not in together and parent not in past for parent in parents):
        raise UnknownParent(job, entered)
    # Also one whose parents have all ended is blocked for a moment: what follows from that is decided in one place.
    return replace(job, blocked=bool(parents), waits_turn=turn, aside_since=now)


# --- what follows from a change -----------------------------------------------------------


def consequences(
    known: Asides, asides: Asides, changed: Iterable[Job], jobs: Mapping[JobId, Job], ended: Mapping[JobId, Job]
) -> list[Follow]:
    """What becomes of others after some jobs have changed.

    known   the index before the change, which still names those that wait for what has ended now.
    jobs    all live ones.
    ended   jobs that may have ended and left before those that wait for them came.
    """
    found: list[Follow] = []
    batches: dict[JobId, None] = {}
    for job in changed:
        if job.phase.final:
            waiting = (jobs[child] for child in known.dependents.get(job.id, _NOBODY) if child in jobs)
            found += [event for child in waiting if (event := _decided(child, jobs, {**ended, job.id: job}))]
        elif job.phase is Phase.QUEUED and job.blocked and (event := _decided(job, jobs, ended)):
            found.append(event)
        if job.throttle is not None and job.batch_id is not None:
            batches[job.batch_id] = None
    for batch_id in batches:
        batch = asides.batches.get(batch_id)
        found += [LetIn(job_id) for job_id in batch.next_in] if batch is not None else []
    return found


def _decided(child: Job, jobs: Mapping[JobId, Job], ended: Mapping[JobId, Job]) -> Unblocked | DependencyFailed | None:
    """What the ends of its parents mean for a job; None while it has to wait on."""
    if child.after is None or not child.blocked:
        return None
    pending = False
    for parent_id in child.after.jobs:
        parent = ended.get(parent_id) or jobs.get(parent_id)
        if parent is None:  # it has ended before, and as it should have
            continue
        if not parent.phase.final:
            pending = True
        elif child.after.when == "succeeded" and parent.phase is not Phase.SUCCEEDED:
            return DependencyFailed(child.id, parent.id, _how_it_ended(parent))
    return None if pending else Unblocked(child.id)


_ENDED = {
    Phase.SUCCEEDED: "succeeded",
    Phase.FAILED: "failed",
    Phase.CANCELLED: "was cancelled",
    Phase.TIMEOUT: "ran out of time",
    Phase.LOST: "was lost",
}


def _how_it_ended(parent: Job) -> str:
    """``job abcd1234 (train.py), which failed: exit code 1``."""
    why = "" if parent.message is None or parent.phase is Phase.CANCELLED else f": {parent.message}"
    return f"job {parent.id} ({parent.name}), which {_ENDED[parent.phase]}{why}"


# --- in words -----------------------------------------------------------------------------

_NAMED = 3


def words(job: Job, jobs: Mapping[JobId, Job]) -> str | None:
    """Why a waiting job is set aside; None for one that is not."""
    if job.held is not None:
        cause = "" if job.held.cause is None else f": {job.held.cause}"
        of_all = job.held.by == SCHEDULER and job.batch_id is not None  # which holds all of a batch
        target, whom = (job.batch_id, "all of them") if of_all else (job.id, "it")
        how = f"`jupyter gpusched release {target}`, in a notebook `%gpurelease {target}`, lets {whom} go on"
        return f"held by {job.held.by}{cause}; {how}"
    if job.blocked:
        return _parents_words(list(pending(job, jobs)))
    if job.waits_turn:
        return f"waits for its turn: {job.throttle} of array {job.array_id} may run at a time"
    return None


def pending(job: Job, jobs: Mapping[JobId, Job]) -> Iterator[Job]:
    """The parents that have not ended."""
    for parent_id in job.after.jobs if job.after is not None else ():
        parent = jobs.get(parent_id)
        if parent is not None and not parent.phase.final:
            yield parent


def _parents_words(parents: Sequence[Job]) -> str:
    named = ", ".join(f"{parent.id} ({parent.phase.value})" for parent in parents[:_NAMED])
    more = f" and {len(parents) - _NAMED} more" if len(parents) > _NAMED else ""
    return f"waits for job{'s' if len(parents) > 1 else ''} {named}{more}"
