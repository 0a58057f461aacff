"""What goes into the core (events) and what comes out (instructions).

An event is a fact about the world or a wish of a user; an instruction is something the
shell must do, and its result comes back as an event. An attempt is named by (job, number),
so that an echo of an earlier attempt can never be taken for the current one.
"""

from __future__ import annotations

from dataclasses import dataclass

from .model import Claim, ExitRecord, Gpu, Grant, Job, JobId, Terms


@dataclass(frozen=True, slots=True)
class Submitted:
    """Users queued jobs; all of them or none."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class Sampled:
    """The cards as just measured; cards that are absent are no longer known."""

    gpus: tuple[Gpu, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """The policy gave a queued job its cards; ``grants`` is empty for a job without GPUs."""

    job_id: JobId
    grants: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class Claimed:
    """The policy keeps cards for a waiting job (or, with None, stops doing so).

    rests_until  too much lay idle for its sake, so that nothing is kept for it before then.
    """

    job_id: JobId
    claim: Claim | None
    rests_until: float | None = None


@dataclass(frozen=True, slots=True)
class Evicted:
    """The policy ends an attempt of a preemptible job, so that a more urgent one may start; ``by`` is whose."""

    job_id: JobId
    attempt: int
    by: str


@dataclass(frozen=True, slots=True)
class Started:
    job_id: JobId
    attempt: int
    at: float


@dataclass(frozen=True, slots=True)
class MainEnded:
    """The first process of the attempt is gone; its supervisor is ending what it left behind."""

    job_id: JobId
    attempt: int
    at: float


@dataclass(frozen=True, slots=True)
class Exited:
    job_id: JobId
    attempt: int
    exit: ExitRecord


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """The attempt could not be started; no user code ran."""

    job_id: JobId
    attempt: int
    reason: str  # launch_failed | cwd_missing
    message: str


@dataclass(frozen=True, slots=True)
class Voided:
    """The host won the attempt's claim, so no user code ran and none will."""

    job_id: JobId
    attempt: int


@dataclass(frozen=True, slots=True)
class Vanished:
    """Nobody can say how the attempt ended; ``message`` says what is known."""

    job_id: JobId
    attempt: int
    message: str


@dataclass(frozen=True, slots=True)
class GpuLost:
    """A card under a living attempt cannot be used any more; ``what`` names it and says why."""

    job_id: JobId
    attempt: int
    what: str


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """A user wants the job ended. ``grace_s`` None = the job's own."""

    job_id: JobId
    by: str
    grace_s: float | None = None


@dataclass(frozen=True, slots=True)
class Amended:
    """The owner of a waiting job wants it on other terms."""

    job_id: JobId
    by: str
    terms: Terms


Event = (
    Submitted
    | Sampled
    | Placed
    | Claimed
    | Evicted
    | Started
    | MainEnded
    | Exited
    | LaunchFailed
    | Voided
    | Vanished
    | GpuLost
    | CancelRequested
    | Amended
)


@dataclass(frozen=True, slots=True)
class Launch:
    """Start this attempt. The job has been written down as starting."""

    job_id: JobId
    attempt: int


@dataclass(frozen=True, slots=True)
class StopAttempt:
    """End this attempt: void its claim if it has not been taken, else end its processes."""

    job_id: JobId
    attempt: int
    reason: str
    grace_s: float


@dataclass(frozen=True, slots=True)
class SampleNow:
    """Memory may have been freed: look at the cards at once."""


Instruction = Launch | StopAttempt | SampleNow


@dataclass(frozen=True, slots=True)
class Change:
    """A job after one event; ``kind`` names the event for the journal (``placed``, ``exited``, ...)."""

    job: Job
    kind: str
    at: float
    detail: dict[str, object]
