"""Which jobs others are to start after: from the words of a submission to jobs of the same owner.

Another's job and one that never was are refused alike. What becomes of a dependent is the
core's (``core/asides``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from .core.model import BadRequest, Job, JobId, Phase, UnknownJob
from .engine import Engine
from .targets import find

MOST_PARENTS = 1000

_PLACE = re.compile(r"#(\d{1,6})")


async def with_parents(jobs: Sequence[Job], engine: Engine, *, owner: str) -> list[Job]:
    """These jobs, each with the ids of its parents. Raises ``BadRequest``."""
    known: dict[str, list[JobId]] = {}
    found = []
    for number, job in enumerate(jobs):
        if job.after is None:
            found.append(job)
            continue
        parents: list[JobId] = []
        for word in job.after.jobs:
            if (place := _PLACE.fullmatch(word)) is not None:
                parents.append(_of_batch(int(place[1]), number, jobs).id)
                continue
            if word not in known:
                known[word] = await _known(word, engine, owner)
            parents += known[word]
        found.append(replace(job, after=job.after._replace(jobs=_few(parents))))
    return found


def _few(parents: Sequence[JobId]) -> tuple[JobId, ...]:
    if len(parents) > MOST_PARENTS:
        raise BadRequest(
            f"after: {len(parents)} jobs are too many to wait for; at most {MOST_PARENTS}.",
            field="after",
            hint="Let a job without GPU wait for some of them, and this one for that.",
        )
    return tuple(dict.fromkeys(parents))


def _of_batch(place: int, number: int, jobs: Sequence[Job]) -> Job:
    """Only jobs before it can be named, so that nobody can wait in a circle."""
    if place >= number:
        raise BadRequest(
            f"after: #{place} does not stand before job {number} of the batch.",
            field="after",
            hint="Jobs are counted from 0; a job can start after those that stand before it.",
        )
    return jobs[place]


async def _known(word: str, engine: Engine, owner: str) -> list[JobId]:
    """A job, or all elements of an array."""
    try:
        return [job.id for job in (await find(word, engine, lambda user: user == owner)).jobs]
    except UnknownJob:
        raise BadRequest(
            f"after: there is no job {word!r}.", field="after", hint="`jupyter gpusched ls` lists your jobs."
        ) from None


async def still_worth_waiting_for(job: Job, engine: Engine) -> list[JobId]:
    """The parents after which a job can still start, when it is submitted again: not those that ended it."""
    kept = []
    for parent_id in job.after.jobs if job.after is not None else ():
        try:
            parent = await engine.job(parent_id, lambda user: user == job.owner)
        except UnknownJob:
            continue
        finished = job.after is not None and job.after.when == "finished"
        if not parent.phase.final or parent.phase is Phase.SUCCEEDED or finished:
            kept.append(parent_id)
    return kept
