"""The nouns of the domain: jobs, attempts, grants, claims, cards, and the errors.

All values are frozen; memory is in MiB, times are seconds since the Unix epoch in UTC,
spans end in ``_s``. Missing is ``None``, never 0. Nothing here decides anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from .asked import After, Hold, Member, Notice, Swept
from .frozen import quick
from .limits import NO_LIMITS, Limits
from .policies import DEFAULT, Policy
from .policies import Priority as Priority  # noqa: PLC0414  one of the nouns, but policies need it first
from .quantities import Mib

JobId = str
GpuUuid = str


class Kind(str, Enum):
    CELL = "cell"
    SCRIPT = "script"
    COMMAND = "command"
    NOTEBOOK = "notebook"
    FUNCTION = "function"


class Phase(str, Enum):
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    LOST = "lost"

    __hash__ = str.__hash__  # quicker than that of an enumeration, and asked very often

    def __init__(self, word: str) -> None:  # worked out once: these two are asked very often
        self.final = word in {"succeeded", "failed", "cancelled", "timeout", "lost"}
        self.active = word in {"starting", "running", "stopping"}
        """Whether an attempt may have processes: it holds its grants."""


FINAL = frozenset(phase for phase in Phase if phase.final)


class Outcome(str, Enum):
    """How one attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    PREEMPTED = "preempted"
    LOST = "lost"

    __hash__ = str.__hash__  # quicker than that of an enumeration, and asked very often


class GrantState(str, Enum):
    HELD = "held"
    RELEASING = "releasing"

    __hash__ = str.__hash__  # quicker than that of an enumeration, and asked very often


CLEARLY_MORE_MIB = 256


class Floor(NamedTuple):
    """A card on which the job ran out of memory, and the MiB that were available to it there."""

    gpu: GpuUuid
    had: Mib

    @property
    def least(self) -> Mib:
        """What must be available before it is tried there again: clearly more, not the card's own coming and going."""
        return Mib(self.had + CLEARLY_MORE_MIB)


@dataclass(frozen=True, slots=True)
class Request:
    """What a job asks of the machine.

    gpus            how many cards, all at once or none; 0 = a job without a GPU.
    vram            MiB on each card, CUDA context included; None with gpus >= 1 = whole cards.
    cpus, memory    counted against the machine where given; memory is host RAM in MiB.
    exclusive       no other job of ours may share its cards.
    gpu_model       part of the card's name, case-blind.
    preferred_gpus  indices (as text) or UUIDs, a wish only.
    floors          where it ran out of memory: it is tried there again only with clearly more.
    """

    gpus: int = 1
    vram: Mib | None = None
    cpus: int | None = None
    memory: Mib | None = None
    exclusive: bool = False
    gpu_model: str | None = None
    preferred_gpus: tuple[str, ...] = ()
    floors: tuple[Floor, ...] = ()

    @property
    def whole_cards(self) -> bool:
        return self.gpus > 0 and self.vram is None


@quick
@dataclass(frozen=True, slots=True)
class Grant:
    """VRAM on one card given to one attempt; lives until the card shows the memory freed.

    promised  MiB; raised to what was used once that was more. The attempt keeps what was promised first.
    total     MiB of the card, for shares of it.
    """

    job_id: JobId
    attempt: int
    gpu: GpuUuid
    index: int
    gpu_name: str
    promised: Mib
    exclusive: bool
    state: GrantState
    since: float
    total: Mib | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """Cards that the scheduler keeps for a waiting job, so that it cannot starve.

    firm        what starts meanwhile must leave the place for ever; else only if it would
                run, by its expected time, beyond the moment at which the place is complete.
    evicting    the cards are being cleared for it by ending preemptible jobs.
    idle        MiB of all cards that have lain free since ``counted_at``.
    spent       MiB times seconds that had lain free for it by then.
    due         from then on nobody passes any more, however soon it would end.
    """

    gpus: tuple[GpuUuid, ...]
    since: float
    firm: bool = True
    evicting: bool = False
    idle: int = 0
    spent: float = 0.0
    counted_at: float = 0.0
    due: float | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """Why and since when an attempt is being ended; the first reason stands.

    by   who wanted it, for ``gpu_lost`` the card, for ``vram_exceeded`` how much was used.
    whom for an attempt that is ended for another's sake: for what, as part of a sentence.
    """

    reason: str  # cancelled | timeout | preempted | stragglers | gpu_lost | vram_exceeded
    since: float
    grace_s: float
    by: str | None = None
    whom: str | None = None


