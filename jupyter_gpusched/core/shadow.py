"""When, and on which cards, the place of a waiting job will be complete, by expected run times.

Looks ahead over the ends of what runs now; nothing new is started in it. Others may pass the
waiting job if they end before that moment, or leave its place free at that moment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter

from .frozen import replace
from .history import History, Outlook, Person
from .model import GpuUuid, Grant, Job, Phase, Request
from .past import begun
from .quantities import Mib
from .queue import kin_of
from .room import Offer, Room, could_hold
from .state import State

QUANTILE = 0.6
"""Of such jobs that have run as long already, this part has ended by the expected moment."""


@dataclass(frozen=True, slots=True)
class Shadow:
    """``at``: when the place is complete. The cards, and what is left beside it there and of the host then."""

    at: float
    cards: tuple[GpuUuid, ...]
    left: Mapping[GpuUuid, int]
    cpus: int
    memory: int


@dataclass(slots=True)
class _Ahead:
    """The machine at some moment ahead; local to one look."""

    free: dict[GpuUuid, int]
    jobs: dict[GpuUuid, int]
    cpus: int
    memory: int


def shadow(
    state: State,
    room: Room,
    request: Request,
    now: float,
    *,
    preferred: Collection[GpuUuid] = (),
    placed: Iterable[tuple[Job, tuple[Grant, ...]]] = (),
) -> Shadow | None:
    """The earliest moment at which the request fits, or None if the ends of our jobs will not make it fit.

    preferred  cards to keep to where the choice is free.
    placed     what this very pass has started.
    """
    suited = {uuid: o for uuid, o in room.offers.items() if could_hold(o.card, request, room.settings)}
    ahead = _Ahead(
        free={uuid: offer.free for uuid, offer in suited.items()},
        jobs={uuid: len(offer.card.grants) for uuid, offer in suited.items()},
        cpus=room.cpus,
        memory=room.memory,
    )
    ends = _ends(state, now)
    for job, grants in placed:
        ends.append((now + state.past.history.remaining_s(kin_of(job), 0.0, QUANTILE), job.id, grants, job))
        for grant in grants:
            if grant.gpu in ahead.jobs:
                ahead.jobs[grant.gpu] += 1
    ends.sort(key=_WHEN)
    ready = {uuid for uuid in suited if _is_ready(ahead, suited[uuid], uuid, request)}
    at, number = now, 0
    while len(ready) < request.gpus or not _host_has(ahead, request):
        if number >= len(ends):
            return None
        at = ends[number][0]
        while number < len(ends) and ends[number][0] <= at:
            for uuid in _let_go(ahead, ends[number]):
                if uuid not in ready and _is_ready(ahead, suited[uuid], uuid, request):
                    ready.add(uuid)
            number += 1
    best = sorted(ready, key=lambda uuid: (uuid not in preferred, ahead.free[uuid], suited[uuid].card.gpu.index, uuid))
    cards = tuple(best[: request.gpus])
    left = {uuid: 0 if _alone(request) else ahead.free[uuid] - (request.vram or 0) for uuid in cards}
    return Shadow(at, cards, left, ahead.cpus - (request.cpus or 0), ahead.memory - (request.memory or 0))


def kept_softly(room: Room, request: Request, found: Shadow, due: float | None) -> Room:
    """The room in which jobs that would run beyond that moment leave the place free.

    due  what has started in the meantime must not put the moment off for ever: it counts no later than this.
    """
    offers = dict(room.offers)
    for uuid in found.cards:
        offers[uuid] = replace(offers[uuid], kept_long=Mib(found.left[uuid]))
    cpus = room.kept_cpus if request.cpus is None else found.cpus
    memory = room.kept_memory if request.memory is None else found.memory
    return replace(
        room,
        offers=offers,
        kept_cpus=cpus,
        kept_memory=memory,
        brief_until=found.at if due is None else min(found.at, due),
    )


_End = tuple[float, str, tuple[Grant, ...], Job]
_WHEN = itemgetter(0, 1)

_SPARE = 64
"""So many outlooks of jobs that have gone are kept before they are swept out."""


def _ends(state: State, now: float) -> list[_End]:
    """When what is on the machine will have gone, as far as is known; in no order."""
    history, outlooks, busy = state.past.history, state.held.outlooks, state.busy
    everybody, people = history.runs, _People(history)
    ends: list[_End] = []
    for job_id, job in busy.items():
        was = outlooks.get(job_id)
        if was is not None and was[0] is job:  # of a job that goes on as it did: nearly all, so it is told right here
            _, before, since = was
            elapsed_s = 0.0 if since is None else now - since
            total_s = before.total_s
            if (
                total_s is not None
                and before.since_s <= elapsed_s < before.until_s
                and before.person is people[job.owner]
                and (before.of_all is None or before.of_all is everybody)
            ):
                seconds, limit_s = total_s - elapsed_s, before.limit_s
                if limit_s is not None and limit_s > elapsed_s:
                    seconds = min(seconds, max(limit_s - elapsed_s, 60.0))
                ends.append((now + (seconds if seconds > 20.0 else 20.0), job_id, job.grants, job))  # noqa: FURB136
                continue
        ends.append((_end_of(job, was, people[job.owner], state, now), job_id, job.grants, job))
    if len(outlooks) > 2 * len(busy) + _SPARE:
        kept = {job_id: outlooks[job_id] for job_id in busy if job_id in outlooks}
        outlooks.clear()
        outlooks.update(kept)
    return ends


class _People(dict[str, Person]):
    """By owner, each looked up once."""

    def __init__(self, history: History) -> None:
        self.history = history

    def __missing__(self, owner: str) -> Person:
        person = self[owner] = self.history.person(owner)
        return person


def _end_of(job: Job, was: tuple[Job, Outlook, float | None] | None, person: Person, state: State, now: float) -> float:
    """As for a job of which nothing is known yet, or no longer; what is found is remembered."""
    history = state.past.history
    if job.phase is Phase.STOPPING or not job.phase.active:
        return now + 1.0 if job.stop is None else max(now + 1.0, job.stop.since + job.stop.grace_s)
    before, since = was[1:] if was is not None and was[0] is job else (None, begun(job.attempts[-1]))
    elapsed_s = 0.0 if since is None else now - since
    if before is not None and before.total_s is None and history.still_holds(before, person, elapsed_s):
        return now + before.remaining_s(elapsed_s)
    outlook = history.outlook(kin_of(job), elapsed_s, QUANTILE, before)
    state.held.outlooks[job.id] = job, outlook, since
    return now + outlook.remaining_s(elapsed_s)


def _let_go(ahead: _Ahead, end: _End) -> list[GpuUuid]:
    """Returns the cards on which something has become free."""
    _, _, grants, job = end
    cards = []
    for grant in grants:
        if grant.gpu in ahead.free:
            ahead.free[grant.gpu] += grant.promised
            ahead.jobs[grant.gpu] -= 1
            cards.append(grant.gpu)
    if job.phase.active or job.phase is Phase.QUEUED:
        ahead.cpus += job.request.cpus or 0
        ahead.memory += job.request.memory or 0
    return cards


def _host_has(ahead: _Ahead, request: Request) -> bool:
    return (request.cpus or 0) <= ahead.cpus and (request.memory or 0) <= ahead.memory


def _is_ready(ahead: _Ahead, offer: Offer, uuid: GpuUuid, request: Request) -> bool:
    """Whether the card will do then, and from then on. An exclusive job keeps its card closed until it has gone."""
    if ahead.jobs[uuid] and (offer.closed or _alone(request)):
        return False
    return ahead.free[uuid] >= (request.vram or (1 if _alone(request) else 0))


def _alone(request: Request) -> bool:
    return request.whole_cards or request.exclusive
