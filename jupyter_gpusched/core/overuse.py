"""Whether an attempt uses more of a card than it was promised, and for how long already.

Above is what is more than the promise times a factor and a margin, in several samples in a
row. A job's own figures only; what is done about it is ``enforce``'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .frozen import replace
from .ledger import usable
from .model import Gpu, GpuUuid, Grant, Job, Overuse, Settings
from .quantities import Mib
from .release import UNREADABLE

LEAST_APART_S = 0.5
"""Samples closer together are one: a look at the cards is asked for whenever a job ends."""


class _Excess(NamedTuple):
    above: int
    gpu: Gpu
    used: Mib
    promised: Mib


def most_allowed(promised: Mib, settings: Settings) -> Mib:
    """MiB up to which use counts as kept to the promise: frameworks and contexts are not exact."""
    return Mib(int(promised * settings.overuse_factor) + settings.overuse_margin)


def watch(job: Job, gpus: Mapping[GpuUuid, Gpu], settings: Settings) -> Job:
    """The job after a sample: above its promise once more, or not any more.

    A card that cannot be read says nothing, so that an episode neither goes on nor ends there.
    """
    if not job.phase.active or job.request.whole_cards or not job.attempts[-1].gpus:
        return job
    grants = job.attempts[-1].gpus
    readings = [seen for grant in grants if (seen := _excess(job, grant, gpus.get(grant.gpu), settings)) is not None]
    if not readings:
        return job
    worst = max(readings, key=lambda seen: seen.above)
    if worst.above <= 0:
        return job if job.overuse is None else replace(job, overuse=None)
    return replace(job, overuse=_counted(job.overuse, worst))


def newly_told(job: Job, settings: Settings) -> Job | None:
    """The job with its episode marked as told, once it has lasted long enough; None = nothing to tell."""
    over = job.overuse
    if over is None or over.told or over.samples < settings.overuse_samples:
        return None
    return replace(job, overuse=replace(over, told=True))


def reserved(job: Job, gpus: Mapping[GpuUuid, Gpu], settings: Settings) -> Job:
    """The job with its promise raised to what it uses, for this attempt and for later ones: it is within it again."""
    last = job.attempts[-1]
    raised = tuple(_raised(job, grant, gpus.get(grant.gpu), settings) for grant in last.gpus)
    most = max(grant.promised for grant in raised)
    request = replace(job.request, vram=Mib(max(job.request.vram or 0, most)))
    attempts = (*job.attempts[:-1], replace(last, gpus=raised))
    return replace(job, attempts=attempts, request=request, overuse=None)


def _raised(job: Job, grant: Grant, gpu: Gpu | None, settings: Settings) -> Grant:
    used = 0 if gpu is None else gpu.used_by_job.get(job.id, 0)
    most = grant.promised if gpu is None else usable(gpu, settings)  # a later attempt must still fit on the card
    return replace(grant, promised=Mib(max(grant.promised, min(used, most))))


def _excess(job: Job, grant: Grant, gpu: Gpu | None, settings: Settings) -> _Excess | None:
    if gpu is None or gpu.health in UNREADABLE or (used := gpu.used_by_job.get(job.id)) is None:
        return None
    return _Excess(used - most_allowed(grant.promised, settings), gpu, used, grant.promised)


def _counted(before: Overuse | None, worst: _Excess) -> Overuse:
    at = worst.gpu.sampled_at
    seen = before or Overuse(
        0, since=at, at=at - LEAST_APART_S, gpu=worst.gpu.index, used=worst.used, promised=worst.promised
    )
    if at >= seen.at + LEAST_APART_S:
        seen = replace(seen, samples=seen.samples + 1, at=at)
    return replace(seen, gpu=worst.gpu.index, used=worst.used, promised=worst.promised)
