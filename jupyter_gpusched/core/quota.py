"""What the limits of its owner mean for a job: whether it may be taken in, and whether it may start now.

A limit is a reason to wait, never to end anything: lower ones take effect on what has not started.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from .held import Held
from .ledger import devices
from .limits import Allowance, Rlimits
from .model import BadRequest, Gpu, GpuUuid, Job, JobId, Phase, Request, Settings
from .quantities import show_mib, show_seconds


class LimitReached(BadRequest):
    """The administrator's limits do not allow it; the message tells the limit."""

    code = "limit_reached"


class Known(Protocol):
    """As much of the state as limits depend on."""

    @property
    def settings(self) -> Settings: ...
    @property
    def jobs(self) -> Mapping[JobId, Job]: ...
    @property
    def gpus(self) -> Mapping[GpuUuid, Gpu]: ...
    @property
    def held(self) -> Held: ...
    @property
    def claimants(self) -> frozenset[JobId]: ...


class Use(NamedTuple):
    """What an owner's jobs have that run, in the terms of the limits; VRAM and memory in MiB."""

    jobs: int = 0
    gpus: int = 0
    vram: int = 0
    cpus: int = 0
    memory: int = 0

    def with_job(self, request: Request, vram: int) -> Use:
        return Use(
            self.jobs + 1,
            self.gpus + request.gpus,
            self.vram + vram,
            self.cpus + (request.cpus or 0),
            self.memory + (request.memory or 0),
        )


class Quota:
    """Whom limits keep from starting, at one moment; ``took`` tells it of what starts meanwhile."""

    def __init__(self, state: Known) -> None:
        self._state = state
        self._limits = state.settings.limits
        self._used: dict[str, Use] = {}

    def bars(self, job: Job) -> str | None:
        """Which limit keeps a waiting job from starting now, as a sentence with numbers; None = none does.

        A job for which others were evicted counts as running already.
        """
        if not self._limits or (job.claim is not None and job.claim.evicting):
            return None
        allowance = self._limits.of(job.owner, job.groups)
        return _beyond(allowance, job, self.use(job.owner), self._state)

    def took(self, job: Job) -> None:
        """The job starts, or others are ended for it."""
        counted = job.claim is not None and job.claim.evicting
        if self._limits and not counted:
            self._used[job.owner] = self.use(job.owner).with_job(job.request, _vram_of(job.request, self._state))

    def use(self, owner: str) -> Use:
        used = self._used.get(owner)
        if used is None:
            used = self._used[owner] = use_of_owner(self._state, owner)
        return used


def use_of_owner(state: Known, owner: str) -> Use:
    """What the owner's jobs have that run, and those for which others are being ended."""
    used = Use()
    for job in state.held.owners.get(owner, ()):
        used = used.with_job(job.request, sum(grant.promised for grant in job.grants))
    for job_id in state.claimants:
        job = state.jobs[job_id]
        if job.owner == owner and job.claim is not None and job.claim.evicting:
            used = used.with_job(job.request, _vram_of(job.request, state))
    return used


def check_queue(user: str, groups: tuple[str, ...], state: Known, *, waiting: int, joining: int) -> None:
    """Refuse jobs that would be more than their owner may have waiting. Raises ``LimitReached``.

    waiting  jobs of the owner that wait already, or are about to.
    """
    most = state.settings.limits.of(user, groups).queued_jobs if state.settings.limits else None
    if most is not None and waiting + joining > most:
        more = "" if joining == 1 else f"; {joining} more are too many"
        raise LimitReached(
            f"{user} may have {_count(most, 'waiting job')} at a time, and {waiting} wait{more}.",
            hint="Submit when some of them have started, or cancel some.",
        )


def check_terms(job: Job, state: Known) -> None:
    """Refuse terms that the owner's limits exclude whatever else goes on. Raises ``LimitReached``."""
    limits = state.settings.limits
    if not limits:
        return
    allowance = limits.of(job.owner, job.groups)
    if allowance.priorities is not None and job.priority.value not in allowance.priorities:
        listed = ", ".join(allowance.priorities) or "none"
        raise LimitReached(
            f"priority: {job.owner} may not use {job.priority.value!r}.", field="priority", hint=f"Allowed: {listed}."
        )
    longest = allowance.longest_time_s
    if longest is not None and job.time_limit_s is not None and job.time_limit_s > longest:
        raise LimitReached(
            f"time_limit: jobs of {job.owner} may run for {show_seconds(longest)} at most.",
            field="time_limit",
            hint="Ask for less, and let the job go on from its checkpoint when it is submitted again.",
        )
    words = _beyond(allowance, job, Use(), state)
    if words is not None:
        raise LimitReached(
            f"It could never start: {words}.", hint="Ask for less, or ask the administrator for a higher limit."
        )


def longest_time_s(job: Job, state: Known) -> float | None:
    """The time limit of a job that names none."""
    return state.settings.limits.of(job.owner, job.groups).longest_time_s if state.settings.limits else None


def rlimits_of(job: Job, state: Known) -> Rlimits:
    """The kernel's limits for its processes, by the limits in force now."""
    limits = state.settings.limits
    return limits.of(job.owner, job.groups).rlimits if limits else {}


def _beyond(allowance: Allowance, job: Job, used: Use, state: Known) -> str | None:
    owner, request = job.owner, job.request
    if allowance.running_jobs is not None and used.jobs >= allowance.running_jobs:
        return f"{owner} may run {_count(allowance.running_jobs, 'job')} at a time, and {_are(used.jobs)} running"
    if allowance.gpus is not None and request.gpus and used.gpus + request.gpus > allowance.gpus:
        return (
            f"{owner} may use {_count(allowance.gpus, 'GPU')} at a time; {_are(used.gpus)} in use, "
            f"and it asks for {request.gpus}"
        )
    if allowance.cpus is not None and request.cpus and used.cpus + request.cpus > allowance.cpus:
        return (
            f"{owner} may use {_count(allowance.cpus, 'CPU')} at a time; {_are(used.cpus)} in use, "
            f"and it asks for {request.cpus}"
        )
    if allowance.memory is not None and request.memory and used.memory + request.memory > allowance.memory:
        return (
            f"{owner} may use {show_mib(allowance.memory)} of host memory at a time; {show_mib(used.memory)} in use, "
            f"and it asks for {show_mib(request.memory)}"
        )
    if allowance.vram_share is not None and request.gpus and state.gpus:
        capacity = sum(gpu.total for gpu in devices(state.gpus.values()))
        most, wanted = int(allowance.vram_share * capacity), _vram_of(request, state)
        if used.vram + wanted > most:
            return (
                f"{owner} may have {show_mib(most)} of GPU memory at a time ({allowance.vram_share:.0%} of all cards); "
                f"{show_mib(used.vram)} are promised, and it asks for {show_mib(wanted)}"
            )
    return None


def _vram_of(request: Request, state: Known) -> int:
    """What it will be promised; for whole cards the largest there are."""
    if request.vram is not None:
        return request.vram * request.gpus
    sizes = sorted((gpu.total for gpu in devices(state.gpus.values())), reverse=True)
    return sum(sizes[: request.gpus])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _are(number: int) -> str:
    return f"{number} is" if number == 1 else f"{number} are"


def waiting_of(owner: str, jobs: Iterable[Job]) -> int:
    """How many of these jobs wait and are this owner's."""
    return sum(1 for job in jobs if job.owner == owner and job.phase is Phase.QUEUED)
