"""For how long nothing has happened on a card for those who hold it: the evidence for idle alerts.

Counts only time that samples cover, so that a card which could not be read is neither busy nor
idle. The rule is "no sample above the limit", never an average: one busy sample begins anew.
Pure; ``alerts`` decides what is worth telling.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from .frozen import replace
from .model import Foreign, Gpu, GpuUuid, Job, JobId, Phase, Settings
from .operations import LITTLE_MIB, Alert
from .release import UNREADABLE

LONGEST_GAP_S = 60.0
"""Samples further apart say nothing about the time between them."""

SIGN_OF = {"idle_job": "idle", "idle_kernel": "idle", "held_unused": "unused", "unattributed": "unattributed"}
"""The sign that each kind of alert rests on."""


class Key(NamedTuple):
    """What is watched on a card: ``idle``, ``unused`` or ``unattributed``, for a job id or a pid."""

    gpu: GpuUuid
    sign: str
    holder: str


@dataclass(frozen=True, slots=True)
class Quiet:
    """A sign that every sample has shown. ``known_s`` is the time that samples cover, ``at`` the latest of them."""

    since: float
    at: float
    known_s: float = 0.0


Watch = Mapping[Key, Quiet]


def observe(watch: Watch, gpus: Iterable[Gpu], holders: Mapping[GpuUuid, list[Job]], settings: Settings) -> Watch:
    """The watch after one more sample of the cards. ``holders`` are the living jobs with a grant on each card."""
    cards = tuple(gpus)
    if not cards:  # no driver answers, or not yet
        return watch
    seen: dict[Key, Quiet] = {}
    for gpu in cards:
        for key, shows in _signs(gpu, holders.get(gpu.uuid, ()), settings):
            known = watch.get(key)
            if shows is None and known is not None:
                seen[key] = known
            elif shows:
                seen[key] = _longer(known, gpu.sampled_at)
    return seen


def idled(
    jobs: Iterable[Job], before: Mapping[GpuUuid, Gpu], now: Mapping[GpuUuid, Gpu], settings: Settings
) -> list[Job]:
    """Those of the jobs whose cards were seen twice since they run, with that time, and whether it was idle."""
    changed = []
    for job in jobs:
        if job.phase is not Phase.RUNNING or (begun := job.attempts[-1].started_at) is None:
            continue
        watched = idle = 0.0
        for grant in job.grants:
            gpu, earlier = now.get(grant.gpu), before.get(grant.gpu)
            if grant.attempt != job.attempt or gpu is None or earlier is None or gpu.health in UNREADABLE:
                continue
            span = gpu.sampled_at - max(earlier.sampled_at, begun)
            if gpu.utilization_pct is not None and 0 < span <= LONGEST_GAP_S:
                watched += span
                idle += span if gpu.utilization_pct <= settings.idle_above_pct else 0.0
        if watched:
            watched, idle = job.watched_gpu_s + watched, job.idle_gpu_s + idle
            changed.append(replace(job, watched_gpu_s=watched, idle_gpu_s=idle))
    return changed


def remembered(alerts: Iterable[Alert], settings: Settings) -> Watch:
    """What a new host knows of the last one's watch: whoever was idle then is so until a sample says otherwise."""
    return {
        Key(alert.gpu_uuid, sign, alert.id.rpartition(":")[2]): Quiet(alert.since, 0.0, settings.idle_after_s)
        for alert in alerts
        if alert.gpu_uuid is not None and (sign := SIGN_OF.get(alert.kind)) is not None
    }


def pid_key(gpu: Gpu, process: Foreign) -> Key:
    return Key(gpu.uuid, "idle", str(process.pid))


def job_key(gpu: Gpu, job_id: JobId, sign: str) -> Key:
    return Key(gpu.uuid, sign, job_id)


def card_key(gpu: Gpu) -> Key:
    return Key(gpu.uuid, "unattributed", "")


def _longer(known: Quiet | None, at: float) -> Quiet:
    if known is None:
        return Quiet(at, at)
    gap = at - known.at
    return Quiet(known.since, max(at, known.at), known.known_s + (gap if 0 < gap <= LONGEST_GAP_S else 0.0))


def _signs(gpu: Gpu, jobs: Iterable[Job], settings: Settings) -> Iterator[tuple[Key, bool | None]]:
    """Each sign to look for on a card; None where this sample cannot tell."""
    readable = gpu.health not in UNREADABLE
    load = gpu.utilization_pct if readable else None
    quiet = None if load is None else load <= settings.idle_above_pct
    for process in gpu.foreign:
        if process.vram is not None and process.vram >= LITTLE_MIB:
            yield pid_key(gpu, process), quiet
    for job in jobs:
        used = gpu.used_by_job.get(job.id) if readable else None
        yield job_key(gpu, job.id, "idle"), quiet if used is None or used else False
        yield job_key(gpu, job.id, "unused"), None if used is None else not used
    nobodys = gpu.unattributed if readable else None
    yield card_key(gpu), None if nobodys is None else nobodys > LITTLE_MIB
