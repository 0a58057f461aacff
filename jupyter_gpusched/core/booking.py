"""Reservations as they are booked: who has which cards when, and that nobody has them twice.

A booking by count says which cards only when all bookings are laid out together: by their moment
and id, healthy cards and high numbers first, so that the answer is the same until a card fails or
somebody books that very card. Who may start in between is ``reservations``'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from .ledger import devices
from .messages import MachineChange, Reserved, Unreserved
from .model import Gpu, GpuSchedError, GpuUuid, IllegalTransition
from .operations import SCHEDULER, Operations, Reservation
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


def booked(operations: Operations, event: Reserved, gpus: Mapping[GpuUuid, Gpu], now: float) -> Found:
    """The machine with one reservation more. Raises ``Clash``."""
    wanted = event.reservation
    if wanted.id in operations.reservations:
        return operations, ()
    reservations = {**operations.reservations, wanted.id: wanted}
    laid_out = assigned(reservations.values(), gpus.values())
    overlapping = [one for one in operations.reservations.values() if one.overlaps(wanted)]
    if any(len(laid_out[one.id]) < one.cards for one in (wanted, *overlapping)):
        raise Clash(wanted, overlapping, len(devices(gpus.values())))
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


def assigned(reservations: Iterable[Reservation], gpus: Iterable[Gpu]) -> dict[str, tuple[GpuUuid, ...]]:
    """The cards of each reservation. Those that name theirs come first; too few cards give a shorter answer."""
    known = devices(gpus)
    by_choice = sorted(known, key=lambda gpu: (gpu.health != "ok", -gpu.index, gpu.uuid))
    uuids = {gpu.uuid for gpu in known}
    laid_out: dict[str, tuple[GpuUuid, ...]] = {}
    placed: list[Reservation] = []
    for one in sorted(reservations, key=lambda one: (not one.gpus, one.start, one.id)):
        taken = {uuid for other in placed if other.overlaps(one) for uuid in laid_out[other.id]}
        free = [uuid for uuid in one.gpus or (gpu.uuid for gpu in by_choice) if uuid in uuids and uuid not in taken]
        laid_out[one.id] = tuple(free[: one.cards])
        placed.append(one)
    return laid_out


def _without(operations: Operations, reservation_id: str) -> Operations:
    kept = {key: one for key, one in operations.reservations.items() if key != reservation_id}
    return replace(operations, reservations=kept)


def _detail(one: Reservation) -> dict[str, object]:
    return {
        "id": one.id, "user": one.user, "count": one.cards, "gpus": list(one.gpus), "start": one.start, "end": one.end,
        "cause": one.cause,
    }  # fmt: skip
