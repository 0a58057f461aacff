"""What a submission means: from the JSON of ``wire.JobSpec`` to a queued job and what it runs.

Checks everything that can be checked without the machine; what needs the machine (the largest
card, a missing file) is the host's. Used on both sides, so that a refusal reads the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from .core.asked import NOTICE_FORM, After, Notice, read_notice
from .core.model import BadRequest, Job, Kind, NotAvailable, Request, Terms, Work
from .core.quantities import MEMORY_FORMS, TIME_FORMS, parse_mib, parse_seconds
from .errand import (
    environment,
    kind_of,
    name_of,
    parameters,
    read_payload,
    variables,
)
from .respec import terms_of
from .sweeps import applied
from .texts import is_text, refuse_no_python, refuse_what_is_no_text, refuse_what_no_program_takes
from .wire import NOT_BUILT, TERMS, ArrayRequest, JobOrder, JobSpec

AUTO = "auto"
"""The amount of ``vram`` that is learned from earlier runs."""

_FORMS = {
    **dict.fromkeys(("vram", "memory"), f"Write it as text with a unit: {MEMORY_FORMS}."),
    **dict.fromkeys(("time_limit", "grace"), f"Write it as text with a unit: {TIME_FORMS}."),
}


def read_spec(raw: object) -> JobSpec:
    """Check one submission's shape. Raises ``BadRequest`` naming the field."""
    if not isinstance(raw, dict):
        raise BadRequest("A job is a JSON object.", hint='For example {"argv": ["nvidia-smi"], "vram": "4G"}.')
    known = JobSpec.__struct_fields__
    for key in raw:
        if key not in known:
            field = key if isinstance(key, str) and is_text(key) else None
            raise BadRequest(f"There is no option {key!r}.", field=field, hint="Known: " + ", ".join(known) + ".")
        refuse_what_is_no_text(key, raw[key])
    try:
        return msgspec.convert(raw, JobSpec)
    except msgspec.ValidationError as error:
        found = re.search(r"`\$\.(\w+)", str(error))
        field = found[1] if found else None
        what = str(error).split(" - at ")[0]
        raise BadRequest(f"{field or 'job'}: {what}.", field=field, hint=_FORMS.get(field or "")) from None


def read_job(
    raw: object,
    *,
    job_id: str,
    owner: str,
    now: float,
    home: str,
    surroundings: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Job, Work, bytes | None]:
    """Turn a submission into a queued job, what it runs, and the bytes of its captured values.

    home          the folder in which a job without ``cwd`` runs.
    surroundings  the owner's variables, over which those of the submission are laid.
    Raises ``BadRequest`` (or ``NotAvailable``) naming the field; nothing else is done.
    """
    spec = read_spec(raw)
    _refuse_what_is_not_built(spec)
    kind = kind_of(spec)
    name = name_of(spec, kind) if spec.name is None else None  # without one it is named by what all elements run
    spec = applied(spec)
    request = _request(spec)
    job = Job(
        id=job_id,
        owner=owner,
        kind=kind,
        name=name or name_of(spec, kind),
        request=request,
        priority=spec.priority,
        submitted_at=now,
        since=now,
        time_limit_s=_seconds(spec.time_limit, "time_limit"),
        grace_s=_default(_seconds(spec.grace, "grace", zero=True), 30.0),
        retries=_count(spec.retries, "retries", least=0, most=100),
        on_oom=_on_oom(spec.on_oom),
        cap=spec.cap,
        learned="" if spec.vram == AUTO else None,
        notebook=spec.notebook,
        tags=tuple(spec.tags),
        preemptible=spec.preemptible,
        idempotency_key=spec.idempotency_key,
        after=_after(spec),
        notice=_notice(spec),
        sweep=tuple((spec.sweep or {}).items()),
    )
    payload = read_payload(spec.payload) if spec.payload is not None else None
    shell = spec.argv if isinstance(spec.argv, str) else None
    work = Work(
        kind=kind,
        cwd=spec.cwd if spec.cwd is not None else home,
        env={**surroundings, **environment(spec.env or {})},
        argv=tuple(spec.argv) if isinstance(spec.argv, list) else (),
        shell=shell,
        path=spec.path,
        args=tuple(spec.args),
        source=spec.source,
        has_payload=payload is not None,
        inputs=variables(spec.inputs, "inputs"),
        outputs=variables(spec.outputs, "outputs"),
        python=spec.python,
        parameters=parameters(spec.parameters or {}),
        item=None if spec.item is None else _count(spec.item, "item", least=0, most=10**6),
    )
    refuse_what_no_program_takes(work)
    if kind is Kind.CELL and work.python is None:  # a kernel has read its cell itself, as its own version reads it
        refuse_no_python(work.source or "")
    return job, work, payload


def read_terms(changes: object, job: Job) -> Terms:
    """The terms of a waiting job after these changes; null stands for the default.

    Raises ``BadRequest`` for what cannot be changed and for what could not be asked for.
    """
    if not isinstance(changes, dict):
        raise BadRequest("Changes are a JSON object.", hint='For example {"priority": "high"}.')
    for field in changes:
        if field in JobSpec.__struct_fields__ and field not in TERMS:
            raise BadRequest(
                f"{field}: it is fixed once a job is queued.",
                field=field,
                hint="`resubmit` makes a new job of it in which everything may be changed; then cancel this one.",
            )
    spec = read_spec(changed(terms_of(job), changes))
    if spec.vram == AUTO:
        raise BadRequest(
            "vram: `auto` is worked out when a job is submitted.",
            field="vram",
            hint="Give an amount such as 4G, or resubmit the job with vram auto.",
        )
    _refuse_what_is_not_built(spec)
    return Terms(
        name=name_of(spec, job.kind) if spec.name is not None else job.name,
        request=_request(spec),
        priority=spec.priority,
        time_limit_s=_seconds(spec.time_limit, "time_limit"),
        grace_s=_default(_seconds(spec.grace, "grace", zero=True), 30.0),
        retries=_count(spec.retries, "retries", least=0, most=100),
        tags=tuple(spec.tags),
        on_oom=_on_oom(spec.on_oom),
        preemptible=spec.preemptible,
        notice=_notice(spec),
    )


