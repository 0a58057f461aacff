"""What a request names: one job, an array, or some elements of one.

``abcd1234`` is a job or an array, ``abcd1234[3]`` an element, ``abcd1234[0-9,12]`` some of them.
Another's and one that never was are equally unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

import anyio
import anyio.to_thread

from .core.model import BadRequest, GpuSchedError, Job, JobId, UnknownJob
from .engine import Engine
from .wire import LARGEST_ARRAY

Sees = Callable[[str], bool]
"""Whether jobs of this owner may be seen."""

MOST_NAMED = 10 * LARGEST_ARRAY
"""So many elements are named in one request at most, however often the same ones."""

LONGEST_PATTERN = 1000

_SOME = re.compile(r"([a-z0-9]+)\[([^]]*)\]")
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


class ManyJobs(UnknownJob):
    """An array was named where one job is meant. ``some``: one of its jobs."""

    def __init__(self, array_id: JobId, some: Job) -> None:
        one = some.id if some.array_index is None else f"{array_id}[{some.array_index}]"
        GpuSchedError.__init__(
            self,
            f"{array_id} is no job but an array or a batch of them.",
            field="id",
            hint=f"Name one element, such as {one}; `jupyter gpusched ls --array {array_id}` lists them, and "
            f'jupyter_gpusched.array("{array_id}") shows them in a notebook.',
        )


@dataclass(frozen=True, slots=True)
class Target:
    """Jobs in the order of their numbers. ``one``: a job was named by itself.

    chosen  whether elements were picked by their numbers.
    """

    jobs: tuple[Job, ...]
    one: bool
    chosen: bool = False


async def find(text: str, engine: Engine, sees: Sees) -> Target:
    """The jobs that are meant. Raises ``UnknownJob``, or ``BadRequest`` for numbers that cannot be read."""
    some = _SOME.fullmatch(text)
    if some is not None:
        wanted = _numbers(some[2])
        jobs = [job for job in await _batch(some[1], engine, sees) if job.array_index in wanted]
        if not jobs:
            raise UnknownJob(text)
        return Target(tuple(jobs), one=False, chosen=True)
    try:
        return Target((await engine.job(text, sees),), one=True)
    except UnknownJob:
        jobs = await _batch(text, engine, sees)
        if not jobs:
            raise
        return Target(tuple(jobs), one=False)


async def find_one(text: str, engine: Engine, sees: Sees) -> Job:
    """One job, also named as an element of its array. Raises ``UnknownJob``."""
    if "[" not in text:
        try:
            return await engine.job(text, sees)
        except UnknownJob:
            some = await anyio.to_thread.run_sync(lambda: engine.store.jobs(batch_id=text, limit=1))
            if not some or not sees(some[0].owner):
                raise
            raise ManyJobs(text, some[0]) from None
    target = await find(text, engine, sees)
    if len(target.jobs) != 1:
        raise BadRequest(f"{text} names {len(target.jobs)} jobs, not one.", field="id", hint="Name one element.")
    return target.jobs[0]


def named(pattern: str, engine: Engine, owner: str) -> Target:
    """The owner's jobs that have not ended and whose name fits (``run-*``; case counts). Raises ``BadRequest``."""
    if len(pattern) > LONGEST_PATTERN:
        raise BadRequest(
            f"name: the pattern has more than {LONGEST_PATTERN} characters.",
            field="name",
            hint="Write `*` for what differs.",
        )
    live = [job for job in engine.state.jobs.values() if job.owner == owner and not job.phase.final]
    fitting = (job for job in live if fnmatchcase(job.name, pattern))
    return Target(tuple(sorted(fitting, key=lambda job: (job.submitted_at, job.id))), one=False)


async def _batch(batch_id: JobId, engine: Engine, sees: Sees) -> list[Job]:
    """The jobs of a batch as they are now, in their order; empty where it is unknown or another's."""

    def look() -> list[Job]:
        jobs = engine.store.jobs(batch_id=batch_id)
        known = engine.state.jobs  # read after the journal: never older than that
        current = [known.get(job.id, job) for job in reversed(jobs) if sees(job.owner)]
        return sorted(current, key=lambda job: (job.array_index or 0, job.submitted_at, job.id))

    return await anyio.to_thread.run_sync(look)  # of up to ten thousand


def _numbers(text: str) -> frozenset[int]:
    numbers: set[int] = set()
    named = 0
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is None:
            raise BadRequest(
                f"id: [{text}] cannot be read.", field="id", hint="Elements are named as [3], [0-9] or [0-9,12]."
            )
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise BadRequest(f"id: [{text}] goes backwards.", field="id", hint=f"Write [{last}-{first}].")
        named += max(0, last + 1 - first)
        if named > MOST_NAMED:
            raise BadRequest(
                "id: so many elements cannot be named.", field="id", hint="Name the whole array by its id alone."
            )
        numbers.update(range(first, last + 1))
    return frozenset(numbers)
