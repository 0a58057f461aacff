"""The one definition of what client and host say to each other.

Owns the submission (``JobSpec``), the views and the error body; TypeScript and OpenAPI are
generated from these types. Reading a submission checks everything that can be checked
without the machine: what needs the machine (the largest card, a missing file) is the host's.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from typing import Any

import msgspec

from .core.model import (
    BadRequest,
    Grant,
    Job,
    Kind,
    NotAvailable,
    Phase,
    Priority,
    Request,
    Work,
)
from .core.quantities import parse_mib, parse_seconds

PREFIX = "/gpusched/api/v1"

LARGEST_PAYLOAD = 256 * 2**20
"""Bytes of pickled values that may travel with a job."""

NOT_BUILT = {
    "after": "dependencies between jobs are not available yet; submit the second job when the first has ended",
    "after_when": "dependencies between jobs are not available yet",
    "on_oom": "retrying after out-of-memory is not available yet; use `retries` or ask for more VRAM",
    "preemptible": "preemption is not available yet",
    "notify": "notifications are not available yet",
    "parameters": "notebook jobs are not available yet; run the notebook's code as a cell or a script",
}
_KINDS_NOT_BUILT = {
    Kind.NOTEBOOK: "notebook jobs are not available yet; run the notebook's code as a cell or a script",
    Kind.FUNCTION: "function jobs are not available yet; call the function in a cell job",
}


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
    outputs: list[str] = []


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


def read_spec(raw: object) -> JobSpec:
    """Check one submission's shape. Raises ``BadRequest`` naming the field."""
    if not isinstance(raw, dict):
        raise BadRequest("A job is a JSON object.", hint='For example {"argv": ["nvidia-smi"], "vram": "4G"}.')
    known = JobSpec.__struct_fields__
    for key in raw:
        if key not in known:
            raise BadRequest(f"There is no option {key!r}.", field=str(key), hint="Known: " + ", ".join(known) + ".")
    try:
        return msgspec.convert(raw, JobSpec)
    except msgspec.ValidationError as error:
        found = re.search(r"`\$\.(\w+)", str(error))
        field = found[1] if found else None
        raise BadRequest(f"{field or 'job'}: {str(error).split(' - at ')[0]}", field=field) from None


def read_job(raw: object, *, job_id: str, owner: str, now: float, home: str) -> tuple[Job, Work, bytes | None]:
    """Turn a submission into a queued job, what it runs, and the bytes of its captured values.

    home  the folder in which a job without ``cwd`` runs.
    Raises ``BadRequest`` (or ``NotAvailable``) naming the field; nothing else is done.
    """
    spec = read_spec(raw)
    _refuse_what_is_not_built(spec)
    kind = _kind(spec)
    request = _request(spec)
    job = Job(
        id=job_id,
        owner=owner,
        kind=kind,
        name=_name(spec, kind),
        request=request,
        priority=spec.priority,
        submitted_at=now,
        since=now,
        time_limit_s=_seconds(spec.time_limit, "time_limit"),
        grace_s=_default(_seconds(spec.grace, "grace", zero=True), 30.0),
        retries=_count(spec.retries, "retries", least=0, most=100),
        notebook=spec.notebook,
        tags=tuple(spec.tags),
        idempotency_key=spec.idempotency_key,
    )
    payload = _payload(spec.payload)
    shell = spec.argv if isinstance(spec.argv, str) else None
    work = Work(
        kind=kind,
        cwd=spec.cwd if spec.cwd is not None else home,
        env=_env(spec.env or {}),
        argv=tuple(spec.argv) if isinstance(spec.argv, list) else (),
        shell=shell,
        path=spec.path,
        args=tuple(spec.args),
        source=spec.source,
        has_payload=payload is not None,
        inputs=_names(spec.inputs, "inputs"),
        outputs=_names(spec.outputs, "outputs"),
        python=spec.python,
    )
    return job, work, payload


def _refuse_what_is_not_built(spec: JobSpec) -> None:
    for field, why in NOT_BUILT.items():
        value = getattr(spec, field)
        if value and not (field == "on_oom" and value == "fail"):
            raise NotAvailable(f"{field}: {why}.", field=field)
    if spec.vram == "auto":
        raise NotAvailable("vram: `auto` is not available yet.", field="vram", hint="Give an amount such as 4G.")
    if spec.kind in _KINDS_NOT_BUILT:
        raise NotAvailable(f"kind: {_KINDS_NOT_BUILT[spec.kind]}.", field="kind")


def _kind(spec: JobSpec) -> Kind:
    """The kind, given or told by the one field that says what runs."""
    what = {Kind.COMMAND: "argv", Kind.SCRIPT: "path", Kind.CELL: "source"}
    given = [kind for kind, field in what.items() if getattr(spec, field) is not None]
    kind = spec.kind or (given[0] if len(given) == 1 else None)
    if kind is None:
        raise BadRequest(
            "The job does not say what to run.",
            field="argv",
            hint="Give one of `argv` (a command), `path` (a Python script) or `source` (a cell).",
        )
    if given != [kind]:
        raise BadRequest(
            f"A {kind.value} job takes `{what[kind]}` and none of the others.", field=what[kind]
        )
    if kind is Kind.COMMAND and not (spec.argv.strip() if isinstance(spec.argv, str) else spec.argv and spec.argv[0]):
        raise BadRequest("argv: the command is empty.", field="argv", hint='For example ["python", "train.py"].')
    if kind is Kind.SCRIPT and not spec.path:
        raise BadRequest("path: the script's name is empty.", field="path")
    if kind is Kind.CELL and not (spec.source or "").strip():
        raise BadRequest("source: the cell is empty.", field="source", hint="Put the code to run below the magic line.")
    for field in ("inputs", "outputs", "payload"):
        if getattr(spec, field) and kind is not Kind.CELL:
            raise BadRequest(f"{field}: only a cell job takes it.", field=field)
    if spec.args and kind is not Kind.SCRIPT:
        raise BadRequest("args: only a script job takes it; a command has all in `argv`.", field="args")
    return kind


