"""The small indexes over the live jobs, kept in step with them: who is busy, backs off, has a claim or an own place.

One look at the jobs that changed says which indexes it concerns at all. Frozen collections go
in and come out; nothing is decided here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from .asides import Asides
from .model import GrantState, Job, JobId, Phase


@dataclass(slots=True)
class Turns:
    """What the change of some jobs is about; local to one step.

    live, gone  those that the scheduler has something to do with, and the ids of the others.
    busy        in an attempt or with grants.
    waited      whether some wait or did. held: are busy or were. ended: whether an attempt has ended.
    aside       are or were set aside, or are waited for. by_hand: stand where their owner put them, or did.
    """

    ids: list[JobId] = field(default_factory=list)
    live: dict[JobId, Job] = field(default_factory=dict)
    gone: list[JobId] = field(default_factory=list)
    busy: dict[JobId, Job] = field(default_factory=dict)
    releasing: list[JobId] = field(default_factory=list)
    backing_off: list[JobId] = field(default_factory=list)
    claimants: list[JobId] = field(default_factory=list)
    waited: bool = False
    held: bool = False
    ended: bool = False
    aside: bool = False
    by_hand: bool = False


def turns(before: Sequence[Job | None], changed: Sequence[Job], asides: Asides) -> Turns:
    """``before``: the same jobs as they were, None for new ones."""
    found = Turns()
    dependents = asides.dependents
    for was, job in zip(before, changed, strict=True):
        job_id, phase, grants = job.id, job.phase, job.grants
        found.ids.append(job_id)
        if phase.final and not grants:
            found.gone.append(job_id)
        else:
            found.live[job_id] = job
            if grants or phase.active:
                found.busy[job_id] = job
                found.held = True
                for grant in grants:
                    if grant.state is GrantState.RELEASING:
                        found.releasing.append(job_id)
                        break
            if job.not_before is not None:
                found.backing_off.append(job_id)
            if job.claim is not None:
                found.claimants.append(job_id)
        if phase is Phase.QUEUED:
            found.waited = True
        if job.place_at is not None:
            found.by_hand = True
        if job.member is not None or job.after is not None or job.set_aside or (phase.final and job_id in dependents):
            found.aside = True
        if was is not None:
            _was(was, phase, found)
    return found


def _was(was: Job, phase: Phase, found: Turns) -> None:
    """``phase`` is the one that it has come to."""
    if was.phase is Phase.QUEUED:
        found.waited = True
    elif was.phase.active:
        found.held = True
        found.ended = found.ended or not phase.active
    if was.grants:
        found.held = True
    if was.set_aside:
        found.aside = True
    if was.place_at is not None:
        found.by_hand = True


def members(known: frozenset[JobId], changed: Collection[JobId], now_in: Sequence[JobId]) -> frozenset[JobId]:
    """Of those that changed just these belong to it now."""
    if not now_in and (not known or known.isdisjoint(changed)):
        return known
    return known.difference(changed).union(now_in)


def busy_now(known: Mapping[JobId, Job], turned: Turns) -> Mapping[JobId, Job]:
    """The busy jobs, by id in order, so that sums over them come out the same whatever their history."""
    now_in = turned.busy
    joined = {**known, **now_in}
    if len(joined) == len(known) + 1 == len(known) + len(now_in):
        joined = _inserted(known, *now_in.items())
    elif len(joined) > len(known):
        joined = {job_id: joined[job_id] for job_id in sorted(joined)}
    for job_id in turned.ids:
        if job_id not in now_in:
            joined.pop(job_id, None)
    return joined


def _inserted(known: Mapping[JobId, Job], item: tuple[JobId, Job]) -> dict[JobId, Job]:
    ids, jobs = list(known), list(known.values())
    at = bisect_left(ids, item[0])
    ids.insert(at, item[0])
    jobs.insert(at, item[1])
    return dict(zip(ids, jobs, strict=True))


def by_hand_now(
    known: Mapping[str, frozenset[JobId]], before: Sequence[Job | None], changed: Sequence[Job]
) -> Mapping[str, frozenset[JobId]]:
    """By owner, the waiting jobs that were put in an order."""
    left = [job for job in before if job is not None and _is_by_hand(job)]
    joined = [job for job in changed if _is_by_hand(job)]
    if not left and not joined:
        return known
    found: dict[str, set[JobId]] = {job.owner: set(known.get(job.owner, ())) for job in (*left, *joined)}
    for job in left:
        found[job.owner].discard(job.id)
    for job in joined:
        found[job.owner].add(job.id)
    merged = {**known, **{owner: frozenset(ids) for owner, ids in found.items()}}
    return {owner: ids for owner, ids in merged.items() if ids}


def _is_by_hand(job: Job) -> bool:
    return job.phase is Phase.QUEUED and job.place_at is not None
