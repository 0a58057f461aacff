"""A batch of events on its way through the core: what it leads to, before anything of it is true.

Of frozen values only, so that a batch about many jobs can be worked out in a thread while others
are answered. Decides nothing; writes and does nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from .core.alerts import settle
from .core.messages import Change, Entry, Event, Instruction, OperationsEvent, Sampled, Submitted, Together
from .core.model import IllegalTransition, JobId, Work
from .core.schedule import schedule
from .core.state import State, Step, apply

HEAVY = 200
"""What is about more jobs at once is worked out beside the loop: the core takes 50 microseconds for each."""


@dataclass(eq=False)
class Stimulus:
    """An event that has come in, and who waits for what becomes of it."""

    event: Event
    works: dict[JobId, Work] = field(default_factory=dict)
    done: asyncio.Future[None] | None = None  # set for users' wishes; facts have nobody waiting
    changed: frozenset[JobId] = frozenset()

    def fail(self, error: BaseException) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_exception(error)

    def succeed(self) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_result(None)


@dataclass
class Taken:
    """What a batch led to, with the scheduling pass that follows it; nothing of it is true yet."""

    state: State
    changes: list[Entry] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    accepted: list[Stimulus] = field(default_factory=list)
    refused: list[tuple[Stimulus, IllegalTransition]] = field(default_factory=list)


def decided(state: State, batch: Sequence[Stimulus], now: float, fault: str | None) -> Taken:
    """Ask the core, event by event; then who may start."""
    taken = Taken(state)
    for stimulus in batch:
        try:
            step = apply(taken.state, stimulus.event, now)
        except IllegalTransition as error:
            taken.refused.append((stimulus, error))
            continue
        stimulus.changed = frozenset(change.job.id for change in step.changes if isinstance(change, Change))
        taken.accepted.append(stimulus)
        _take(taken, step)
    _take(taken, schedule(taken.state, now))
    # Alerts rest on what cards show, so that a submission need not pay for them.
    if any(isinstance(stimulus.event, Sampled | OperationsEvent) for stimulus in taken.accepted):
        _take(taken, settle(taken.state, now, fault=fault))
    return taken


def _take(taken: Taken, step: Step) -> None:
    taken.state = step.state
    taken.changes += step.changes
    taken.instructions += step.instructions


def weight(stimulus: Stimulus) -> int:
    """Of how many jobs an event is."""
    match stimulus.event:
        case Submitted(jobs):
            return len(jobs)
        case Together(events):
            return len(events)
    return 1
