"""What goes into the core (events) and what comes out (instructions).

An event is a fact about the world or a wish of a user; an instruction is something the
shell must do, and its result comes back as an event. An attempt is named by (job, number),
so that an echo of an earlier attempt can never be taken for the current one.
"""

from __future__ import annotations

from dataclasses import dataclass

from .frozen import quick
from .limits import Limits
from .model import Choice, Claim, ExitRecord, Gpu, GpuUuid, Grant, Job, JobId, Request, Terms
from .operations import Operations, Reservation


@dataclass(frozen=True, slots=True)
class Submitted:
    """Users queued jobs; all of them or none.

    ended  those that they are to start after and that had ended by then, as the journal has them.
    by     the administrator who queued them in their owner's place.
    """

    jobs: tuple[Job, ...]
    ended: tuple[Job, ...] = ()
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Sampled:
    """The cards as just measured; cards that are absent are no longer known."""

    gpus: tuple[Gpu, ...]


@quick
@dataclass(frozen=True, slots=True)
class Placed:
    """The policy gave a queued job its cards; ``grants`` is empty for a job without GPUs, ``choice`` says why these."""

    job_id: JobId
    grants: tuple[Grant, ...]
    choice: Choice | None = None


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
    """The policy ends an attempt of a preemptible job, so that a more urgent one may start; ``by`` is whose.

    whom  for what it is ended, as part of a sentence.
    """

    job_id: JobId
    attempt: int
    by: str
    whom: str | None = None


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
class Remedy:
    """What becomes of an attempt that ran out of GPU memory.

    request  what the next attempt asks for; None = there is none.
    words    what is added to its message.
    """

    request: Request | None
    words: str


@dataclass(frozen=True, slots=True)
class Exited:
    """``remedy`` is worked out by ``oom`` where the reason is ``cuda_oom``."""

    job_id: JobId
    attempt: int
    exit: ExitRecord
    remedy: Remedy | None = None


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
class Overrun:
    """An attempt is to be ended since it uses more than it was promised; ``what`` says how much where."""

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
class HoldRequested:
    """A waiting job is not to start until it is released."""

    job_id: JobId
    by: str
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class ReleaseRequested:
    """Its owner lets a held job go on."""

    job_id: JobId
    by: str


@dataclass(frozen=True, slots=True)
class Together:
    """The same wish about many jobs, in one step; what a job does not admit is left out."""

    events: tuple[CancelRequested | HoldRequested | ReleaseRequested | Amended, ...]


@dataclass(frozen=True, slots=True)
class Unblocked:
    """All jobs that it was to start after have ended as it needs it."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class DependencyFailed:
    """A job that it was to start after did not succeed; ``words`` say which and how."""

    job_id: JobId
    parent: JobId
    words: str


@dataclass(frozen=True, slots=True)
class LetIn:
    """It is this element's turn: fewer of its array are under way than may be."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class Amended:
    """The owner of a waiting job wants it on other terms."""

    job_id: JobId
    by: str
    terms: Terms


@dataclass(frozen=True, slots=True)
class Reordered:
    """The owner of two waiting jobs wants one right before, or right after, the other."""

    job_id: JobId
    by: str
    anchor: JobId
    before: bool


@dataclass(frozen=True, slots=True)
class Quarantined:
    """An administrator wants a card to get no jobs."""

    gpu: GpuUuid
    by: str
    cause: str


@dataclass(frozen=True, slots=True)
class Returned:
    """An administrator, or the configured check, gives a quarantined card back."""

    gpu: GpuUuid
    by: str
    cause: str


@dataclass(frozen=True, slots=True)
class Drained:
    """An administrator wants nothing new to start on this machine."""

    by: str
    cause: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """The end of a drain."""

    by: str
    cause: str


@dataclass(frozen=True, slots=True)
class LimitsChanged:
    """An administrator has changed what users may have. Nothing that runs is ended for it."""

    by: str
    limits: Limits


@dataclass(frozen=True, slots=True)
class Reserved:
    """An administrator keeps cards for somebody."""

    reservation: Reservation


@dataclass(frozen=True, slots=True)
class Unreserved:
    """A reservation is given back before its end."""

    reservation_id: str
    by: str


CardsEvent = Quarantined | Returned | Drained | Resumed
OperationsEvent = CardsEvent | LimitsChanged | Reserved | Unreserved
"""What is decided about the machine and no job."""

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
    | Overrun
    | CancelRequested
    | HoldRequested
    | ReleaseRequested
    | Together
    | Unblocked
    | DependencyFailed
    | LetIn
    | Amended
    | Reordered
    | OperationsEvent
)


@quick
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
    """Memory may have been freed: look at the cards at once, if somebody waits for it then."""


Instruction = Launch | StopAttempt | SampleNow


@quick
@dataclass(frozen=True, slots=True)
class Change:
    """A job after one event; ``kind`` names the event for the journal (``placed``, ``exited``, ...)."""

    job: Job
    kind: str
    at: float
    detail: dict[str, object]


@dataclass(frozen=True, slots=True)
class MachineChange:
    """The machine itself after something that belongs to no job; ``detail`` names who and why."""

    operations: Operations
    # quarantined | returned | drained | resumed | quick_death | went_well | alert_* | reserved | unreserved
    # | reservation_settled
    kind: str
    at: float
    detail: dict[str, object]


Entry = Change | MachineChange
"""A line of the journal."""
