"""What busy jobs hold, kept in step with them: by card, by owner and of the host.

So a scheduling pass need not add it all up again. It follows from the busy jobs alone, in
whatever order they came to be so. Frozen, but for what it remembers of its own sums.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from .frozen import quick
from .history import Outlook
from .model import GpuUuid, Grant, GrantState, Job, JobId, Phase

_id = attrgetter("id")
_job_id = attrgetter("job_id")


Load = tuple[JobId, float, float, float]
"""An active job on cards: MiB times seconds that it was expected to take, since when it has them, and its MiB.

Sums go over hundreds of them, and take a quarter of the time with plain tuples of floats alone.
"""


@quick
@dataclass(frozen=True, slots=True)
class Held:
    """``active`` are the jobs in an attempt; those whose memory is still being freed hold grants only.

    grants        by card, in the order of the jobs' ids.
    owners        their active jobs, in the order of the ids.
    loads         active jobs on cards, in the order of the ids.
    cpus, memory  what active jobs ask of the host.
    evictable     active jobs that agreed to be ended for others.
    leaving       jobs of which memory will be free in a moment without anything more being done.
    sums          what was worked out of a part, by that part; whoever reads it checks that the part is the same.
    shares        the same of owners' shares, by owner.
    outlooks      what was last expected of each active job, and since when it runs; checked likewise.
    """

    grants: Mapping[GpuUuid, tuple[Grant, ...]] = field(default_factory=dict)
    owners: Mapping[str, tuple[Job, ...]] = field(default_factory=dict)
    loads: tuple[Load, ...] = ()
    cpus: int = 0
    memory: int = 0
    evictable: frozenset[JobId] = frozenset()
    leaving: frozenset[JobId] = frozenset()
    sums: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)
    shares: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    outlooks: dict[JobId, tuple[Job, Outlook, float | None]] = field(default_factory=dict, compare=False, repr=False)

    def moved(self, before: Sequence[Job | None], after: Sequence[Job]) -> Held:
        """What is held after some jobs changed."""
        grants: dict[GpuUuid, tuple[Grant, ...]] = {}
        owners: dict[str, tuple[Job, ...]] = {}
        loads, cpus, memory = self.loads, self.cpus, self.memory
        evictable, leaving = self.evictable, self.leaving
        touched = False
        for was, job in zip(before, after, strict=True):
            was_active, active = was is not None and was.phase.active, job.phase.active
            had = was.grants if was is not None else ()
            if not (was_active or active or had or job.grants):
                continue
            touched = True
            if had is not job.grants:
                for uuid in {grant.gpu for grant in (*had, *job.grants)}:
                    on_card = grants.get(uuid, self.grants.get(uuid, ()))
                    grants[uuid] = _with_grants(on_card, job.id, [grant for grant in job.grants if grant.gpu == uuid])
            if was is not None and was_active and active and was.owner == job.owner:
                owners[job.owner] = _instead(owners.get(job.owner, self.owners.get(job.owner, ())), job)
            else:
                if was is not None and was_active:
                    owners[was.owner] = _without(owners.get(was.owner, self.owners.get(was.owner, ())), was.id)
                if active:
                    owners[job.owner] = _with(owners.get(job.owner, self.owners.get(job.owner, ())), job)
            if was_active != active or was is None or was.request is not job.request:
                cpus += _asked(job, active)[0] - _asked(was, was_active)[0]
                memory += _asked(job, active)[1] - _asked(was, was_active)[1]
            loads = _with_load(loads, job.id, _load(job) if active else None)
            evictable = _member(evictable, job.id, active and job.may_be_evicted)
            leaving = _member(leaving, job.id, _leaves(job))
        if not touched:
            return self
        return Held(
            grants=_merged(self.grants, grants),
            owners=_merged(self.owners, owners),
            loads=loads,
            cpus=cpus,
            memory=memory,
            evictable=evictable,
            leaving=leaving,
            sums=self.sums,
            shares=self.shares,
            outlooks=self.outlooks,
        )


def _asked(job: Job | None, active: bool) -> tuple[int, int]:
    """CPUs and MiB of host memory that count against the machine's."""
    return (job.request.cpus or 0, job.request.memory or 0) if job is not None and active else (0, 0)


def _leaves(job: Job) -> bool:
    if job.phase is Phase.STOPPING:
        return True
    return bool(job.grants) and any(grant.state is GrantState.RELEASING for grant in job.grants)


def _member(members: frozenset[JobId], job_id: JobId, belongs: bool) -> frozenset[JobId]:
    if (job_id in members) == belongs:
        return members
    return members | {job_id} if belongs else members - {job_id}


def _with_grants(on_card: tuple[Grant, ...], job_id: JobId, now: list[Grant]) -> tuple[Grant, ...]:
    at = bisect_left(on_card, job_id, key=_job_id)
    end = at
    while end < len(on_card) and on_card[end].job_id == job_id:
        end += 1
    return (*on_card[:at], *now, *on_card[end:])


def _load(job: Job) -> Load | None:
    grants = job.attempts[-1].gpus
    if not grants:
        return None
    return job.id, float(job.work or 0), float(grants[0].since), float(grants[0].promised * len(grants))


def _with_load(loads: tuple[Load, ...], job_id: JobId, load: Load | None) -> tuple[Load, ...]:
    at = bisect_left(loads, (job_id,))
    here = at < len(loads) and loads[at][0] == job_id
    if load == (loads[at] if here else None):
        return loads
    return (*loads[:at], *(() if load is None else (load,)), *loads[at + here :])


def _instead(jobs: tuple[Job, ...], job: Job) -> tuple[Job, ...]:
    at = bisect_left(jobs, job.id, key=_id)
    return (*jobs[:at], job, *jobs[at + 1 :])


def _with(jobs: tuple[Job, ...], job: Job) -> tuple[Job, ...]:
    at = bisect_left(jobs, job.id, key=_id)
    return (*jobs[:at], job, *jobs[at:])


def _without(jobs: tuple[Job, ...], job_id: JobId) -> tuple[Job, ...]:
    at = bisect_left(jobs, job_id, key=_id)
    return (*jobs[:at], *jobs[at + 1 :])


_Of = Mapping[str, tuple[Any, ...]]


def _merged(known: _Of, changed: _Of) -> _Of:
    if not changed:
        return known
    merged = {**known, **changed}
    for key, value in changed.items():
        if not value:
            del merged[key]
    return merged
