"""Jobs of one batch that fail one after the other, soon after their start and in the same way.

Three of them hold what of the batch still waits: a mistake that is in all of it should cost
three tries, not a thousand. A success, an end of another kind or a long run begins anew. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .messages import HoldRequested
from .model import Job, JobId, Phase
from .operations import SCHEDULER
from .persistent import Line
from .quantities import show_seconds

QUICK_S = 30.0
"""A job that fails sooner after its start has failed quickly."""

FAILURES = 3

_NOT_ITS_FAULT = frozenset({"gpu_lost", "gpu_error"})
"""Ends for which a card is to blame."""

How = tuple[str | None, int | None, int | None]
"""Reason, exit code and signal."""


@dataclass(frozen=True, slots=True)
class Streak:
    """The last ends of a batch's jobs, as far as they are alike."""

    how: How
    jobs: tuple[JobId, ...]
    message: str | None


def judged(
    streaks: Mapping[JobId, Streak], changed: Iterable[Job]
) -> tuple[Mapping[JobId, Streak], dict[JobId, Streak]]:
    """The streaks after these jobs came to their ends, or changed otherwise.

    And those that are over their number: their batches are to be held.
    """
    known, full = dict(streaks), {}
    for job in changed:
        if job.batch_id is None or not job.phase.final or not job.attempts or job.phase is Phase.CANCELLED:
            continue
        if not _quickly_failed(job):
            known.pop(job.batch_id, None)
            continue
        how = _how(job)
        before = known.get(job.batch_id)
        jobs = before.jobs if before is not None and before.how == how else ()
        streak = Streak(how, jobs if job.id in jobs else (*jobs, job.id), job.message)
        if len(streak.jobs) < FAILURES:
            known[job.batch_id] = streak
        else:
            known.pop(job.batch_id, None)
            full[job.batch_id] = streak
    return (streaks if known == streaks else known), full


def since(ended: Iterable[Job]) -> Mapping[JobId, Streak]:
    """The streaks as these ended jobs leave them: what a new host goes on with."""
    known: Mapping[JobId, Streak] = {}
    for job in sorted(ended, key=lambda job: (job.ended_at or 0.0, job.id)):
        known, _ = judged(known, (job,))
    return known


def holds(streak: Streak, queued: Line[JobId]) -> list[HoldRequested]:
    """What still waits of a batch is held."""
    cause = (
        f"{FAILURES} jobs of its batch failed within {show_seconds(QUICK_S)} of their start in the same way "
        f"(the last, {streak.jobs[-1]}: {streak.message or streak.how[0]})"
    )
    return [HoldRequested(job_id, SCHEDULER, cause) for job_id in queued]


def _quickly_failed(job: Job) -> bool:
    last = job.attempts[-1]
    if job.phase is not Phase.FAILED or last.reason in _NOT_ITS_FAULT:
        return False
    return last.started_at is None or last.ended_at is None or last.ended_at - last.started_at < QUICK_S


def _how(job: Job) -> How:
    last = job.attempts[-1]
    return last.reason, last.exit_code, last.signal
