"""What a scheduling pass can still give away, and whether a request fits into it.

``Room`` is the ledger seen by someone who wants to start a job: per card what is free and,
where cards are kept for a waiting job (a claim), how much of it others may take. Giving
something away leads to a new room. Who is asked first is ``policy``'s.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .compute import demand_on
from .frozen import quick, replace
from .ledger import Card, asked, read_books, serves
from .model import Claim, Floor, GpuUuid, Grant, GrantState, Job, Request, Settings
from .quantities import Mib
from .state import State


@quick
@dataclass(frozen=True, slots=True)
class Offer:
    """What one usable card has for the next job.

    free       MiB that may be promised now (A).
    kept       where the card is claimed: the most that anybody but the claimant may be promised.
    kept_long  the same for those only who would run beyond the moment the claim waits for.
    fresh      MiB promised in this pass.
    empty      no grant of ours is on it.
    closed     an exclusive job is on it: nobody joins.
    compute    share of its processors that its jobs can keep busy together; None = unknown.
    """

    card: Card
    free: Mib
    kept: Mib | None = None
    kept_long: Mib | None = None
    fresh: int = 0
    empty: bool = True
    closed: bool = False
    compute: float | None = None

    def limit(self, *, brief: bool) -> Mib:
        """MiB that the next job may be promised, as far as memory goes."""
        limit = self.free if self.kept is None else min(self.free, self.kept)
        return limit if brief or self.kept_long is None else min(limit, self.kept_long)

    def claimed(self, *, brief: bool) -> bool:
        return self.kept is not None or (self.kept_long is not None and not brief)


@quick
@dataclass(frozen=True, slots=True)
class Room:
    """The machine during one pass.

    kept_cpus, kept_memory  what is kept for a claimant leaves so much to others.
    brief_until             who is expected to end by then may take what is kept only from longer jobs.
    """

    settings: Settings
    cards: Mapping[GpuUuid, Card]
    offers: Mapping[GpuUuid, Offer]
    cpus: int
    memory: int
    kept_cpus: int | None = None
    kept_memory: int | None = None
    brief_until: float = -math.inf


Fit = tuple[tuple[Offer, Mib], ...]
"""Cards for a job, each with the MiB to promise; empty for a job without GPUs."""


def open_room(state: State, now: float) -> Room:
    """The room as the state has it; nothing is kept for anybody yet."""
    books = read_books(state, now)
    offers = {
        uuid: _offer(state, card, card.available)
        for uuid, card in books.cards.items()
        if card.obstacle is None and card.available is not None
    }
    return Room(state.settings, books.cards, offers, books.cpus, books.memory)


def _offer(state: State, card: Card, available: Mib) -> Offer:
    """As it was last, if the card is the same and does not show how busy it is."""
    measured, sums = card.gpu.utilization_pct is not None, state.held.sums
    known: Offer | None = None if measured else sums.get(("offer", card.gpu.uuid))
    if known is not None and known.card is card and known.compute is None:
        return known
    offer = Offer(
        card,
        available,
        empty=not card.grants,
        closed=card.exclusive,
        compute=demand_on(card.gpu, card.grants, state.busy, state.past.history) if measured else None,
    )
    sums["offer", card.gpu.uuid] = offer
    return offer


def keep(room: Room, request: Request, claim: Claim, started: Iterable[Job] = ()) -> Room:
    """The room in which others must leave beside them what the claimant waits for.

    What was on the machine when the claim began will end; what has started since counts
    together with the claimed amount. So the claimant starts when the former has ended.
    """
    offers = dict(room.offers)
    for uuid in claim.gpus:
        if uuid in offers:
            offers[uuid] = replace(offers[uuid], kept=_kept(offers[uuid], request, claim))
    cpus, memory = asked(started)
    settings = room.settings
    return replace(
        room,
        offers=offers,
        kept_cpus=_less_of(room.kept_cpus, settings.cpus - cpus, request.cpus),
        kept_memory=_less_of(room.kept_memory, settings.memory - memory, request.memory),
    )


def find(room: Room, request: Request, *, ends_at: float = math.inf, compute: float | None = None) -> Fit | None:
    """Cards on which the request fits now, all of them or none: the preferred, then the tightest.

    ends_at  when the job is expected to end, should it start now.
    compute  the share of a card's processors that it is expected to use; None = unknown.
    Ties fall to the index, then to the UUID: same input, same answer.
    """
    brief = ends_at <= room.brief_until
    if not _host_has(room, request):
        return None
    if request.gpus == 0:
        return ()
    fits = []
    for uuid, offer in room.offers.items():
        promise = promise_on(offer, request, room.settings, brief=brief, compute=compute)
        if promise is not None:
            fits.append(((not prefers(request, offer.card), offer.free, offer.card.gpu.index, uuid), offer, promise))
    if len(fits) < request.gpus:
        return None
    fits.sort(key=lambda fit: fit[0])
    return tuple((offer, promise) for _, offer, promise in fits[: request.gpus])


def promise_on(
    offer: Offer, request: Request, settings: Settings, *, brief: bool = False, compute: float | None = None
) -> Mib | None:
    """The MiB that this card would promise to the request now; None = it does not fit."""
    if request.vram is not None and request.vram > offer.free:
        return None
    if offer.closed or not serves(offer.card.gpu, request) or too_busy(offer, request, settings, compute):
        return None
    if (request.whole_cards or request.exclusive) and (not offer.empty or offer.claimed(brief=brief)):
        return None
    if (floor := floor_on(request, offer.card)) is not None and offer.free < floor.least:
        return None
    if request.vram is None:
        return offer.free if offer.free > 0 and _little_foreign(offer.card, settings) else None
    return request.vram if request.vram <= offer.limit(brief=brief) else None


def too_busy(offer: Offer, request: Request, settings: Settings, compute: float | None) -> bool:
    """Whether the card's jobs would be more than its processors can carry together."""
    if offer.compute is None or offer.empty or not settings.compute_limit:
        return False
    return offer.compute + expected_compute(offer, request, compute) > settings.compute_limit


