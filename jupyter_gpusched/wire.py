"""The one definition of what client and host say to each other.

Owns the submission (``JobSpec``), the views and the error body; TypeScript and OpenAPI are
generated from these types. What a submission means is ``submission``'s; how a job is shown is ``views``'.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .core.model import Kind, Priority

PREFIX = "/gpusched/api/v1"

LOOKS_ON = "X-Gpusched-Looks-On"
"""Header of a request that is made by a clock and not by a person: it keeps no idle host alive."""

GIVES_WAY = "simulation_gives_way"
"""Code of the refusal by an idle daemon that ends because the client asks for other simulated cards."""

LARGEST_PAYLOAD = 256 * 2**20
"""Bytes of pickled values that may travel with a job."""

LARGEST_ARRAY = 10_000
"""Elements of one array."""

NOT_BUILT = {
    "notify": "notifications are not available yet",
}


TERMS = (
    "name", "vram", "gpus", "cpus", "memory", "exclusive", "gpu_model", "preferred_gpus", "priority", "time_limit",
    "retries", "on_oom", "grace", "tags", "preemptible", "signal",
)  # fmt: skip
"""The fields of a submission that can be changed while the job waits."""


class JobSpec(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A submission. Amounts and times are strings as on the command line (``"4G"``, ``"90s"``)."""

    kind: Kind | None = None
    name: str | None = None
    vram: str | None = None
    gpus: int | None = None
    cpus: int | None = None
    memory: str | None = None
    exclusive: bool = False
    gpu_model: str | None = None
    preferred_gpus: list[str] = []
    priority: Priority = Priority.NORMAL
    time_limit: str | None = None
    retries: int = 0
    on_oom: str | None = None
    cap: bool = True
    after: list[str] = []
    after_when: str | None = None
    preemptible: bool | None = None
    signal: str | None = None
    grace: str | None = None
    inputs: list[str] = []
    outputs: list[str] = []
    env: dict[str, str] | None = None
    cwd: str | None = None
    python: str | None = None
    tags: list[str] = []
    notify: Any = None
    idempotency_key: str | None = None
    argv: list[str] | str | None = None
    path: str | None = None
    args: list[str] = []
    parameters: dict[str, Any] | None = None
    source: str | None = None
    payload: str | None = None
    notebook: str | None = None
    sweep: dict[str, Any] | None = None
    item: int | None = None


class HeldView(msgspec.Struct, kw_only=True):
    """Since when a waiting job does not start, who wants it so, and why."""

    by: str  # `gpusched` = the scheduler itself
    cause: str | None
    since: float


class GpuRef(msgspec.Struct, kw_only=True):
    uuid: str
    index: int
    name: str


class AttemptView(msgspec.Struct, kw_only=True):
    """One run of a job. ``placement`` says in a sentence why it got the cards that it got."""

    number: int
    outcome: str | None
    reason: str | None
    message: str | None
    gpus: list[GpuRef]
    started_at: float | None
    ended_at: float | None
    exit_code: int | None
    signal: int | None
    peak_vram_mib: int | None
    placement: str | None = None


class Progress(msgspec.Struct, kw_only=True, frozen=True):
    """How far a running job is, as far as it says so; ``text`` is for a person."""

    fraction: float | None  # 0 to 1
    done: float | None
    total: float | None
    text: str
    remaining_s: float | None


class JobView(msgspec.Struct, kw_only=True):
    """A job as everyone sees it; times are seconds since the epoch in UTC, unknown is null.

    overuse_mib  how much more than its promise it uses on a card, while it does.
    cap          cooperative | off: whether frameworks in it are asked to stay within the promise; null = no promise.
    estimated_start_range  between which two moments it will probably start, earliest and latest.
    in_line      false while something other than room keeps it from starting: it is held, waits for other jobs or
                 for its turn in its array; its position is then behind those that stand in line.
    after        the jobs that must have ended before it may start.
    array_index  its number in its array, from 0.
    sweep        the variables that it was given as an element of a sweep.
    """

    id: str
    kind: str
    name: str
    user: str
    phase: str
    reason: str | None
    message: str | None
    waiting: str | None
    explanation: list[str] | None
    position: int | None
    in_line: bool
    estimated_start: float | None
    estimated_start_range: list[float] | None
    vram_mib: int | None
    gpus_requested: int
    gpus: list[GpuRef]
    cpus: int | None
    memory_mib: int | None
    priority: str
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    exit_code: int | None
    signal: int | None
    used_vram_mib: int | None
    peak_vram_mib: int | None
    overuse_mib: int | None
    cap: str | None
    peak_rss_mib: int | None
    progress: Progress | None
    time_limit_s: float | None
    advice: str | None
    attempts: list[AttemptView]
    notebook: str | None
    parent_id: str | None
    array_id: str | None
    tags: list[str]
    simulated: bool
    held: HeldView | None = None
    after: list[str] = []
    array_index: int | None = None
    sweep: dict[str, Any] | None = None


