"""What a sample of the cards says about the grants: use, overruns, and memory that has been freed.

A grant outlives its attempt until the card shows the memory gone, so that nobody is placed
on memory that is still in use. One job's grants only; the sums per card are the ledger's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .frozen import replace
from .model import Gpu, GpuUuid, Grant, GrantState, Job, JobId, Settings
from .quantities import Mib

UNREADABLE = frozenset({"lost", "unknown"})
"""States of health in which a card's figures say nothing about its memory."""


def released(job: Job, grant: Grant, gpu: Gpu | None, settings: Settings, now: float) -> bool:
    """Whether a releasing grant of a job may go: the card shows its memory freed, or it had its time.

    Only a sample begun after the attempt ended counts. After the time allowed, what is
    still on the card is counted as foreign use, which is what it then is.
    """
    if grant.state is not GrantState.RELEASING:
        return False
    return _freed(job, grant, gpu) or now >= grant.since + settings.release_timeout_s


def _freed(job: Job, grant: Grant, gpu: Gpu | None) -> bool:
    if gpu is None or gpu.health in UNREADABLE or gpu.sampled_at <= grant.since:
        return False
    return not use_of(gpu, job.id, earlier=is_earlier(job.grants, grant))


def is_earlier(grants: Iterable[Grant], grant: Grant) -> bool:
    """Whether a later attempt of the same job is on the same card too."""
    return any(
        other.job_id == grant.job_id and other.gpu == grant.gpu and other.attempt > grant.attempt for other in grants
    )


def use_of(gpu: Gpu, job_id: JobId, *, earlier: bool) -> Mib | None:
    """MiB that a job's latest attempt on a card uses, or its earlier ones together; None = cannot be told."""
    return (gpu.used_by_earlier if earlier else gpu.used_by_job).get(job_id)


def measure(job: Job, gpus: Mapping[GpuUuid, Gpu]) -> Job:
    """The job with its use and peak as the cards show them; the largest on any of its cards.

    A promise that was overrun is raised to what was used, since the memory may be taken again.
    """
    if not job.phase.active:
        return job
    live = [grant for grant in job.grants if grant.attempt == job.attempt]
    readings = [seen for grant in live if (seen := _reading(job.id, gpus.get(grant.gpu))) is not None]
    if not readings:
        return job if job.used_vram_mib is None else replace(job, used_vram_mib=None)
    used = max(readings)
    attempt = replace(job.attempts[-1], peak_vram_mib=_larger(job.attempts[-1].peak_vram_mib, used))
    return replace(
        job,
        used_vram_mib=used,
        peak_vram_mib=_larger(job.peak_vram_mib, used),
        attempts=(*job.attempts[:-1], attempt),
        grants=tuple(_raised(grant, gpus.get(grant.gpu)) for grant in job.grants),
    )


def _reading(job_id: JobId, gpu: Gpu | None) -> Mib | None:
    return None if gpu is None or gpu.health in UNREADABLE else gpu.used_by_job.get(job_id)


def _raised(grant: Grant, gpu: Gpu | None) -> Grant:
    seen = _reading(grant.job_id, gpu)
    if grant.state is not GrantState.HELD or seen is None or seen <= grant.promised:
        return grant
    return replace(grant, promised=seen)


def _larger(before: Mib | None, now: Mib) -> Mib:
    return now if before is None else max(before, now)
