"""Which cards get no jobs although they can be read, and how that begins and ends.

A card is quarantined when it was lost, when it reports a fault that needs a person, when a
person says so, and when jobs die on it at once, one after the other. It stays so over restarts
of the host, also when it looks well again, until a person or the configured check returns it.
Pure; what happens to the jobs of a lost card is ``state``'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from .messages import CardsEvent, Drained, MachineChange, Quarantined, Resumed, Returned
from .model import Attempt, Gpu, GpuUuid, Job, Outcome
from .operations import SCHEDULER, Death, Drain, Operations, Quarantine

QUICK_S = 30.0
"""An attempt that dies sooner after its start has died quickly."""

DEATHS = 3
JOBS = 2
"""So many quick deaths in a row, of at least so many different jobs, quarantine a card."""

POINTS_AT_CARD = frozenset({"gpu_error", "signal_4", "signal_6", "signal_7", "signal_8", "signal_11"})
"""Ends that a sick card causes: an error that the GPU or its driver reported, and crashes in native code.

An exception of Python, a wrong path or an exit code are the job's own: three cells in a row with a
mistake in them must not take a healthy card away from everybody. SIGKILL is host memory or a person.
"""

_T = TypeVar("_T")

Found = tuple[Operations, tuple[MachineChange, ...]]


def judge(operations: Operations, gpus: Iterable[Gpu], now: float) -> Found:
    """What the cards say about themselves: whoever is lost or reports a fault is quarantined."""
    found: list[MachineChange] = []
    for gpu in gpus:
        evidence = _evidence(gpu)
        accepted = operations.accepted.get(gpu.uuid)
        if evidence is None:
            if accepted is not None and gpu.health == "ok":  # should it come again, it is a new one
                operations = replace(operations, accepted=_without(operations.accepted, gpu.uuid))
        elif gpu.uuid not in operations.quarantines and accepted != evidence[1]:
            order = Quarantine(*evidence, since=now, by=SCHEDULER)
            operations, change = _quarantined(operations, gpu.uuid, order, index=gpu.index)
            found.append(change)
    return operations, tuple(found)


def after_attempt(operations: Operations, job: Job, now: float) -> Found:
    """What the end of a job's latest attempt says about its card.

    An attempt on several cards does not tell which of them was at fault.
    """
    attempt = job.attempts[-1]
    if len(attempt.gpus) != 1:
        return operations, ()
    card = attempt.gpus[0]
    told: dict[str, object]
    if _went_well(attempt):
        if card.gpu in operations.deaths:
            operations = replace(operations, deaths=_without(operations.deaths, card.gpu))
            told = {"gpu": card.gpu, "index": card.index, "job_id": job.id, "attempt": attempt.number}
            return operations, (MachineChange(operations, "went_well", now, told),)
        return operations, ()
    if not _died_quickly(attempt) or card.gpu in operations.quarantines:
        return operations, ()
    deaths = (*operations.deaths.get(card.gpu, ()), Death(job.id, attempt.number, attempt.reason or "exit"))
    operations = replace(operations, deaths={**operations.deaths, card.gpu: deaths})
    told = {
        "gpu": card.gpu, "index": card.index, "job_id": job.id, "attempt": attempt.number, "reason": attempt.reason,
    }  # fmt: skip
    death = MachineChange(operations, "quick_death", now, told)
    if len(deaths) < DEATHS or len({one.job_id for one in deaths}) < JOBS:
        return operations, (death,)
    cause = (
        f"{len(deaths)} attempts in a row died on it within {QUICK_S:.0f}s of their start (the last: {_how(attempt)})"
    )
    order = Quarantine("deaths", cause, since=now, by=SCHEDULER)
    operations, change = _quarantined(operations, card.gpu, order, index=card.index)
    return operations, (death, change)


def ordered(operations: Operations, event: CardsEvent, gpus: Mapping[GpuUuid, Gpu], now: float) -> Found:
    """Carry out what an administrator, or the configured check, wants; what is so already changes nothing."""
    match event:
        case Quarantined(uuid, by, cause):
            known = operations.quarantines.get(uuid)
            if known is not None and known.kind == "hand":
                return operations, ()
            order = Quarantine("hand", cause, since=now if known is None else known.since, by=by)
            index = gpus[uuid].index if uuid in gpus else None
            operations, change = _quarantined(operations, uuid, order, index=index)
            return operations, (change,)
        case Returned():
            return _returned(operations, event, gpus.get(event.gpu), now)
        case Drained(by, cause):
            if operations.drain is not None:
                return operations, ()
            operations = replace(operations, drain=Drain(now, by, cause))
            return operations, (MachineChange(operations, "drained", now, {"by": by, "cause": cause}),)
        case Resumed(by, cause):
            if operations.drain is None:
                return operations, ()
            operations = replace(operations, drain=None)
            return operations, (MachineChange(operations, "resumed", now, {"by": by, "cause": cause}),)


def shown(operations: Operations, gpus: Mapping[GpuUuid, Gpu]) -> Mapping[GpuUuid, Gpu]:
    """The cards with their quarantine as their health. One that cannot be read stays lost or unknown."""
    if not operations.quarantines:
        return gpus
    return {uuid: _shown(gpu, operations.quarantines.get(uuid)) for uuid, gpu in gpus.items()}


def _shown(gpu: Gpu, order: Quarantine | None) -> Gpu:
    if order is None or gpu.health in {"lost", "unknown"}:
        return gpu
    return replace(gpu, health="quarantined", health_cause=_words(order), health_since=order.since)


def _words(order: Quarantine) -> str:
    if order.kind == "hand":
        return f"{order.cause}, by {order.by}"
    return order.cause if order.kind != "lost" else f"it was lost ({order.cause}) and can be read again"


def _evidence(gpu: Gpu) -> tuple[str, str] | None:
    """Kind and cause, where a card shows that it must not be used until somebody has looked at it."""
    if gpu.health == "lost":
        return "lost", gpu.health_cause or "the card was lost"
    return None if gpu.fault is None else ("fault", gpu.fault)


def _quarantined(
    operations: Operations, uuid: GpuUuid, order: Quarantine, *, index: int | None
) -> tuple[Operations, MachineChange]:
    operations = replace(
        operations,
        quarantines={**operations.quarantines, uuid: order},
        accepted=_without(operations.accepted, uuid),
        deaths=_without(operations.deaths, uuid),
    )
    told: dict[str, object] = {
        "gpu": uuid, "index": index, "cause": order.cause, "by": order.by, "because": order.kind,
    }  # fmt: skip
    return operations, MachineChange(operations, "quarantined", order.since, told)


def _returned(operations: Operations, event: Returned, gpu: Gpu | None, now: float) -> Found:
    """A card that is still lost cannot be returned; one that still reports a fault is returned with it."""
    order = operations.quarantines.get(event.gpu)
    if order is None or (gpu is not None and gpu.health == "lost"):
        return operations, ()
    accepted = {**operations.accepted, event.gpu: gpu.fault} if gpu is not None and gpu.fault else operations.accepted
    kept = replace(operations, quarantines=_without(operations.quarantines, event.gpu), accepted=accepted)
    told: dict[str, object] = {
        "gpu": event.gpu, "index": None if gpu is None else gpu.index, "by": event.by, "cause": event.cause,
        "was": order.cause,
    }  # fmt: skip
    return kept, (MachineChange(kept, "returned", now, told),)


def _went_well(attempt: Attempt) -> bool:
    return attempt.outcome is Outcome.SUCCEEDED or (_lasted_s(attempt) or 0.0) >= QUICK_S


def _died_quickly(attempt: Attempt) -> bool:
    lasted_s = _lasted_s(attempt)
    failed = attempt.outcome is Outcome.FAILED and attempt.reason in POINTS_AT_CARD
    return failed and lasted_s is not None and lasted_s < QUICK_S


def _lasted_s(attempt: Attempt) -> float | None:
    if attempt.started_at is None or attempt.ended_at is None:
        return None
    return attempt.ended_at - attempt.started_at


def _how(attempt: Attempt) -> str:
    return "a GPU error" if attempt.reason == "gpu_error" else (attempt.reason or "exit").replace("_", " ")


def _without(mapping: Mapping[GpuUuid, _T], uuid: GpuUuid) -> dict[GpuUuid, _T]:
    return {key: value for key, value in mapping.items() if key != uuid}