class Holder(msgspec.Struct, kw_only=True):
    """Who has memory on a card; content of others' jobs is null."""

    kind: str  # job | lease | foreign
    state: str | None  # held | releasing | null
    job_id: str | None
    user: str | None
    pid: int | None
    vram_mib: int | None
    estimated: bool
    promised_mib: int | None
    since: float | None
    notebook: str | None
    mine: bool = False  # of the caller
    name: str | None = None  # of the job


class HealthOfGpu(msgspec.Struct, kw_only=True):
    status: str
    cause: str | None
    since: float | None
    by: str | None = None  # who quarantined it; `gpusched` = the scheduler itself


class DeviceUser(msgspec.Struct, kw_only=True):
    """A process that has a card's device file open, although the driver does not list it.

    program  is told to the process's user and to administrators; null for others.
    """

    pid: int
    program: str | None
    user: str | None


class Reservation(msgspec.Struct, kw_only=True):
    """GPUs that are kept in a window of time. ``user`` is whose jobs may use them then; null = nobody's.

    gpus         the cards as things stand; a reservation of any ``count`` may move to others.
    reaching_in  how many jobs of others are on them that may still be there in the window.
    mine         whether it is the caller's jobs that may use them then.
    """

    id: str
    user: str | None
    count: int
    gpus: list[GpuRef]
    start: float
    end: float
    zone: str
    by: str
    cause: str | None
    active: bool
    reaching_in: int
    mine: bool


class GpuView(msgspec.Struct, kw_only=True):
    uuid: str
    index: int
    name: str
    parent_uuid: str | None
    total_mib: int
    reserved_mib: int
    used_mib: int | None
    free_mib: int | None
    promised_mib: int
    foreign_mib: int | None
    available_mib: int | None
    utilization_pct: float | None
    temperature_c: float | None
    power_w: float | None
    compute_mode: str | None
    health: HealthOfGpu
    simulated: bool
    sampled_at: float
    holders: list[Holder]
    unattributed_mib: int | None = None  # in use, and no process admits to it
    device_file: str | None = None
    opened_by: list[DeviceUser] = []
    reservations: list[Reservation] = []


class Alert(msgspec.Struct, kw_only=True):
    """Something a person should look at. It resolves by itself, or when they have seen to it."""

    id: str
    kind: str
    message: str
    since: float
    gpu_uuid: str | None
    gpu_index: int | None
    job_id: str | None
    user: str | None
    hint: str | None
    severity: str  # info | warning | error


class Drained(msgspec.Struct, kw_only=True):
    """Since when nothing new starts, who wants it so, and why."""

    since: float
    by: str
    cause: str


class Health(msgspec.Struct, kw_only=True):
    """``GET health``. ``gpu_cause`` says in one sentence why there is no card.

    ``ending`` is how the processes of a job are found when they are ended; ``notices`` are what
    an administrator should know of this machine though nothing is broken; others are told of none.
    ``unseen`` says whose promises on the same cards this host cannot see: those made in other
    ``containers``, or by ``hosts`` of other users of the machine; null = it knows of none.
    """

    status: str  # ok | degraded
    version: str
    api: int
    instance: str
    pid: int
    state_dir: str
    simulated: str | None
    causes: list[str]
    cpus: int
    memory_mib: int
    kind: str
    epoch: int
    socket: str
    gpu_cause: str | None
    ending: str
    notices: list[str]
    isolation: str = "none"  # none | bwrap
    host_limits: str = "counted"  # counted | limited: the host memory and CPUs that jobs ask for
    drained: Drained | None = None
    live_jobs: int = 0  # of the caller, that have not ended
    user: str = ""  # the caller, as the owner of jobs
    admin: bool = False  # whether the caller runs this machine
    administrators: str = ""  # who does, in words
    unseen: str | None = None  # containers | hosts


class ErrorDetail(msgspec.Struct, kw_only=True):
    code: str
    message: str
    field: str | None = None
    hint: str | None = None


class ErrorBody(msgspec.Struct, kw_only=True):
    error: ErrorDetail


class JobList(msgspec.Struct, kw_only=True):
    items: list[JobView]
    next_cursor: str | None


class GpuList(msgspec.Struct, kw_only=True):
    items: list[GpuView]
    next_cursor: str | None


class ReservationList(msgspec.Struct, kw_only=True):
    """Those that stand and those to come, the first first."""

    items: list[Reservation]
    next_cursor: str | None


class AlertList(msgspec.Struct, kw_only=True):
    items: list[Alert]
    next_cursor: str | None


class DrainState(msgspec.Struct, kw_only=True):
    """What came of a drain or its end; null = jobs start."""

    drained: Drained | None


class QuarantineRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Take a card out of use, or with ``release`` give it back. ``gpu`` is its UUID or its index."""

    gpu: str | int
    cause: str | None = None
    release: bool = False


class ReservationRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Keep GPUs for somebody from ``from`` (now, when left out) until ``to``, or for so long (``for``).

    gpus         how many, or a list of their indices or UUIDs.
    zone         the time zone of the times, by name (``Europe/Berlin``); a time may also carry its offset.
    user         whose jobs may use them then; left out: the caller's, on a host for one user nobody's.
    interactive  nobody's jobs may: for work outside the queue.
    """

    gpus: int | list[str | int]
    zone: str
    from_: str | None = msgspec.field(default=None, name="from")
    to: str | None = None
    length: str | None = msgspec.field(default=None, name="for")
    user: str | None = None
    interactive: bool = False
    cause: str | None = None


class CauseRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    cause: str | None = None


class Created(msgspec.Struct, kw_only=True):
    """One job was queued, and is on disk."""

    id: str


class CreatedBatch(msgspec.Struct, kw_only=True):
    """All jobs of a batch were queued, in this order. ``array_id`` is accepted where an id of a job is."""

    ids: list[str]
    array_id: str | None = None


class ArrayRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """That the jobs of a batch are the elements of an array.

    throttle  how many of them may run at a time; null = all that find room.
    common    fields of a submission that all have unless an element says otherwise; captured values are stored once.
    """

    throttle: int | None = None
    common: dict[str, Any] = {}


class Batch(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Many submissions: all are queued, or none. With ``array`` they are the elements of one, counted from 0."""

    jobs: list[JobSpec]
    array: ArrayRequest | None = None


class ArrayView(msgspec.Struct, kw_only=True):
    """An array as a whole; its elements are ``GET jobs?array=ID``.

    phases   how many of its elements are in which phase.
    held     how many of those that wait are held.
    """

    id: str
    name: str
    user: str
    kind: str
    count: int
    phases: dict[str, int]
    held: int
    throttle: int | None
    submitted_at: float


class JobIds(msgspec.Struct, kw_only=True):
    """The jobs that something was done to, in their order."""

    ids: list[str]


class HoldRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    cause: str | None = None


class ManyRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Your jobs that have not ended and whose name fits a pattern: ``run-*``."""

    name: str
    grace: str | None = None
    cause: str | None = None


class CancelRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    grace: str | None = None


class JobOrder(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a waiting job of yours is to stand: right before or right after another one, given by its id."""

    before: str | None = None
    after: str | None = None


class Outputs(msgspec.Struct, kw_only=True):
    """Outputs of an attempt as nbformat has them; ``next`` is the ``after`` to ask with next.

    ``left_out`` says that ``newest`` left out some after that ``after``.
    """

    items: list[dict[str, Any]]
    next: int
    final: bool
    left_out: bool


class GpuPoint(msgspec.Struct, kw_only=True):
    """A card in one sample."""

    at: float
    uuid: str
    used_mib: int | None
    utilization_pct: float | None


class GpuHistory(msgspec.Struct, kw_only=True):
    """The last quarter of an hour of every card, oldest first."""

    items: list[GpuPoint]
    next_cursor: str | None


class MemoryPoint(msgspec.Struct, kw_only=True):
    at: float
    used_mib: int


class MemoryCurve(msgspec.Struct, kw_only=True):
    """What a job used over its life, at most 500 points; the largest on any of its cards."""

    items: list[MemoryPoint]
    next_cursor: str | None


class TimelineHolder(msgspec.Struct, kw_only=True):
    """Who held memory on a card; of others' jobs only user and amounts."""

    kind: str  # job | lease | foreign
    user: str | None
    job_id: str | None
    vram_mib: int | None
    promised_mib: int | None


class TimelinePoint(msgspec.Struct, kw_only=True):
    at: float
    gpu_uuid: str
    free_mib: int | None
    holders: list[TimelineHolder]


class Timeline(msgspec.Struct, kw_only=True):
    """Who held what on an attempt's cards in the minutes before it ran out of memory; else empty."""

    items: list[TimelinePoint]
    next_cursor: str | None


class JobEvent(msgspec.Struct, kw_only=True):
    """Something that happened to a job, as the journal has it."""

    seq: int
    at: float
    kind: str
    detail: dict[str, Any]


class JobEvents(msgspec.Struct, kw_only=True):
    items: list[JobEvent]
    next_cursor: str | None


class SnapshotFrame(msgspec.Struct, kw_only=True, tag_field="type", tag="snapshot"):
    """How things stand: the first frame without ``after``, and with one that this host never gave."""

    seq: int
    jobs: list[JobView]
    gpus: list[GpuView]
    alerts: list[Alert] = []


class JobFrame(msgspec.Struct, kw_only=True, tag_field="type", tag="job"):
    """A job after an event. ``event`` names it: submitted, placed, started, amended, exited, deleted, ..."""

    seq: int
    event: str
    at: float
    job: JobView


class GpusFrame(msgspec.Struct, kw_only=True, tag_field="type", tag="gpus"):
    """The cards as last measured."""

    seq: int
    gpus: list[GpuView]


class AlertFrame(msgspec.Struct, kw_only=True, tag_field="type", tag="alert"):
    """An alert was ``raised``, or has ``resolved``."""

    seq: int
    event: str  # raised | resolved
    alert: Alert


class OutputsFrame(msgspec.Struct, kw_only=True, tag_field="type", tag="outputs"):
    """A job has written something: its outputs now reach to the cursor ``next``. What it wrote is asked for apart.

    ``progress`` is that of the job's view, which no other frame brings up to date.
    """

    seq: int
    job_id: str
    attempt: int
    next: int
    log_size: int
    progress: Progress | None
