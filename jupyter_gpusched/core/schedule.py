"""One scheduling pass as a step of the state, and when the next one is due without an event.

Joins ``policy``'s decisions to ``state.apply``; the engine and the simulator call the same
two functions.
"""

from __future__ import annotations

from collections.abc import Iterator

from .enforce import overruns
from .messages import Event
from .model import GrantState
from .policy import plan
from .reservations import borders, ended, evictions
from .state import State, Step, apply, release_overdue


def schedule(state: State, now: float) -> Step:
    """Let go of what had its time, start what may (nothing while drained), then end what takes others' memory."""
    current, lapsed = ended(state, now)
    step = release_overdue(current, now)
    if lapsed:
        step = Step(step.state, (*lapsed, *step.changes))
    for eviction in evictions(step.state, now) if step.state.operations.reservations else ():
        step = _and(step, eviction, now)
    for decision in plan(step.state, now) if step.state.operations.drain is None else ():
        step = _and(step, decision, now)
    for overrun in overruns(step.state, now):
        step = _and(step, overrun, now)
    return step


def _and(step: Step, decision: Event, now: float) -> Step:
    after = apply(step.state, decision, now)
    return Step(after.state, (*step.changes, *after.changes), (*step.instructions, *after.instructions))


def awaits_memory(state: State) -> bool:
    """Whether a look at the cards could let somebody start: memory is being freed, and a job waits for a card."""
    return bool(state.releasing) and any(group.request.gpus for group in state.queue.lines)


def next_wakeup(state: State, now: float) -> float | None:
    """When ``schedule`` could do something new although no event came; always after ``now``."""
    return min((due for due in _timers(state) if due > now), default=None)


def _timers(state: State) -> Iterator[float]:
    yield from borders(state.operations)
    for job_id in state.backing_off:
        yield state.jobs[job_id].not_before or 0.0
    for job_id in state.releasing:
        for grant in state.busy[job_id].grants:
            if grant.state is GrantState.RELEASING:
                yield grant.since + state.settings.release_timeout_s
