"""Who starts now: one pass over the waiting jobs, as a pure function of the state.

Best fit over the whole queue in rank order: a job that does not fit never blocks a smaller
one behind it. So that a wide or large job cannot be passed for ever, one job at a time has
a claim: what starts after the claim must leave it its place. Whether something fits is
``room``'s; nothing here changes a job.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from .messages import Claimed, Placed
from .model import Job, Request
from .room import Room, choose_claim, find, grants_for, keep, open_room, still_good, take, without_claim
from .state import Rank, RequestClass, State

Decision = Placed | Claimed


def plan(state: State, now: float) -> tuple[Decision, ...]:
    """The jobs that start now and the claim that is made or given up, in the order to apply them.

    Never over-commits; several GPUs at once or none; the same state gives the same plan.
    """
    if not state.queue:
        return ()
    room = open_room(state, now)
    decisions: list[Decision] = []
    claimed = _serve_claimant(state, room, now, decisions)
    if claimed is not None:
        return (*decisions, *_pass(state, claimed, now, claimant=state.claimant, may_claim=False))
    room = without_claim(room)
    for decision in decisions:
        if isinstance(decision, Placed):
            room = take(room, state.jobs[decision.job_id].request, decision.grants)
    return (*decisions, *_pass(state, room, now, claimant=_placed_id(decisions), may_claim=True))


def rests(job: Job, now: float) -> bool:
    """Whether a failed attempt was so recent that the job is not tried again yet."""
    return job.not_before is not None and job.not_before > now


def overdue_at(job: Job, claim_after_s: float) -> float:
    """From when on cards may be kept for a waiting job."""
    return max(job.since, job.not_before or 0.0) + claim_after_s


def _serve_claimant(state: State, room: Room, now: float, decisions: list[Decision]) -> Room | None:
    """Start the job that cards are kept for, or see to its claim.

    Returns the room in which the claim stands, or None when nothing is kept any more.
    """
    if state.claimant is None:
        return None
    job = state.jobs[state.claimant]
    fit = find(room, job.request, claimant=True)
    if fit is not None:
        decisions.append(Placed(job.id, grants_for(job, fit, now)))
        return None
    if job.claim is not None and still_good(room, job.request, job.claim):
        return room
    renewed = choose_claim(without_claim(room), job.request, now)
    decisions.append(Claimed(job.id, renewed))
    return None if renewed is None else keep(without_claim(room), job.request, renewed)


def _placed_id(decisions: Sequence[Decision]) -> str | None:
    return next((decision.job_id for decision in decisions if isinstance(decision, Placed)), None)


_Place = tuple[Rank, RequestClass, int]
"""A job's rank, its class, and where it stands in the line of its class."""


def _pass(state: State, room: Room, now: float, *, claimant: str | None, may_claim: bool) -> list[Decision]:
    """Go through the lines of all classes in rank order.

    Room only shrinks during a pass, so a request that failed once is not looked at again,
    but for the job of its line that may make a claim.
    """
    decisions: list[Decision] = []
    failed: set[Request] = set()
    heads: list[_Place] = [(line[0], request_class, 0) for request_class, line in state.queue.items()]
    heapify(heads)
    while heads:
        place = heappop(heads)
        (_, job_id), request_class, _ = place
        job = state.jobs[job_id]
        if request_class.request in failed:
            if may_claim and _overdue(state, job, now):
                claim = choose_claim(room, job.request, now)
                if claim is not None:
                    decisions.append(Claimed(job.id, claim))
                    room, may_claim = keep(room, job.request, claim), False
            elif may_claim:
                _push(heads, _next_overdue(state, place, now))
            continue
        if job_id != claimant and not rests(job, now):
            fit = find(room, job.request)
            if fit is None:
                failed.add(job.request)
                _push(heads, _next_overdue(state, place, now) if may_claim else None)
                continue
            grants = grants_for(job, fit, now)
            decisions.append(Placed(job_id, grants))
            room = take(room, job.request, grants)
        _push(heads, _behind(state, place))
    return decisions


def _overdue(state: State, job: Job, now: float) -> bool:
    return not rests(job, now) and now >= overdue_at(job, state.settings.claim_after_s)


def _next_overdue(state: State, place: _Place, now: float) -> _Place | None:
    """The first job, from here on in the same line, that has waited long enough for a claim.

    A line is in the order of submission but for jobs whose owner changed it, so the search ends at
    the first other one that is too young.
    """
    _, request_class, start = place
    line = state.queue[request_class]
    for at in range(start, len(line)):
        job = state.jobs[line[at].job_id]
        if job.place_at is None and job.submitted_at + state.settings.claim_after_s > now:
            return None
        if _overdue(state, job, now):
            return line[at], request_class, at
    return None


def _behind(state: State, place: _Place) -> _Place | None:
    _, request_class, at = place
    line = state.queue[request_class]
    return (line[at + 1], request_class, at + 1) if at + 1 < len(line) else None


def _push(heads: list[_Place], place: _Place | None) -> None:
    if place is not None:
        heappush(heads, place)