class Shortage(NamedTuple):
    """What a framework printed when a card had no memory left: MiB asked for, free then, and held by the process."""

    asked: Mib | None = None
    free: Mib | None = None
    held: Mib | None = None


@dataclass(frozen=True, slots=True)
class Overuse:
    """An attempt that uses more than it was promised and the margin.

    samples         in how many samples in a row; ``at`` is the time of the last one.
    gpu, used, promised  the card on which it is most above, and its MiB there.
    told            whether the journal has this episode.
    """

    samples: int
    since: float
    at: float
    gpu: int
    used: Mib
    promised: Mib
    told: bool = False


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """How an attempt ended, as its supervisor wrote it down and the host understood it.

    Exactly one of code and signal is set unless nothing could be known. ``reason`` and
    ``message`` are the diagnosis for a person; ``stopped`` is the stop reason if the
    attempt was being ended; survivors names what could not be ended.
    """

    code: int | None
    signal: int | None
    started_at: float | None
    ended_at: float
    reason: str
    message: str
    stopped: str | None = None
    peak_rss_mib: Mib | None = None
    stragglers: int = 0
    survivors: tuple[str, ...] = ()
    shortage: Shortage | None = None


class Choice(NamedTuple):
    """What there was to choose from when an attempt was placed.

    cards, fitting  how many cards were known, and on how many of them it fitted.
    free            MiB that could be promised on each card that it got.
    preferred       whether its owner had asked for one of them.
    other           of those that fitted too the one with most left: its index and MiB.
    """

    cards: int
    fitting: int
    free: tuple[int, ...]
    preferred: bool = False
    other: tuple[int, int] | None = None


