"""Whose work is given up so that a more urgent job can start.

Only attempts of jobs that agreed to it (preemptible) and that matter less, those with the
least work lost first, never more work than the other job is worth, and no job more than
``MOST_EVICTIONS`` times, so that no two jobs can push each other out for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from .compute import freed_by
from .frozen import replace
from .ledger import asked
from .model import Claim, GpuUuid, Grant, GrantState, Job, JobId, Outcome, Phase, Priority, Request
from .past import begun
from .quantities import Mib
from .room import Offer, Room, could_hold, expected_compute, host_left
from .state import State

MOST_EVICTIONS = 2
_RANK = {Priority.LOW: 0, Priority.NORMAL: 1, Priority.HIGH: 2}


@dataclass(frozen=True, slots=True)
class Clearing:
    """Cards that will have room once these jobs, if any, have been ended."""

    cards: tuple[GpuUuid, ...]
    victims: tuple[JobId, ...]


def clear_for(
    state: State,
    room: Room,
    job: Job,
    now: float,
    *,
    worth: float,
    ended: Collection[JobId] = (),
    compute: float | None = None,
) -> Clearing | None:
    """The cheapest way to make room for a job by evicting others; None = there is none that is worth it.

    worth    MiB times seconds that may be lost at most.
    ended    jobs whose eviction has been decided already; what they leave is counted on.
    compute  the share of a card's processors that the job is expected to use; None = unknown.
    """
    request = job.request
    if request.gpus == 0:
        return None
    choices = []
    moving = bool(ended or state.held.leaving)
    for uuid, offer in room.offers.items():
        if could_hold(offer.card, request, room.settings):
            choice = _on_card(state, offer, job, now, ended, moving=moving, compute=compute)
            if choice is not None:
                choices.append((choice[0], offer.card.gpu.index, uuid, choice[1]))
    if len(choices) < request.gpus:
        return None
    choices.sort(key=lambda choice: choice[:3])
    chosen = choices[: request.gpus]
    for_host = _on_host(state, room, job, now, ended)
    if for_host is None or sum(cost for cost, *_ in chosen) + sum(lost_work(other, now) for other in for_host) > worth:
        return None
    victims = {victim for *_, found in chosen for victim in found}
    spare = [other.id for other in for_host if other.id not in victims]
    victims.update(spare)
    for other_id in reversed(spare):  # those on the cards may hold enough of it
        if _host_has(state, room, request, ended, fresh=victims - {other_id}):
            victims.remove(other_id)
    return Clearing(tuple(uuid for _, _, uuid, _ in chosen), tuple(sorted(victims)))


def keep_cleared(
    state: State,
    room: Room,
    request: Request,
    claim: Claim,
    ended: Collection[JobId],
    *,
    fresh: Collection[JobId] = (),
) -> Room:
    """The room in which what is free, or will be in a moment, is left to the job for which it is being cleared.

    fresh  those of the ended that have been ended for this very job: what is kept for others knows nothing of them.
    """
    offers = dict(room.offers)
    for uuid in claim.gpus:
        if uuid in offers:
            offer = offers[uuid]
            soon = sum(g.promised for g in offer.card.grants if leaving(g, state.jobs[g.job_id], ended))
            left = offer.free + soon
            if offer.kept is not None:
                more = sum(grant.promised for grant in offer.card.grants if grant.job_id in fresh)
                left = min(left, offer.kept + more)
            alone = request.vram is None or request.exclusive
            offers[uuid] = replace(offer, kept=Mib(0 if alone else left - (request.vram or 0)))
    cpus, memory = _host_soon(state, room, ended, fresh=fresh)
    return replace(
        room,
        offers=offers,
        kept_cpus=room.kept_cpus if request.cpus is None else cpus - request.cpus,
        kept_memory=room.kept_memory if request.memory is None else memory - request.memory,
    )


def evictions(job: Job) -> int:
    """How often a job has been ended for the sake of others."""
    return sum(attempt.outcome is Outcome.PREEMPTED for attempt in job.attempts)


def leaving(grant: Grant, job: Job, ended: Collection[JobId]) -> bool:
    """Whether the memory of a grant will be free in a moment without anything more being done."""
    return grant.state is GrantState.RELEASING or job.id in ended or job.phase is Phase.STOPPING


def lost_work(job: Job, now: float) -> float:
    since = begun(job.attempts[-1])
    return (0.0 if since is None else now - since) * sum(grant.promised for grant in job.attempts[-1].gpus)


def being_cleared(state: State, room: Room, request: Request, claim: Claim, ended: Collection[JobId]) -> bool:
    """Whether something that the job lacks will be free in a moment: on its cards, or of the host."""
    cards = (room.cards[uuid] for uuid in claim.gpus if uuid in room.cards)
    if any(leaving(grant, state.busy[grant.job_id], ended) for card in cards for grant in card.grants):
        return True
    cpus, memory = host_left(room)
    short = (request.cpus or 0) > cpus or (request.memory or 0) > memory
    return short and _host_has(state, room, request, ended)


def _on_host(state: State, room: Room, job: Job, now: float, ended: Collection[JobId]) -> list[Job] | None:
    """Jobs on cards that must be ended so that there are CPUs and host memory, the cheapest; None = not enough."""
    if _host_has(state, room, job.request, ended):
        return []
    agreed = [state.busy[job_id] for job_id in state.held.evictable if job_id not in ended]
    level = _RANK[job.priority]
    victims = [other for other in agreed if other.grants and _may_go(other, level)]
    chosen: list[Job] = []
    for other in sorted(victims, key=lambda other: (lost_work(other, now), other.id)):
        if other.request.cpus or other.request.memory:
            chosen.append(other)
            if _host_has(state, room, job.request, ended, fresh=[other.id for other in chosen]):
                return chosen
    return None


def _host_has(
    state: State, room: Room, request: Request, ended: Collection[JobId], *, fresh: Collection[JobId] = ()
) -> bool:
    cpus, memory = _host_soon(state, room, ended, fresh=fresh)
    return (request.cpus or 0) <= cpus and (request.memory or 0) <= memory


def _host_soon(state: State, room: Room, ended: Collection[JobId], *, fresh: Collection[JobId]) -> tuple[int, int]:
    """CPUs and MiB of host memory that there will be once who leaves has left, ``fresh`` among them."""
    going = {job_id for job_id in (*state.held.leaving, *ended) if state.busy[job_id].phase.active}
    soon_cpus, soon_memory = asked(state.busy[job_id] for job_id in sorted(going | set(fresh)))
    cpus, memory = room.cpus + soon_cpus, room.memory + soon_memory
    more_cpus, more_memory = asked(state.busy[job_id] for job_id in fresh)
    if room.kept_cpus is not None:
        cpus = min(cpus, room.kept_cpus + more_cpus)
    if room.kept_memory is not None:
        memory = min(memory, room.kept_memory + more_memory)
    return cpus, memory


def _on_card(
    state: State, offer: Offer, job: Job, now: float, ended: Collection[JobId], *, moving: bool, compute: float | None
) -> tuple[float, list[JobId]] | None:
    """What must be ended on one card, and the work lost by it; None = not even that would be enough.

    moving  whether anything at all is about to leave.
    """
    request = job.request
    level = _RANK[job.priority]
    whole = request.whole_cards or request.exclusive
    if whole and (offer.fresh or offer.kept is not None):
        return None
    grants = offer.card.grants
    soon = [grant for grant in grants if leaving(grant, state.busy[grant.job_id], ended)] if moving else []
    free_soon = offer.free + sum(grant.promised for grant in soon)
    need = (request.vram or 1) - (free_soon if offer.kept is None else min(free_soon, offer.kept))
    staying = [grant.job_id for grant in grants if grant not in soon] if soon else [grant.job_id for grant in grants]
    everybody = whole or offer.closed
    busy = _too_busy_by(state, offer, request, (grant.job_id for grant in soon), compute)
    agreed = (state.busy[job_id] for job_id in staying if job_id in state.held.evictable)
    victims = sorted(
        (other for other in agreed if _may_go(other, level)), key=lambda other: (lost_work(other, now), other.id)
    )
    chosen: list[JobId] = []
    lost = 0.0
    for other in victims:
        if need <= 0 and busy <= 0.0 and not everybody:
            break
        chosen.append(other.id)
        lost += lost_work(other, now)
        need -= sum(grant.promised for grant in other.grants if grant.gpu == offer.card.gpu.uuid)
        busy -= freed_by(other, offer.card.gpu, state.past.history)
    left = len(staying) - len(chosen) + bool(offer.fresh)
    if need > 0 or (left and (everybody or busy > 0.0)):
        return None
    return lost, chosen


def _too_busy_by(
    state: State, offer: Offer, request: Request, leaving: Iterable[JobId], compute: float | None
) -> float:
    """By how much the card's processors would be asked too much if the job joined who stays; 0 or less = not at all."""
    limit = state.settings.compute_limit
    if offer.compute is None or not limit:
        return 0.0
    freed = sum(freed_by(state.busy[job_id], offer.card.gpu, state.past.history) for job_id in leaving)
    return offer.compute - freed + expected_compute(offer, request, compute) - limit


def _may_go(other: Job, level: int) -> bool:
    return (
        other.phase in {Phase.STARTING, Phase.RUNNING}
        and other.may_be_evicted
        and _RANK[other.priority] < level
        and evictions(other) < MOST_EVICTIONS
    )
