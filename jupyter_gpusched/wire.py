"""The one definition of what client and host say to each other.

Owns the submission (``JobSpec``), the views and the error body; TypeScript and OpenAPI are
generated from these types. What a submission means is ``submission``'s.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .core.model import Grant, Job, Kind, Phase, Priority, Work

PREFIX = "/gpusched/api/v1"

GIVES_WAY = "simulation_gives_way"
"""Code of the refusal by an idle daemon that ends because the client asks for other simulated cards."""

LARGEST_PAYLOAD = 256 * 2**20
"""Bytes of pickled values that may travel with a job."""

NOT_BUILT = {
    "after": "dependencies between jobs are not available yet; submit the second job when the first has ended",
    "after_when": "dependencies between jobs are not available yet",
    "on_oom": "retrying after out-of-memory is not available yet; use `retries` or ask for more VRAM",
    "notify": "notifications are not available yet",
}


TERMS = (
    "name", "vram", "gpus", "cpus", "memory", "exclusive", "gpu_model", "preferred_gpus", "priority", "time_limit",
    "retries", "grace", "tags", "preemptible",
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
    after: list[str] = []
    after_when: str | None = None
    preemptible: bool | None = None
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


class GpuRef(msgspec.Struct, kw_only=True):
    uuid: str
    index: int
    name: str


class AttemptView(msgspec.Struct, kw_only=True):
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


class JobView(msgspec.Struct, kw_only=True):
    """A job as everyone sees it; times are seconds since the epoch in UTC, unknown is null."""

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
    estimated_start: float | None
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
    peak_rss_mib: int | None
    progress: dict[str, Any] | None
    advice: str | None
    attempts: list[AttemptView]
    notebook: str | None
    parent_id: str | None
    array_id: str | None
    tags: list[str]
    simulated: bool


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


class HealthOfGpu(msgspec.Struct, kw_only=True):
    status: str
    cause: str | None
    since: float | None


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


class Health(msgspec.Struct, kw_only=True):
    """``GET health``. ``gpu_cause`` says in one sentence why there is no card."""

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


class Created(msgspec.Struct, kw_only=True):
    """One job was queued, and is on disk."""

    id: str


class CreatedBatch(msgspec.Struct, kw_only=True):
    """All jobs of a batch were queued, in this order."""

    ids: list[str]


class Batch(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Many submissions: all are queued, or none."""

    jobs: list[JobSpec]


class CancelRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    grace: str | None = None


class Outputs(msgspec.Struct, kw_only=True):
    """Outputs of an attempt as nbformat has them; ``next`` is the ``after`` to ask with next."""

    items: list[dict[str, Any]]
    next: int
    final: bool


class SnapshotFrame(msgspec.Struct, kw_only=True, tag_field="type", tag="snapshot"):
    """How things stand: the first frame without ``after``, and with one that this host never gave."""

    seq: int
    jobs: list[JobView]
    gpus: list[GpuView]


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


class OutputsFrame(msgspec.Struct, kw_only=True, tag_field="type", tag="outputs"):
    """A job has written something: its outputs now reach to the cursor ``next``. What it wrote is asked for apart."""

    seq: int
    job_id: str
    attempt: int
    next: int
    log_size: int


def job_view(
    job: Job,
    *,
    waiting: str | None,
    position: int | None,
    estimated_start: float | None,
    simulated: bool,
    explanation: list[str] | None = None,
) -> JobView:
    """The owner's view of a job; the keywords are the scheduler's words on a queued one.

    explanation  why it stands where it stands; left out in long lists.
    """
    last = job.attempts[-1] if job.attempts and job.phase is not Phase.QUEUED else None
    return JobView(
        id=job.id,
        kind=job.kind.value,
        name=job.name,
        user=job.owner,
        phase=job.phase.value,
        reason=job.reason,
        message=job.message,
        waiting=waiting,
        explanation=explanation,
        position=position,
        estimated_start=estimated_start,
        vram_mib=job.request.vram,
        gpus_requested=job.request.gpus,
        gpus=_refs(last.gpus) if last else [],
        cpus=job.request.cpus,
        memory_mib=job.request.memory,
        priority=job.priority.value,
        submitted_at=job.submitted_at,
        started_at=last.started_at if last else None,
        ended_at=job.ended_at,
        exit_code=last.exit_code if last else None,
        signal=last.signal if last else None,
        used_vram_mib=job.used_vram_mib,
        peak_vram_mib=job.peak_vram_mib,
        peak_rss_mib=max((a.peak_rss_mib for a in job.attempts if a.peak_rss_mib is not None), default=None),
        progress=None,
        advice=None,
        attempts=[
            AttemptView(
                number=attempt.number,
                outcome=attempt.outcome.value if attempt.outcome else None,
                reason=attempt.reason,
                message=attempt.message,
                gpus=_refs(attempt.gpus),
                started_at=attempt.started_at,
                ended_at=attempt.ended_at,
                exit_code=attempt.exit_code,
                signal=attempt.signal,
                peak_vram_mib=attempt.peak_vram_mib,
            )
            for attempt in job.attempts
        ],
        notebook=job.notebook,
        parent_id=job.parent_id,
        array_id=job.array_id,
        tags=list(job.tags),
        simulated=simulated,
    )


def spec_of(job: Job, work: Work) -> JobSpec:
    """The submission that leads to this job again, without its captured values."""
    request = job.request
    return JobSpec(
        kind=job.kind,
        name=job.name,
        vram=None if request.vram is None else f"{request.vram}M",
        gpus=request.gpus,
        cpus=request.cpus,
        memory=None if request.memory is None else f"{request.memory}M",
        exclusive=request.exclusive,
        gpu_model=request.gpu_model,
        preferred_gpus=list(request.preferred_gpus),
        priority=job.priority,
        time_limit=None if job.time_limit_s is None else _span(job.time_limit_s),
        retries=job.retries,
        preemptible=job.preemptible,
        grace=_span(job.grace_s),
        inputs=list(work.inputs),
        outputs=list(work.outputs),
        env=work.env,
        cwd=work.cwd,
        python=work.python,
        tags=list(job.tags),
        argv=work.shell if work.shell is not None else list(work.argv) or None,
        path=work.path,
        args=list(work.args),
        parameters=work.parameters or None,
        source=work.source,
        notebook=job.notebook,
    )


def _span(seconds: float) -> str:
    """Never in the form 1e+06, which no reader of spans takes."""
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"


def terms_of(job: Job) -> dict[str, Any]:
    """What a waiting job was submitted with that may still be changed."""
    spec = msgspec.to_builtins(spec_of(job, Work(job.kind, cwd="/")))
    return {field: value for field, value in spec.items() if field in TERMS and value is not None}


def _refs(grants: tuple[Grant, ...]) -> list[GpuRef]:
    return [GpuRef(uuid=grant.gpu, index=grant.index, name=grant.gpu_name) for grant in grants]
