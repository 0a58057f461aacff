"""Reservations as they are booked: who has which cards when, and that nobody has them twice.

A booking by count says which cards only when all bookings are laid out together: by their moment
and id, healthy cards and high numbers first, so that the answer is the same until a card fails or
somebody books that very card. Once its window has begun only a card that fails moves it: its holder
works there. Who may start in between is ``reservations``'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from .ledger import devices
from .messages import MachineChange, Reserved, Unreserved
from .model import Gpu, GpuSchedError, GpuUuid, IllegalTransition
from .operations import SCHEDULER, Operations, Reservation
from .quantities import show_seconds
from .wish import count

Found = tuple[Operations, tuple[MachineChange, ...]]


class Clash(IllegalTransition):
    """There are not as many cards as reservations that overlap want."""

    code = "reservation_clash"

    def __init__(self, wanted: Reservation, others: Iterable[Reservation], cards: int) -> None:
        ids = ", ".join(sorted(other.id for other in others)) or "none"
        GpuSchedError.__init__(
            self,
            f"{count(wanted.cards, 'GPU')} cannot be reserved then: this machine has {cards}, "
            f"and other reservations of that time want some of them (ids: {ids}).",
            field="gpus",
            hint="`jupyter gpusched reservations` shows them; take fewer or other GPUs, or another time.",
        )


class InForce(IllegalTransition):
    """A window that has begun would have to move to other cards."""

    code = "reservation_clash"

    def __init__(self, others: Iterable[tuple[Reservation, Iterable[Gpu]]], now: float) -> None:
        held = "; ".join(f"{_named(cards)}: {reserved_for(one, now)} (id: {one.id})" for one, cards in others)
        GpuSchedError.__init__(
            self,
            f"This would move a window that has begun to other cards. {held}.",
            field="gpus",
            hint="Take other GPUs or a later time, or end that one: `jupyter gpusched unreserve`.",
        )


def booked(operations: Operations, event: Reserved, gpus: Mapping[GpuUuid, Gpu], now: float) -> Found:
    """The machine with one reservation more. Raises ``Clash`` or ``InForce``."""
    wanted = event.reservation
    if wanted.id in operations.reservations:
        return operations, ()
    reservations = {**operations.reservations, wanted.id: wanted}
    laid_out = assigned(reservations.values(), gpus.values())
    overlapping = [one for one in operations.reservations.values() if one.overlaps(wanted)]
    if any(len(laid_out[one.id]) < one.cards for one in (wanted, *overlapping)):
        raise Clash(wanted, overlapping, len(devices(gpus.values())))
    before = assigned(operations.reservations.values(), gpus.values())
    moved = [one for one in overlapping if one.start <= now and set(before[one.id]) != set(laid_out[one.id])]
    if moved:
        raise InForce([(one, [gpus[uuid] for uuid in before[one.id]]) for one in moved], now)
    after = replace(operations, reservations=reservations)
    return after, (MachineChange(after, "reserved", now, {"by": wanted.by, **_detail(wanted)}),)


def given_back(operations: Operations, event: Unreserved, now: float) -> Found:
    known = operations.reservations.get(event.reservation_id)
    if known is None:
        return operations, ()
    after = _without(operations, known.id)
    return after, (MachineChange(after, "unreserved", now, {"by": event.by, **_detail(known)}),)


def lapsed(operations: Operations, now: float) -> Found:
    """What is over ends by itself."""
    changes = []
    for one in [one for one in operations.reservations.values() if one.end <= now]:
        operations = _without(operations, one.id)
        changes.append(MachineChange(operations, "unreserved", now, {"by": SCHEDULER, **_detail(one)}))
    return operations, tuple(changes)


def settled(operations: Operations, gpus: Mapping[GpuUuid, Gpu], now: float) -> Found:
    """Windows that have begun stay on the cards that they are laid on, until one of these fails."""
    floating = [one for one in operations.reservations.values() if one.start <= now and not one.gpus]
    if not floating:
        return operations, ()
    laid_out = assigned(operations.reservations.values(), gpus.values())
    changes = []
    for one in floating:
        cards = laid_out[one.id]
        if len(cards) == one.cards and set(cards) != set(one.on):
            settled_one = replace(one, on=cards)
            operations = replace(operations, reservations={**operations.reservations, one.id: settled_one})
            told = {"by": SCHEDULER, **_detail(one), "gpus": list(cards)}
            changes.append(MachineChange(operations, "reservation_settled", now, told))
    return operations, tuple(changes)


def reserved_for(one: Reservation, now: float) -> str:
    """As part of a sentence, without times of day: the core knows no zones."""
    whose = f"{one.user}'s reservation" if one.user is not None else "a reservation for work outside the queue"
    cause = f" ({one.cause})" if one.cause else ""
    if one.start > now:
        when = f"that begins in {show_seconds(one.start - now)} and lasts {show_seconds(one.end - one.start)}"
    else:
        when = f"that ends in {show_seconds(one.end - now)}"
    return f"{whose}{cause} {when}"


def assigned(reservations: Iterable[Reservation], gpus: Iterable[Gpu]) -> dict[str, tuple[GpuUuid, ...]]:
    """The cards of each reservation; too few cards give a shorter answer.

    Those that name theirs come first, then those that stay where they are as long as these cards are healthy.
    """
    known = devices(gpus)
    by_choice = sorted(known, key=lambda gpu: (gpu.health != "ok", -gpu.index, gpu.uuid))
    uuids = {gpu.uuid for gpu in known}
    laid_out: dict[str, tuple[GpuUuid, ...]] = {}
    placed: list[Reservation] = []
    for one in sorted(reservations, key=lambda one: (not one.gpus, not one.on, one.start, one.id)):
        taken = {uuid for other in placed if other.overlaps(one) for uuid in laid_out[other.id]}
        wished = one.gpus or [gpu.uuid for gpu in sorted(by_choice, key=partial(_moves, one))]
        free = [uuid for uuid in wished if uuid in uuids and uuid not in taken]
        laid_out[one.id] = tuple(free[: one.cards])
        placed.append(one)
    return laid_out


def _moves(one: Reservation, gpu: Gpu) -> tuple[bool, bool]:
    """Least for the cards that it is on; but rather one that is healthy."""
    return gpu.health != "ok", gpu.uuid not in one.on


def _named(cards: Iterable[Gpu]) -> str:
    numbers = sorted(gpu.index for gpu in cards)
    return f"GPU{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers)) or 'none'}"


def _without(operations: Operations, reservation_id: str) -> Operations:
    kept = {key: one for key, one in operations.reservations.items() if key != reservation_id}
    return replace(operations, reservations=kept)


def _detail(one: Reservation) -> dict[str, object]:
    return {
        "id": one.id, "user": one.user, "count": one.cards, "gpus": list(one.gpus), "start": one.start, "end": one.end,
        "cause": one.cause,
    }  # fmt: skip