def expected_compute(offer: Offer, request: Request, compute: float | None) -> float:
    """The share of the card's processors that a job is taken to use; one of which nothing is known, by its memory."""
    if compute is not None:
        return compute
    return max(0.3, (request.vram or offer.free) / max(1, offer.card.gpu.total))


def take(room: Room, request: Request, grants: Iterable[Grant], *, compute: float | None = None) -> Room:
    """The room after these grants were given."""
    offers = dict(room.offers)
    for grant in grants:
        offer = offers[grant.gpu]
        more = None if offer.compute is None else offer.compute + expected_compute(offer, request, compute)
        offers[grant.gpu] = replace(_less(offer, grant), compute=more)
    cpus, memory = request.cpus or 0, request.memory or 0
    return replace(
        room,
        offers=offers,
        cpus=room.cpus - cpus,
        memory=room.memory - memory,
        kept_cpus=None if room.kept_cpus is None else room.kept_cpus - cpus,
        kept_memory=None if room.kept_memory is None else room.kept_memory - memory,
    )


def without_claim(room: Room) -> Room:
    offers = {uuid: replace(offer, kept=None, kept_long=None) for uuid, offer in room.offers.items()}
    return replace(room, offers=offers, kept_cpus=None, kept_memory=None, brief_until=-math.inf)


def grants_for(job: Job, fit: Fit, now: float) -> tuple[Grant, ...]:
    exclusive = job.request.exclusive or job.request.whole_cards
    return tuple(
        Grant(
            job_id=job.id,
            attempt=job.attempt + 1,
            gpu=offer.card.gpu.uuid,
            index=offer.card.gpu.index,
            gpu_name=offer.card.gpu.name,
            promised=promise,
            exclusive=exclusive,
            state=GrantState.HELD,
            since=now,
            total=offer.card.gpu.total,
        )
        for offer, promise in fit
    )


# --- claims -----------------------------------------------------------------------------