def _request(spec: JobSpec) -> Request:
    gpus = 1 if spec.gpus is None else _count(spec.gpus, "gpus", least=0, most=1024)
    if spec.vram is not None and gpus == 0:
        raise BadRequest(
            "vram: a job with gpus 0 has no card to take it from.",
            field="vram",
            hint="Leave vram out, or ask for a GPU.",
        )
    for field, given in (("exclusive", spec.exclusive), ("gpu_model", spec.gpu_model), ("preferred_gpus", spec.preferred_gpus)):
        if given and gpus == 0:
            raise BadRequest(f"{field}: a job with gpus 0 has no card.", field=field)
    cpus = None if spec.cpus is None else _count(spec.cpus, "cpus", least=1, most=65536)
    return Request(
        gpus=gpus,
        vram=_mib(spec.vram, "vram"),
        cpus=1 if cpus is None and gpus == 0 else cpus,
        memory=_mib(spec.memory, "memory"),
        exclusive=spec.exclusive,
        gpu_model=spec.gpu_model,
        preferred_gpus=tuple(spec.preferred_gpus),
    )


def _name(spec: JobSpec, kind: Kind) -> str:
    """The user's name for the job, or one told by what it runs; one line of at most 80 characters."""
    if spec.name is not None:
        if not spec.name.strip() or len(spec.name) > 200 or not spec.name.isprintable():
            raise BadRequest("name: a name is one line of 1 to 200 printable characters.", field="name")
        return spec.name
    if kind is Kind.SCRIPT:
        text = os.path.basename(spec.path or "")
    elif kind is Kind.CELL:
        lines = (line.strip() for line in (spec.source or "").splitlines())
        text = next((line for line in lines if line and not line.startswith(("#", "import ", "from "))), "cell")
    else:
        text = spec.argv if isinstance(spec.argv, str) else " ".join(spec.argv or [])
    shown = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return (shown if len(shown) <= 60 else shown[:57] + "...") or kind.value


def _env(env: dict[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise BadRequest(f"env: {name!r} cannot be an environment variable.", field="env")
    return env


def _names(names: list[str], field: str) -> tuple[str, ...]:
    for name in names:
        if not name.isidentifier():
            raise BadRequest(f"{field}: {name!r} is not a variable name.", field=field, hint="For example `--out model,loss`.")
    return tuple(names)


def _payload(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        payload = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest("payload: it is not base64.", field="payload") from None
    if len(payload) > LARGEST_PAYLOAD:
        raise BadRequest(
            f"payload: {len(payload) / 2**20:.0f} MiB of values are too much; at most {LARGEST_PAYLOAD // 2**20} MiB travel with a job.",
            field="payload",
            hint="Save large data to a file and read it in the job.",
        )
    return payload


def _count(value: int, field: str, *, least: int, most: int) -> int:
    if not least <= value <= most:
        raise BadRequest(f"{field}: {value} is out of range; {least} to {most}.", field=field)
    return value


def _mib(text: str | None, field: str) -> Any:
    try:
        return None if text is None else parse_mib(text)
    except ValueError as error:
        raise BadRequest(f"{field}: {error}.", field=field) from None


def _seconds(text: str | None, field: str, *, zero: bool = False) -> float | None:
    try:
        return None if text is None else parse_seconds(text, zero=zero)
    except ValueError as error:
        raise BadRequest(f"{field}: {error}.", field=field) from None


def _default(value: float | None, default: float) -> float:
    return default if value is None else value


def job_view(
    job: Job,
    *,
    waiting: str | None,
    position: int | None,
    estimated_start: float | None,
    simulated: bool,
    outputs: tuple[str, ...] = (),
) -> JobView:
    """The owner's view of a job; the three keywords are the scheduler's words on a queued one."""
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
        outputs=list(outputs),
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
        time_limit=None if job.time_limit_s is None else f"{job.time_limit_s:g}s",
        retries=job.retries,
        grace=f"{job.grace_s:g}s",
        inputs=list(work.inputs),
        outputs=list(work.outputs),
        env=work.env,
        cwd=work.cwd,
        python=work.python,
        tags=list(job.tags),
        argv=work.shell if work.shell is not None else list(work.argv) or None,
        path=work.path,
        args=list(work.args),
        source=work.source,
        notebook=job.notebook,
    )


def _refs(grants: tuple[Grant, ...]) -> list[GpuRef]:
    return [GpuRef(uuid=grant.gpu, index=grant.index, name=grant.gpu_name) for grant in grants]
