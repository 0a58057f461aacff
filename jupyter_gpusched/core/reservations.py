"""Who may start on reserved cards: what would reach into somebody else's window does not start there.

A job of another may start before the window if it will have ended by its time limit; without one
if three times a long run of such jobs ends before; or if it agreed to be ended (preemptible), which
it is when the window begins. Nothing else that runs is ended for a reservation. Within the window
only the holder's jobs start there; a reservation for nobody's jobs keeps its cards for work outside
the queue. Pure; see ``docs/adr/0013-reservations.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from .booking import assigned, lapsed, reserved_for, settled
from .history import History, Kin
from .ledger import devices, serves, usable
from .messages import Evicted, MachineChange
from .model import GpuUuid, Job, JobId, Phase, Request
from .operations import Operations, Reservation
from .queue import LineKey, kin_of
from .room import Room
from .state import State

LONG_RUN = 0.95
MARGIN = 3.0
"""Without a time limit a job is taken to end within so many times what this share of such jobs does not exceed."""

NONE: frozenset[GpuUuid] = frozenset()


class Gates:
    """The reserved cards at one moment. ``any`` is False on a machine without reservations, where all is open."""

    def __init__(self, state: State, now: float) -> None:
        self.now = now
        self.history = state.past.history
        standing = [one for one in state.operations.reservations.values() if one.end > now]
        self.any = bool(standing)
        laid_out = assigned(standing, state.gpus.values()) if standing else {}
        self._found: dict[tuple[Kin, bool], frozenset[GpuUuid]] = {}
        self.windows = [(one, frozenset(laid_out[one.id])) for one in sorted(standing, key=lambda one: one.start)]

    def shut(self, job: Job) -> frozenset[GpuUuid]:
        """The cards on which a job may not start now."""
        return self._shut(kin_of(job), job.may_be_evicted) if self.any else NONE

    def shut_to(self, line: LineKey, request: Request) -> frozenset[GpuUuid]:
        """The same for all jobs of a line."""
        return self._shut(line.kin(request), line.yields) if self.any else NONE

    def _shut(self, kin: Kin, yields: bool) -> frozenset[GpuUuid]:
        found = self._found.get((kin, yields))
        if found is None:
            ends_at = -math.inf if yields else surely_ended(self.history, kin, self.now)
            found = self._found[kin, yields] = frozenset(
                uuid
                for one, cards in self.windows
                if one.user != kin.owner and (one.start <= self.now or ends_at > one.start)
                for uuid in cards
            )
        return found

    def shut_by_begun(self, job: Job) -> frozenset[GpuUuid]:
        """The cards on which it may not start now, however soon it would end."""
        begun = (cards for one, cards in self.windows if one.user != job.owner and one.start <= self.now)
        return NONE.union(*begun)

    def causes(self, job: Job) -> list[tuple[Reservation, frozenset[GpuUuid]]]:
        """The reservations that shut cards to it."""
        shut = self.shut(job)
        return [(one, cards) for one, cards in self.windows if one.user != job.owner and cards & shut]


def surely_ended(history: History, kin: Kin, now: float) -> float:
    """By when a job that starts now will have ended, as surely as can be said; never if nothing is known."""
    if kin.limit_s is not None:
        return now + kin.limit_s
    return now + MARGIN * history.expected_s(kin, LONG_RUN) if history.says_something(kin) else math.inf


def seen_past(room: Room, shut: frozenset[GpuUuid]) -> Room:
    """The room without the cards that are shut."""
    if not shut:
        return room
    return replace(room, offers={uuid: offer for uuid, offer in room.offers.items() if uuid not in shut})


def evictions(state: State, now: float) -> Iterator[Evicted]:
    """Preemptible jobs of others on cards whose window has begun."""
    gates = Gates(state, now)
    told: set[JobId] = set()  # a job on several cards may stand in several windows, and is ended once
    for one, cards in gates.windows:
        if one.start > now:
            return
        on_cards = {grant.job_id for uuid in cards for grant in state.held.grants.get(uuid, ())}
        for job_id in sorted(on_cards - told):
            job = state.busy[job_id]
            living = job.phase in {Phase.STARTING, Phase.RUNNING}
            if living and job.owner != one.user and job.may_be_evicted and _holds(job, cards):
                told.add(job_id)
                yield Evicted(job.id, job.attempt, one.user or one.by, reserved_for(one, now))


def ended(state: State, now: float) -> tuple[State, tuple[MachineChange, ...]]:
    """The state without the reservations that are over, and with those that have begun settled on their cards."""
    if not state.operations.reservations:
        return state, ()
    operations, over = lapsed(state.operations, now)
    operations, begun = settled(operations, state.gpus, now)
    changes = (*over, *begun)
    return (replace(state, operations=operations), changes) if changes else (state, ())


def opens(state: State, job: Job, at: float) -> float:
    """The first moment from ``at`` on at which as many cards as it wants are not shut to it.

    ``at`` itself where reservations have nothing to do with it.
    """
    standing = state.operations.reservations.values()
    able = {
        gpu.uuid
        for gpu in devices(state.gpus.values())
        if serves(gpu, job.request) and (job.request.vram or 0) <= usable(gpu, state.settings)
    }
    for moment in (at, *sorted(one.end for one in standing if one.end > at)):
        if len(able - Gates(state, moment).shut(job)) >= job.request.gpus:
            return moment
    return at


def borders(operations: Operations) -> Iterator[float]:
    """The moments at which something changes by itself."""
    for one in operations.reservations.values():
        yield one.start
        yield one.end


def reaching_in(state: State, one: Reservation, cards: Iterable[GpuUuid], now: float) -> set[JobId]:
    """Jobs of others on these cards that nothing surely ends before the window begins."""
    on_cards = {grant.job_id for uuid in cards for grant in state.held.grants.get(uuid, ())}
    jobs = (state.busy[job_id] for job_id in on_cards)
    staying = [job for job in jobs if job.owner != one.user and not job.may_be_evicted and job.phase.active]
    return {job.id for job in staying if one.start <= now or _ends(job) > one.start}


def _ends(job: Job) -> float:
    begun = job.attempts[-1].started_at or job.since
    return math.inf if job.time_limit_s is None else begun + job.time_limit_s


def _holds(job: Job, cards: frozenset[GpuUuid]) -> bool:
    return any(grant.gpu in cards and grant.attempt == job.attempt for grant in job.grants)
