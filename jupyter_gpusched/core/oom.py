"""What becomes of a job that ran out of GPU memory: tried again under other conditions, or not at all.

The same job in the same place would fail the same way. So it goes to another card, or back
only when clearly more is available there, or is promised more (``on_oom="retry"``). Decides for
one job; that its wish is met is ``room``'s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from .ledger import devices, foreign_use, headroom, promised_but_unseen, serves, usable
from .messages import Remedy
from .model import CLEARLY_MORE_MIB, ExitRecord, Floor, Gpu, GpuUuid, Grant, Job, JobId, Outcome, Request, Settings
from .overuse import most_allowed
from .quantities import Mib, show_mib

MOST_RAISES = 3
"""``on_oom="retry"`` tries so often, or as often as ``retries`` allows if that is more."""

STEP_MIB = 512


def remedy(
    job: Job, record: ExitRecord, jobs: Mapping[JobId, Job], gpus: Mapping[GpuUuid, Gpu], settings: Settings
) -> Remedy:
    """Whether and on what terms a job is tried again whose attempt has just ended out of GPU memory.

    jobs  all that hold grants, this one among them as it was before the end.
    """
    failed = 1 + sum(attempt.outcome is Outcome.FAILED for attempt in job.attempts)
    limit = max(job.retries, MOST_RAISES) if job.on_oom == "retry" else job.retries
    if failed > limit:
        return Remedy(None, f"; that was attempt {failed} of {limit + 1}" if limit else "")
    if not job.attempts[-1].gpus:
        return Remedy(None, "; it is not tried again, since it has no GPU that could have more")
    others_took_it = starved(job, record, gpus, settings)
    if job.on_oom == "retry" and not others_took_it:
        raised = _raised(job, record, gpus, settings)
        if raised is not None:
            request = replace(job.request, vram=raised, floors=())
            was = show_mib(job.request.vram)
            return Remedy(request, f"; it is tried again with {show_mib(raised)} instead of {was}")
    floors = _floors(job, record, jobs, gpus, settings, starved=others_took_it)
    request = replace(job.request, floors=floors)
    if not _can_change(job, request, jobs, gpus, settings):
        return Remedy(None, "; it is not tried again, since no GPU here can have more available than there was")
    if others_took_it:
        return Remedy(request, "; others had taken what it was promised, so it is tried again where that is available")
    return Remedy(request, "; it is tried again on another GPU, or where more is available")


def starved(job: Job, record: ExitRecord, gpus: Mapping[GpuUuid, Gpu], settings: Settings) -> bool:
    """Whether others took what it was promised: it asked for no more than its own, and that was not free."""
    asked = record.shortage.asked if record.shortage else None
    peak = job.attempts[-1].peak_vram_mib
    if asked is None or peak is None or job.request.vram is None:
        return False
    if peak + asked > most_allowed(job.request.vram, settings):
        return False
    free = record.shortage.free if record.shortage else None
    if free is None:
        known = [gpu.free for grant in job.attempts[-1].gpus if (gpu := gpus.get(grant.gpu)) is not None]
        free = min((mib for mib in known if mib is not None), default=None)
    return free is not None and free < asked


def _raised(job: Job, record: ExitRecord, gpus: Mapping[GpuUuid, Gpu], settings: Settings) -> Mib | None:
    """The next promise: a quarter more, or what it had and wanted with a tenth on top; None when there is no more."""
    vram = job.request.vram
    if vram is None:
        return None
    asked = record.shortage.asked if record.shortage else None
    wanted = 0.0 if asked is None else 1.1 * ((job.attempts[-1].peak_vram_mib or 0) + asked)
    raised = math.ceil(max(1.25 * vram, wanted) / STEP_MIB) * STEP_MIB
    sizes = sorted((usable(gpu, settings) for gpu in _suited(job.request, gpus)), reverse=True)
    if len(sizes) < job.request.gpus:
        return None
    raised = min(raised, sizes[job.request.gpus - 1])
    return Mib(raised) if raised > vram else None


def _floors(
    job: Job,
    record: ExitRecord,
    jobs: Mapping[JobId, Job],
    gpus: Mapping[GpuUuid, Gpu],
    settings: Settings,
    *,
    starved: bool,
) -> tuple[Floor, ...]:
    """What was available to it on each of its cards, beside what is known of earlier failures.

    A job that was starved had less than its promise, whatever the sample before says.
    """
    had = {floor.gpu: floor.had for floor in job.request.floors}
    for grant in job.attempts[-1].gpus:
        gpu = gpus.get(grant.gpu)
        available = None if gpu is None else _available_to(job, record, gpu, jobs, settings)
        known = grant.promised if available is None else available
        had[grant.gpu] = Mib(min(known, grant.promised - CLEARLY_MORE_MIB)) if starved else known
    return tuple(Floor(uuid, had[uuid]) for uuid in sorted(had))


def _available_to(job: Job, record: ExitRecord, gpu: Gpu, jobs: Mapping[JobId, Job], settings: Settings) -> Mib | None:
    """A of the card as this job has it: what it uses itself counts as available, what others were promised does not.

    What the framework saw at the failure goes before an older sample, if it saw both.
    """
    free, own = gpu.free, gpu.used_by_job.get(job.id, Mib(0))
    if record.shortage is not None and record.shortage.free is not None and record.shortage.held is not None:
        free, own = record.shortage.free, Mib(max(own, record.shortage.held))
    if free is None:
        return None
    return Mib(free + own - headroom(gpu, settings) - promised_but_unseen(gpu, _grants_of_others(job, gpu, jobs)))


def _can_change(
    job: Job, request: Request, jobs: Mapping[JobId, Job], gpus: Mapping[GpuUuid, Gpu], settings: Settings
) -> bool:
    """Whether enough cards may one day have what the request waits for."""
    floored = {floor.gpu for floor in request.floors}
    hopeful = [
        gpu
        for gpu in _suited(request, gpus)
        if (request.vram or 0) <= usable(gpu, settings)
        and (gpu.uuid not in floored or _may_grow(job, gpu, jobs, settings))
    ]
    return len(hopeful) >= request.gpus


def _may_grow(job: Job, gpu: Gpu, jobs: Mapping[JobId, Job], settings: Settings) -> bool:
    """Whether others have enough there that more can become available than there was."""
    others = _grants_of_others(job, gpu, jobs)
    ours = sum(grant.promised for grant in others)
    foreign = foreign_use(gpu, [job.id, *(grant.job_id for grant in others)])
    if foreign is None:
        return True
    return ours + max(0, foreign - settings.foreign_limit) >= CLEARLY_MORE_MIB


def _grants_of_others(job: Job, gpu: Gpu, jobs: Mapping[JobId, Job]) -> list[Grant]:
    return [grant for one in jobs.values() if one.id != job.id for grant in one.grants if grant.gpu == gpu.uuid]


def _suited(request: Request, gpus: Mapping[GpuUuid, Gpu]) -> list[Gpu]:
    return [gpu for gpu in devices(gpus.values()) if serves(gpu, request)]
