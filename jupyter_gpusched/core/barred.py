"""What is said of the reservations that keep a waiting job from cards, and of the way past those to come.

Named is what holds it up: a window that has begun; one to come only where the job could start but
for that, so that no advice is given that would not help. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .booking import reserved_for
from .ledger import serves
from .model import GpuUuid, Job
from .operations import Reservation
from .quantities import show_seconds
from .reservations import NONE, Gates, seen_past
from .room import Room, find, promise_on

Cause = tuple[Reservation, frozenset[GpuUuid]]


class Barred(NamedTuple):
    """What holds it up, and the cards that this shuts.

    begun  those of windows that have begun.
    said   one part of a sentence each, and the way past.
    """

    cards: frozenset[GpuUuid] = NONE
    begun: frozenset[GpuUuid] = NONE
    said: tuple[str, ...] = ()


def barred(gates: Gates, free: Room, room: Room, job: Job, *, compute: float | None) -> Barred:
    """What reservations have to do with its waiting. ``room``: the free one less what is kept for others."""
    request, begun = job.request, gates.shut_by_begun(job)
    named = _holding(gates, free, job, begun, compute)
    ahead = [one.start - gates.now for one, _ in named if one.start > gates.now]
    said = [_kept_by(one, cards, free, gates.now) for one, cards in named]
    if ahead and find(seen_past(room, begun), request, ends_at=gates.now + min(ahead), compute=compute) is not None:
        said.append(_way_past(job, min(ahead)))
    return Barred(NONE.union(*(cards for _, cards in named)), begun, tuple(said))


def _holding(gates: Gates, free: Room, job: Job, begun: frozenset[GpuUuid], compute: float | None) -> Sequence[Cause]:
    request = job.request
    suited = {uuid for uuid, card in free.cards.items() if serves(card.gpu, request)}
    causes = [(one, cards) for one, cards in gates.causes(job) if cards & suited]
    now_shut = [cause for cause in causes if cause[0].start <= gates.now]
    without = find(free, request, compute=compute) is not None
    if without and find(seen_past(free, begun), request, compute=compute) is None:
        return now_shut
    fitting = {uuid for uuid, offer in free.offers.items() if promise_on(offer, request, free.settings) is not None}
    to_come = [cause for cause in causes if cause[0].start > gates.now and cause[1] & (fitting - begun)]
    return [*now_shut, *to_come]


def _kept_by(one: Reservation, uuids: frozenset[GpuUuid], room: Room, now: float) -> str:
    cards = sorted(room.cards[uuid].gpu.index for uuid in uuids if uuid in room.cards)
    named = ("GPU " if len(cards) == 1 else "GPUs ") + ", ".join(map(str, cards))
    return f"{named} {'is' if len(cards) == 1 else 'are'} kept by {reserved_for(one, now)}"


def _way_past(job: Job, left_s: float) -> str:
    left = show_seconds(left_s)
    if job.time_limit_s is None:
        return f"with a time limit below {left} it could start before"
    return f"its time limit of {show_seconds(job.time_limit_s)} reaches beyond the {left} until then"
