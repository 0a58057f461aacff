"""Whose work is given up so that a more urgent job can start.

Only attempts of jobs that agreed to it (preemptible) and that matter less, those with the
least work lost first, never more work than the other job is worth, and no job more than
``MOST_EVICTIONS`` times, so that no two jobs can push each other out for ever.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from .model import Claim, GpuUuid, Grant, GrantState, Job, JobId, Outcome, Phase, Priority, Request
from .past import begun
from .quantities import Mib
from .room import Offer, Room, could_hold
from .state import State

MOST_EVICTIONS = 2
_RANK = {Priority.LOW: 0, Priority.NORMAL: 1, Priority.HIGH: 2}


@dataclass(frozen=True, slots=True)
class Clearing:
    """Cards that will have room once these jobs, if any, have been ended. ``lost``: MiB times seconds given up."""

    cards: tuple[GpuUuid, ...]
    victims: tuple[JobId, ...]
    lost: float


def clear_for(
    state: State, room: Room, job: Job, now: float, *, worth: float, ended: Collection[JobId] = ()
) -> Clearing | None:
    """The cheapest way to make room for a job by evicting others; None = there is none that is worth it.

    worth  MiB times seconds that may be lost at most.
    ended  jobs whose eviction has been decided already; what they leave is counted on.
    """
    request = job.request
    if request.gpus == 0:
        return None
    choices = []
    moving = bool(ended or state.held.leaving)
    for uuid, offer in room.offers.items():
        if could_hold(offer.card, request, room.settings):
            choice = _on_card(state, offer, job, now, ended, moving=moving)
            if choice is not None:
                choices.append((choice[0], offer.card.gpu.index, uuid, choice[1]))
    if len(choices) < request.gpus:
        return None
    choices.sort(key=lambda choice: choice[:3])
    chosen = choices[: request.gpus]
    lost = sum(cost for cost, *_ in chosen)
    if lost > worth:
        return None
    victims = sorted({victim for *_, found in chosen for victim in found})
    return Clearing(tuple(uuid for _, _, uuid, _ in chosen), tuple(victims), lost)


def keep_cleared(state: State, room: Room, request: Request, claim: Claim, ended: Collection[JobId]) -> Room:
    """The room in which what is free, or will be in a moment, is left to the job for which it is being cleared."""
    offers = dict(room.offers)
    for uuid in claim.gpus:
        if uuid in offers:
            offer = offers[uuid]
            soon = sum(g.promised for g in offer.card.grants if leaving(g, state.jobs[g.job_id], ended))
            left = offer.free + soon if offer.kept is None else min(offer.free + soon, offer.kept)
            alone = request.vram is None or request.exclusive
            offers[uuid] = replace(offer, kept=Mib(0 if alone else left - (request.vram or 0)))
    return replace(room, offers=offers)


def evictions(job: Job) -> int:
    """How often a job has been ended for the sake of others."""
    return sum(attempt.outcome is Outcome.PREEMPTED for attempt in job.attempts)


def leaving(grant: Grant, job: Job, ended: Collection[JobId]) -> bool:
    """Whether the memory of a grant will be free in a moment without anything more being done."""
    return grant.state is GrantState.RELEASING or job.id in ended or job.phase is Phase.STOPPING


def lost_work(job: Job, now: float) -> float:
    since = begun(job.attempts[-1])
    return (0.0 if since is None else now - since) * sum(grant.promised for grant in job.attempts[-1].gpus)


def _on_card(
    state: State, offer: Offer, job: Job, now: float, ended: Collection[JobId], *, moving: bool
) -> tuple[float, list[JobId]] | None:
    """What must be ended on one card, and the work lost by it; None = not even that would be enough.

    moving  whether anything at all is about to leave.
    """
    request = job.request
    level = _RANK[job.priority]
    alone = request.whole_cards or request.exclusive or offer.closed
    grants = offer.card.grants
    soon = [grant for grant in grants if leaving(grant, state.busy[grant.job_id], ended)] if moving else []
    if offer.fresh and alone:
        return None
    free_soon = offer.free + sum(grant.promised for grant in soon)
    need = (request.vram or 1) - (free_soon if offer.kept is None else min(free_soon, offer.kept))
    staying = [grant.job_id for grant in grants if grant not in soon] if soon else [grant.job_id for grant in grants]
    asked = (state.busy[job_id] for job_id in staying if job_id in state.held.evictable)
    victims = sorted(
        (other for other in asked if _may_go(other, level)), key=lambda other: (lost_work(other, now), other.id)
    )
    if alone:
        if len(victims) < len(staying):
            return None
        return sum(lost_work(other, now) for other in victims), [other.id for other in victims]
    chosen: list[JobId] = []
    lost = 0.0
    for other in victims:
        if need <= 0:
            break
        chosen.append(other.id)
        lost += lost_work(other, now)
        need -= sum(grant.promised for grant in other.grants if grant.gpu == offer.card.gpu.uuid)
    return (lost, chosen) if need <= 0 else None


def _may_go(other: Job, level: int) -> bool:
    return (
        other.phase in {Phase.STARTING, Phase.RUNNING}
        and other.may_be_evicted
        and _RANK[other.priority] < level
        and evictions(other) < MOST_EVICTIONS
    )