class Submissions(NamedTuple):
    """The body of ``POST jobs``. ``batch``: they came as one, be it of one job."""

    jobs: Sequence[object]
    batch: bool = False
    array: ArrayRequest | None = None


def read_submission(body: object) -> Submissions:
    """One submission, or a batch of them. Raises ``BadRequest``; the jobs themselves are not looked at yet."""
    if not isinstance(body, dict) or "jobs" not in body:
        return Submissions([body])
    jobs, told = body["jobs"], body.get("array")
    if not isinstance(jobs, list) or body.keys() - {"jobs", "array"}:
        raise BadRequest('A batch is {"jobs": [...]}, an array has "array" beside it; nothing else.', field="jobs")
    if not jobs:
        raise BadRequest("jobs: the batch is empty.", field="jobs", hint="Give at least one job.")
    if told is None:
        return Submissions(jobs, batch=True)
    try:
        array = msgspec.convert(told, ArrayRequest)
    except msgspec.ValidationError as error:
        what = str(error).split(" - at ")[0]
        raise BadRequest(f"array: {what}.", field="array", hint='For example {"throttle": 4}.') from None
    if array.throttle is not None:
        _count(array.throttle, "throttle", least=1, most=1_000_000)
    return Submissions(jobs, batch=True, array=array)


def read_order(raw: object) -> JobOrder:
    """Where a waiting job is to stand. Raises ``BadRequest``."""
    try:
        return msgspec.convert(raw, JobOrder)
    except msgspec.ValidationError as error:
        raise BadRequest(
            f"order: {str(error).split(' - at ')[0]}.",
            field="before",
            hint='Give {"before": ID} or {"after": ID} and nothing else.',
        ) from None


def changed(spec: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A submission with some fields given anew; null takes a field out."""
    return {field: value for field, value in {**spec, **changes}.items() if value is not None}


def _refuse_what_is_not_built(spec: JobSpec) -> None:
    for field, why in NOT_BUILT.items():
        value = getattr(spec, field)
        if value:
            raise NotAvailable(f"{field}: {why}.", field=field)


def _request(spec: JobSpec) -> Request:
    gpus = 1 if spec.gpus is None else _count(spec.gpus, "gpus", least=0, most=1024)
    if spec.vram is not None and gpus == 0:
        raise BadRequest(
            "vram: a job with gpus 0 has no card to take it from.",
            field="vram",
            hint="Leave vram out, or ask for a GPU.",
        )
    of_cards = {"exclusive": spec.exclusive, "gpu_model": spec.gpu_model, "preferred_gpus": spec.preferred_gpus}
    for field, given in of_cards.items():
        if given and gpus == 0:
            raise BadRequest(f"{field}: a job with gpus 0 has no card.", field=field)
    cpus = None if spec.cpus is None else _count(spec.cpus, "cpus", least=1, most=65536)
    return Request(
        gpus=gpus,
        vram=None if spec.vram == AUTO else _mib(spec.vram, "vram"),
        cpus=1 if cpus is None and gpus == 0 else cpus,
        memory=_mib(spec.memory, "memory"),
        exclusive=spec.exclusive,
        gpu_model=spec.gpu_model,
        preferred_gpus=tuple(spec.preferred_gpus),
    )


def _after(spec: JobSpec) -> After | None:
    """The parents as they were named: by id, or by their place in the same batch (``#0``)."""
    when = spec.after_when or "succeeded"
    if when not in ("succeeded", "finished"):
        raise BadRequest(
            f"after_when: there is no {when!r}.", field="after_when", hint="Known: succeeded (the default), finished."
        )
    if spec.after_when is not None and not spec.after:
        raise BadRequest("after_when: it says when jobs named by `after` are over.", field="after_when")
    return After(tuple(dict.fromkeys(spec.after)), when) if spec.after else None


def _notice(spec: JobSpec) -> Notice | None:
    if spec.signal is None:
        return None
    try:
        notice = read_notice(spec.signal)
    except ValueError as error:
        raise BadRequest(f"signal: {error}.", field="signal", hint=NOTICE_FORM) from None
    limit_s = _seconds(spec.time_limit, "time_limit")
    if limit_s is None:
        raise BadRequest(
            "signal: it is sent before the time limit, and there is none.", field="signal", hint="Give --time as well."
        )
    if notice.before_s >= limit_s:
        raise BadRequest(
            f"signal: {spec.signal} would be sent before the job has begun, since its time limit is {spec.time_limit}.",
            field="signal",
            hint="Give a longer --time, or a shorter span after the @.",
        )
    return notice


def _on_oom(wish: str | None) -> str:
    if wish not in (None, "fail", "retry"):
        raise BadRequest(f"on_oom: there is no {wish!r}.", field="on_oom", hint="Known: fail, retry.")
    return wish or "fail"


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