@quick
@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a job. ``outcome`` is None while it is alive."""

    number: int
    gpus: tuple[Grant, ...]
    started_at: float | None = None
    ended_at: float | None = None
    outcome: Outcome | None = None
    reason: str | None = None
    message: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    peak_vram_mib: Mib | None = None
    peak_rss_mib: Mib | None = None
    shortage: Shortage | None = None
    choice: Choice | None = None


@quick
@dataclass(frozen=True, slots=True)
class Job:
    """A job and where it stands. What it runs is a ``Work``, kept apart.

    on_oom   fail | retry: whether running out of GPU memory raises its promise and tries again.
    cap      whether frameworks are asked to stay within the promise (cooperative).
    code     names what it runs by content, so that earlier runs of the same are found.
    learned  for ``vram="auto"``: the sentence that says where the amount comes from.
    sweep    the variables of this element of a sweep, by name.

    A queued job is set aside, and no policy sees it, while it is ``held``, ``blocked`` (a parent
    has not ended) or ``waits_turn`` (as many of its array as may run are under way).
    """

    id: JobId
    owner: str
    kind: Kind
    name: str
    request: Request
    priority: Priority
    submitted_at: float
    since: float  # when it entered its phase
    phase: Phase = Phase.QUEUED
    time_limit_s: float | None = None
    grace_s: float = 30.0
    retries: int = 0
    on_oom: str = "fail"
    cap: bool = True
    code: str | None = None
    learned: str | None = None
    not_before: float | None = None  # a retry backs off until then
    place_at: float | None = None  # where its owner put it among own jobs; smaller is earlier
    attempts: tuple[Attempt, ...] = ()
    grants: tuple[Grant, ...] = ()  # of the live attempt, and releasing ones of ended attempts
    claim: Claim | None = None
    stop: Stop | None = None
    reason: str | None = None
    message: str | None = None
    ended_at: float | None = None
    used_vram_mib: Mib | None = None
    peak_vram_mib: Mib | None = None
    overuse: Overuse | None = None
    notebook: str | None = None
    parent_id: JobId | None = None
    tags: tuple[str, ...] = ()
    idempotency_key: str | None = None
    preemptible: bool | None = None  # None = if its priority is low
    work: int | None = None  # MiB times seconds that it was expected to take, when it was submitted
    backlog_s: float | None = None  # how long first come, first served would have let it wait, as seen then
    claim_rests_until: float | None = None  # too much lay idle for its sake: no cards are kept before
    claim_rests: int = 0
    watched_gpu_s: float = 0.0  # for which samples show how busy its cards were, added up over them
    idle_gpu_s: float = 0.0  # of these, for which they did nothing
    compute: float | None = None  # share of its card's processors, where it was seen alone on it; 1 = all
    after: After | None = None
    member: Member | None = None
    sweep: tuple[tuple[str, Swept], ...] = ()
    notice: Notice | None = None
    held: Hold | None = None
    blocked: bool = False
    waits_turn: bool = False
    aside_since: float | None = None  # while it is set aside
    aside_s: float = 0.0  # how long it was, before: that does not count as waiting
    groups: tuple[str, ...] = ()  # of its owner, when it was submitted

    @property
    def may_be_evicted(self) -> bool:
        """Whether it agreed to be ended and queued again for a more urgent job."""
        return self.priority is Priority.LOW if self.preemptible is None else self.preemptible

    @property
    def set_aside(self) -> bool:
        """Whether something other than room keeps it from starting."""
        return self.blocked or self.waits_turn or self.held is not None

    @property
    def ages_from(self) -> float:
        """From when on its age counts, had it never been set aside: its submission and the time that it was."""
        return self.submitted_at + self.aside_s

    @property
    def batch_id(self) -> JobId | None:
        return None if self.member is None else self.member.batch_id

    @property
    def array_id(self) -> JobId | None:
        return None if self.member is None or self.member.number is None else self.member.batch_id

    @property
    def array_index(self) -> int | None:
        return None if self.member is None else self.member.number

    @property
    def throttle(self) -> int | None:
        return None if self.member is None else self.member.throttle

    @property
    def attempt(self) -> int:
        """The number of the latest attempt; 0 before the first."""
        return self.attempts[-1].number if self.attempts else 0

    @property
    def live(self) -> bool:
        """Whether the scheduler still has anything to do with it."""
        return not self.phase.final or bool(self.grants)


@dataclass(frozen=True, slots=True)
class Terms:
    """What its owner may change of a job while it waits: all but what it runs and when it was submitted."""

    name: str
    request: Request
    priority: Priority
    time_limit_s: float | None
    grace_s: float
    retries: int
    tags: tuple[str, ...]
    on_oom: str = "fail"
    preemptible: bool | None = None
    notice: Notice | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """What a job runs, as submitted: the launcher's part of the spec.

    command: ``argv``, or ``shell`` (one string for ``sh -c``). script: ``path`` and ``args``.
    cell: ``source``, with captured values in the job folder's payload file (``has_payload``).
    function: all in the payload; of several calls in it the one with this ``item``.
    notebook: ``path``, kept as it was at submission, and ``parameters``.
    inputs/outputs name variables; env is the submitter's, without per-attempt variables.
    """

    kind: Kind
    cwd: str
    env: dict[str, str] = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    shell: str | None = None
    path: str | None = None
    args: tuple[str, ...] = ()
    source: str | None = None
    has_payload: bool = False
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    python: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    item: int | None = None


class Foreign(NamedTuple):
    """A process on a card that belongs to no grant; ``user`` and ``since`` where /proc tells.

    kernel    whether it is a notebook's kernel, or was started by one.
    notebook  of that kernel, where we are permitted to know.
    """

    pid: int
    vram: Mib | None
    user: str | None = None
    since: float | None = None
    kernel: bool = False
    notebook: str | None = None


class Opener(NamedTuple):
    """A process that has a card's device file open, although the driver does not list it there."""

    pid: int
    program: str
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device as last sampled; every measured value may be missing.

    used_by_job      measured MiB per job id of ours, from its process tree; absent = cannot be told.
    used_by_earlier  the same of those attempts of a job that ended before its latest one on this card.
    fault            what the card reports about itself that needs a person, whatever its health says.
    unattributed     MiB in use that neither a job nor any listed process has; None = cannot be told.
    device_file      /dev/nvidiaN, and who has it open: looked for only where memory is unattributed.
    """

    uuid: GpuUuid
    index: int
    name: str
    total: Mib
    sampled_at: float
    reserved: Mib = Mib(0)  # noqa: RUF009  (a NewType costs nothing and shares nothing)
    used: Mib | None = None
    free: Mib | None = None
    parent_uuid: GpuUuid | None = None
    utilization_pct: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    compute_mode: str | None = None
    health: str = "ok"  # ok | quarantined | lost | unknown
    health_cause: str | None = None
    health_since: float | None = None
    simulated: bool = False
    used_by_job: dict[JobId, Mib] = field(default_factory=dict)
    used_by_earlier: dict[JobId, Mib] = field(default_factory=dict)
    foreign: tuple[Foreign, ...] = ()
    fault: str | None = None
    unattributed: Mib | None = None
    device_file: str | None = None
    opened_by: tuple[Opener, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """What an administrator may choose about deciding.

    cpus, memory        the machine's, against which jobs that ask are counted.
    headroom            MiB kept free on each card; None = max(256 MiB, 1 %) on real cards, 0 on simulated.
    claim_after_s       how long a job may be passed by others at least before cards are kept for it.
    stale_after_s       a sample older than this places nothing.
    release_timeout_s   how long an ended attempt's memory may stay on the card before it counts as foreign.
    foreign_limit       MiB of foreign use with which a whole-card job still starts.
    overuse             warn | reserve | kill | kill-under-pressure: what a job that overruns its promise meets.
    overuse_factor, overuse_margin  it overruns above promise x factor + margin (MiB),
    overuse_samples     in so many samples in a row.
    ends_with_server    why jobs end with this host's server, and what helps; None = they go on without it.
    idle_after_s        how long a card must be seen doing nothing before its holders are told.
    idle_above_pct      utilisation above which a card does something.
    compute_limit       how often over a card's jobs may fill its processors, as far as known; 0 = no limit.
    policy              who goes first, and how long others may pass a job.
    limits              what users may have at a time.
    """

    cpus: int
    memory: Mib
    headroom: Mib | None = None
    claim_after_s: float = 14400.0
    stale_after_s: float = 10.0
    release_timeout_s: float = 60.0
    foreign_limit: Mib = Mib(512)  # noqa: RUF009
    overuse: str = "warn"
    overuse_factor: float = 1.05
    overuse_margin: Mib = Mib(256)  # noqa: RUF009
    overuse_samples: int = 3
    ends_with_server: str | None = None
    idle_after_s: float = 1800.0
    idle_above_pct: float = 1.0
    compute_limit: float = 2.0
    policy: Policy = DEFAULT
    limits: Limits = NO_LIMITS


class GpuSchedError(Exception):
    """Something the user can act on. ``code`` is stable; ``hint`` says what to do next."""

    code = "error"

    def __init__(self, message: str, *, field: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.hint = hint


class BadRequest(GpuSchedError):
    code = "bad_request"


class NeverFits(BadRequest):
    """No card of this machine can ever hold it; the hint has the largest possible amount."""

    code = "never_fits"


class NotAvailable(BadRequest):
    """A known option that this version cannot honour yet: refused, never ignored."""

    code = "not_available"


class UnknownJob(GpuSchedError):
    code = "unknown_job"

    def __init__(self, job_id: str) -> None:
        super().__init__(f"There is no job {job_id!r}.", field="id", hint="`jupyter gpusched ls` lists your jobs.")


class NotAllowed(GpuSchedError):
    code = "not_allowed"


class Unauthorized(GpuSchedError):
    """Nobody can say who asks."""

    code = "unauthorized"


class Unavailable(GpuSchedError):
    """The host cannot answer now; trying again may help."""

    code = "unavailable"


class WrongPhase(GpuSchedError):
    """The job is not in a phase in which this can be done; the hint says what can be."""

    code = "wrong_phase"


class IllegalTransition(GpuSchedError):
    """An event that the job's phase does not admit: a bug or a late echo; nothing changed."""

    code = "illegal_transition"

    def __init__(self, job: Job, event: object) -> None:
        super().__init__(f"job {job.id} is {job.phase.value}: {type(event).__name__} does not apply")
        self.job = job
        self.event = event
