"""Deletes the records and folders of jobs that ended long ago, so that neither grows for ever.

One job at a time, with a pause after each: nobody waits for it. What has not ended, still holds
memory, or is named by a job that waits for it, stays whatever its age.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import anyio
import anyio.to_thread

from .core.model import GpuSchedError, Job, JobId
from .engine import Engine
from .tending import DAY_S

log = logging.getLogger(__name__)

Delete = Callable[[Job], Awaitable[None]]

PAGE = 200
_FIRST_S = 30.0  # a host that has just started has more urgent things to do
_EVERY_S = 3600.0
_PAUSE_S = 0.05


async def keep_clearing(
    engine: Engine, delete: Delete, *, days: float, most: int, first_s: float = _FIRST_S, every_s: float = _EVERY_S
) -> None:
    """Delete jobs that ended so many days ago, or the oldest of more than are wanted; for ever. 0 = without bound."""
    if not days and not most:
        return
    await anyio.sleep(first_s)
    while True:
        try:
            if deleted := await clear(engine, delete, days=days, most=most):
                log.info("deleted %d jobs that ended long ago", deleted)
        except (GpuSchedError, OSError) as error:
            log.warning("jobs that ended long ago were not all deleted: %s", error)
        await anyio.sleep(every_s)


async def clear(engine: Engine, delete: Delete, *, days: float, most: int) -> int:
    """One round; returns how many were deleted. Raises what ``delete`` does, which the next round tries again."""
    before = engine.clock() - days * DAY_S if days else 0.0
    surplus = await anyio.to_thread.run_sync(engine.store.count_ended) - most if most else 0
    after, deleted = (0.0, ""), 0
    while True:
        page = await anyio.to_thread.run_sync(engine.store.oldest_ended, after, PAGE)
        for job in page:
            if surplus <= 0 and job.submitted_at >= before:  # nor have those that were submitted later ended before
                return deleted
            if (surplus > 0 or job.since < before) and job.phase.final and job.id not in _awaited(engine):
                await delete(job)
                deleted, surplus = deleted + 1, surplus - 1
                await anyio.sleep(_PAUSE_S)
        if len(page) < PAGE:
            return deleted
        after = page[-1].submitted_at, page[-1].id


def _awaited(engine: Engine) -> set[JobId]:
    """Whom jobs in the queue name as those after which they start."""
    waiting = (job for job in engine.state.jobs.values() if job.after is not None and not job.phase.final)
    return {parent for job in waiting if job.after is not None for parent in job.after.jobs}
