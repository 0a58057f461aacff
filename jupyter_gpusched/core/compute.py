"""How busy jobs keep the processors of the cards that they share.

Memory is counted by promises; computing is only measured, and only per card. A job that is
alone on a card shows what it uses; of a card that is full all the time each unknown job is
taken to be able to fill it. Cards without figures set no limit. Frozen values only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .frozen import replace
from .history import History
from .model import Gpu, GpuUuid, Grant, Job, JobId, Phase

FULL = 0.95
"""A card that is this busy hides how much its jobs could use."""

_SMOOTHING = 0.1
"""The weight of one sample against what was seen of a job before."""


def demand_on(gpu: Gpu, grants: Sequence[Grant], jobs: Mapping[JobId, Job], history: History) -> float | None:
    """The share of a card's processors that its jobs can keep busy together; 2 = twice what it has. None = unknown."""
    if gpu.utilization_pct is None:
        return None
    measured = gpu.utilization_pct / 100.0
    seen, fresh = 0.0, 0.0
    for job_id in {grant.job_id for grant in grants}:
        job = jobs[job_id]
        own = _known_share(job, gpu, history)
        if _is_unseen(job, gpu):
            fresh += own or 0.0
        else:
            seen += own if own is not None else 1.0
    return fresh + (seen if measured >= FULL else measured)


def freed_by(job: Job, gpu: Gpu, history: History) -> float:
    """By how much less busy a card is sure to be once a job has left it, as ``demand_on`` counts."""
    own = _known_share(job, gpu, history)
    if own is not None:
        return own
    return 1.0 if (gpu.utilization_pct or 0.0) / 100.0 >= FULL else 0.0


def _known_share(job: Job, gpu: Gpu, history: History) -> float | None:
    """What a job was seen to use; before the card shows anything of it, what such a one may; None = unknown."""
    own = job.compute if job.compute is not None else history.compute(job.owner, job.name)
    if own is not None or not _is_unseen(job, gpu):
        return own
    return max(0.3, (job.request.vram or 0) / max(1, gpu.total))


def _is_unseen(job: Job, gpu: Gpu) -> bool:
    """Whether what it got on the card it got after the card was measured."""
    return all(grant.since >= gpu.sampled_at for grant in job.grants if grant.gpu == gpu.uuid)


def watched(running: list[Job], gpus: Mapping[GpuUuid, Gpu]) -> list[Job]:
    """Those of the running jobs of which a sample shows how busy they keep their card, as they are then."""
    on: dict[GpuUuid, set[JobId]] = {}
    for job in running:
        for grant in job.grants:
            on.setdefault(grant.gpu, set()).add(job.id)
    seen = []
    for job in running:
        if job.phase is not Phase.RUNNING or not job.grants:
            continue
        shares = [_alone(job, gpus.get(grant.gpu), on[grant.gpu]) for grant in job.grants]
        known = [share for share in shares if share is not None]
        if len(known) == len(shares):
            busiest = max(known)
            before = job.compute
            seen.append(replace(job, compute=busiest if before is None else before + _SMOOTHING * (busiest - before)))
    return seen


def _alone(job: Job, gpu: Gpu | None, holders: set[JobId]) -> float | None:
    """The share of a card's processors in use, if this job alone is on it and was when it was measured."""
    if gpu is None or gpu.utilization_pct is None or gpu.health != "ok" or holders != {job.id} or gpu.foreign:
        return None
    since = job.attempts[-1].started_at
    return None if since is None or since >= gpu.sampled_at else gpu.utilization_pct / 100.0
