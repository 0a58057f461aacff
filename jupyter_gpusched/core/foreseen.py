"""Who is set aside and comes back into the queue by what can be foreseen: the ends of others.

An element of an array comes to its turn when others of the array end, a dependent job when those end that it
waits for; who is held waits for a person, whom nobody foresees. For the look ahead (``estimate``) alone.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from itertools import islice

from .asked import After
from .frozen import replace
from .model import Job, JobId
from .state import State


def foreseen(state: State, ahead: Sequence[Job], most: int) -> list[Job]:
    """About ``most`` of those that come back after jobs of ``ahead``, or after one another; the nearest first.

    It is taken that who is waited for succeeds: such jobs are made to wait for its end, whatever it is.
    """
    if not state.asides.waiting:
        return []
    known = {job.id: job for job in ahead}
    turns = _turns(state, ahead, most)
    edge = deque([*known, *turns])
    known |= {job_id: state.jobs[job_id] for job_id in turns}
    found = [known[job_id] for job_id in turns]
    while edge and len(found) < most:
        for child_id in state.asides.dependents.get(edge.popleft(), ()):
            child = state.jobs[child_id]
            if child_id not in known and _comes(child, state, known):
                known[child_id] = child
                found.append(child)
                edge.append(child_id)
    return [job if job.after is None else replace(job, after=After(job.after.jobs, "finished")) for job in found]


def _turns(state: State, ahead: Sequence[Job], most: int) -> list[JobId]:
    """The next elements of each array of which all that is under way is ahead: of others more would be let in."""
    under_way = Counter(job.batch_id for job in ahead if job.batch_id is not None and not job.phase.final)
    batches = ((state.asides.batches.get(batch_id), count) for batch_id, count in under_way.items())
    whole = [batch for batch, count in batches if batch is not None and batch.turns and batch.under_way == count]
    share = max(1, most // max(1, len(whole)))
    return [job_id for batch in whole for _, job_id in islice(batch.turns, share)]


def _comes(job: Job, state: State, known: dict[JobId, Job]) -> bool:
    parents = job.after.jobs if job.after is not None else ()
    return job.held is None and all(parent in known for parent in parents if parent in state.jobs)
