"""Which attempts are ended because they use more than they were promised.

The setting ``overuse`` decides: never (``warn``, ``reserve``), always (``kill``), or only while
somebody suffers from it (``kill-under-pressure``): a job on the same card that could not be
given what it was promised, or a waiting one that would start without the overrun. Only the
overrunner is ever ended.
"""

from __future__ import annotations

from dataclasses import replace

from .advice import amount_for
from .facts import rests
from .messages import Overrun
from .model import Job, Overuse, Phase
from .quantities import Mib, show_mib
from .release import is_earlier, use_of
from .room import Room, find, open_room
from .state import State


def overruns(state: State, now: float) -> list[Overrun]:
    """The attempts to end now, in the order of their ids."""
    policy = state.settings.overuse
    if policy not in {"kill", "kill-under-pressure"}:
        return []
    over = [job for job in state.busy.values() if _is_over(job)]
    if policy == "kill-under-pressure" and over:
        room = open_room(state, now)
        over = [job for job in over if _others_are_short(job, state) or _others_wait(job, state, room, now)]
    return [Overrun(job.id, job.attempt, words(job.overuse)) for job in over if job.overuse is not None]


def words(over: Overuse) -> str:
    """What it did, for a person, with the amount to ask for next time."""
    return (
        f"it used {show_mib(over.used)} on GPU {over.gpu}, where it had asked for {show_mib(over.promised)}; "
        f"submit it with --vram {show_mib(amount_for(over.used))}"
    )


def _is_over(job: Job) -> bool:
    return job.phase in {Phase.STARTING, Phase.RUNNING} and job.overuse is not None and job.overuse.told


def _excess(job: Job, state: State) -> dict[str, int]:
    """MiB above the promise by card."""
    return {
        grant.gpu: max(0, gpu.used_by_job.get(job.id, 0) - grant.promised)
        for grant in job.attempts[-1].gpus
        if (gpu := state.gpus.get(grant.gpu)) is not None
    }


def _others_are_short(job: Job, state: State) -> bool:
    """Whether what other jobs on one of its cards were promised and have not taken is not free any more."""
    for uuid, above in _excess(job, state).items():
        gpu = state.gpus[uuid]
        others = [grant for one in state.busy.values() if one.id != job.id for grant in one.grants if grant.gpu == uuid]
        owed = sum(
            max(0, grant.promised - (use_of(gpu, grant.job_id, earlier=is_earlier(others, grant)) or 0))
            for grant in others
        )
        if above and gpu.free is not None and owed > gpu.free:
            return True
    return False


def _others_wait(job: Job, state: State, room: Room, now: float) -> bool:
    """Whether a waiting job does not fit, and would if the overrun were not there."""
    offers = dict(room.offers)
    for uuid, above in _excess(job, state).items():
        if uuid in offers:
            offers[uuid] = replace(offers[uuid], free=Mib(offers[uuid].free + above))
    relieved = replace(room, offers=offers)
    wishes = {one.request for one in state.jobs.values() if one.phase is Phase.QUEUED and not rests(one, now)}
    return any(find(room, wish) is None and find(relieved, wish) is not None for wish in wishes)