def choose_claim(room: Room, request: Request, now: float) -> Claim | None:
    """The cards on which the request will fit soonest, as far as is known: where least must be freed.

    None where too few cards could hold it even when all our jobs on them had ended.
    """
    hopeful = sorted(
        (_to_be_freed(offer, request), not prefers(request, offer.card), offer.card.gpu.index, uuid)
        for uuid, offer in room.offers.items()
        if could_hold(offer.card, request, room.settings)
    )
    if len(hopeful) < request.gpus:
        return None
    return Claim(tuple(uuid for *_, uuid in hopeful[: request.gpus]), now)


def still_good(room: Room, request: Request, claim: Claim) -> bool:
    """Whether waiting for the claimed cards makes sense. A card that was not read lately may come back."""
    return all(_may_serve(room, room.cards.get(uuid), request) for uuid in claim.gpus)


def could_hold(card: Card, request: Request, settings: Settings) -> bool:
    """Whether the request fits on the card once all our jobs there have ended; foreign use stays."""
    if not serves(card.gpu, request) or card.foreign is None:
        return False
    if floor_on(request, card) is not None:  # what it waits for there is more than a claim can keep for it
        return False
    if request.vram is None:
        return _little_foreign(card, settings)
    return request.vram <= card.usable - card.foreign


def floor_on(request: Request, card: Card) -> Floor | None:
    """What is known of the job's running out of memory on this card."""
    return next((floor for floor in request.floors if floor.gpu == card.gpu.uuid), None)


def prefers(request: Request, card: Card) -> bool:
    wishes = request.preferred_gpus
    return card.gpu.uuid in wishes or str(card.gpu.index) in wishes


def _may_serve(room: Room, card: Card | None, request: Request) -> bool:
    if card is None or card.gpu.health in {"lost", "quarantined"}:
        return False
    return card.obstacle is not None or could_hold(card, request, room.settings)


def _to_be_freed(offer: Offer, request: Request) -> int:
    """MiB of ours that must go before the request fits on the card."""
    if request.whole_cards or request.exclusive or offer.closed:
        return offer.card.promised + offer.fresh
    return max(0, (request.vram or 0) - offer.free)


def _kept(offer: Offer, request: Request, claim: Claim) -> Mib:
    """What others may still be promised on a claimed card."""
    card = offer.card
    if request.vram is None or request.exclusive or card.foreign is None:
        return Mib(0)
    since = sum(grant.promised for grant in card.grants if grant.since >= claim.since)
    left = card.usable - card.foreign - since - offer.fresh
    return Mib((left if offer.kept is None else min(left, offer.kept)) - request.vram)


def _less_of(kept: int | None, left: int, wanted: int | None) -> int | None:
    """What others may have of CPUs or host memory once so much more is kept."""
    if wanted is None:
        return kept
    return (left if kept is None else min(left, kept)) - wanted


def started_since(state: State, claim: Claim) -> list[Job]:
    return [job for job in state.busy.values() if job.phase.active and placed_at(job) >= claim.since]


def placed_at(job: Job) -> float:
    """When the current attempt was given its place; for a job without GPUs a moment later at most."""
    last = job.attempts[-1]
    if last.gpus:
        return last.gpus[0].since
    return last.started_at if last.started_at is not None else job.since


# --- small parts ------------------------------------------------------------------------


def _less(offer: Offer, grant: Grant) -> Offer:
    return replace(
        offer,
        free=Mib(offer.free - grant.promised),
        kept=None if offer.kept is None else Mib(offer.kept - grant.promised),
        kept_long=None if offer.kept_long is None else Mib(offer.kept_long - grant.promised),
        fresh=offer.fresh + grant.promised,
        empty=False,
        closed=grant.exclusive,
    )


def _little_foreign(card: Card, settings: Settings) -> bool:
    return card.foreign is not None and card.foreign <= settings.foreign_limit


def _host_has(room: Room, request: Request) -> bool:
    cpus, memory = host_left(room)
    return (request.cpus is None or request.cpus <= cpus) and (request.memory is None or request.memory <= memory)


def host_left(room: Room) -> tuple[int, int]:
    """CPUs and MiB of host memory that the next job may be given."""
    cpus = room.cpus if room.kept_cpus is None else min(room.cpus, room.kept_cpus)
    memory = room.memory if room.kept_memory is None else min(room.memory, room.kept_memory)
    return cpus, memory
