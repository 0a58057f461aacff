"""What a submission means: from the JSON of ``wire.JobSpec`` to a queued job and what it runs.

Checks everything that can be checked without the machine; what needs the machine (the largest
card, a missing file) is the host's. Used on both sides, so that a refusal reads the same.
"""

from __future__ import annotations

import base64
import binascii
import keyword
import os
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from .core.asked import NOTICE_FORM, After, Notice, read_notice
from .core.model import BadRequest, Job, Kind, NotAvailable, Request, Terms, Work
from .core.quantities import MEMORY_FORMS, TIME_FORMS, parse_mib, parse_seconds
from .respec import terms_of
from .sweeps import applied
from .texts import is_text, refuse_no_python, refuse_what_is_no_text, refuse_what_no_program_takes
from .wire import LARGEST_PAYLOAD, NOT_BUILT, TERMS, ArrayRequest, JobOrder, JobSpec

AUTO = "auto"
"""The amount of ``vram`` that is learned from earlier runs."""

_FORMS = {
    **dict.fromkeys(("vram", "memory"), f"Write it as text with a unit: {MEMORY_FORMS}."),
    **dict.fromkeys(("time_limit", "grace"), f"Write it as text with a unit: {TIME_FORMS}."),
}

_RUNS = {
    Kind.COMMAND: "argv",
    Kind.SCRIPT: "path",
    Kind.NOTEBOOK: "path",
    Kind.CELL: "source",
    Kind.FUNCTION: "payload",
}
"""The field that says what a job of this kind runs."""

_COMMENT = re.compile(r"""(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|\s*#.*""")
"""A comment, or the text in quotation marks in which there is none."""

_ONLY_OF = {
    "inputs": (Kind.CELL,),
    "outputs": (Kind.CELL,),
    "payload": (Kind.CELL, Kind.FUNCTION),
    "parameters": (Kind.NOTEBOOK,),
    "item": (Kind.FUNCTION,),
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
    kind = _kind(spec)
    name = _name(spec, kind) if spec.name is None else None  # without one it is named by what all elements run
    spec = applied(spec)
    request = _request(spec)
    job = Job(
        id=job_id,
        owner=owner,
        kind=kind,
        name=name or _name(spec, kind),
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
        env={**surroundings, **_env(spec.env or {})},
        argv=tuple(spec.argv) if isinstance(spec.argv, list) else (),
        shell=shell,
        path=spec.path,
        args=tuple(spec.args),
        source=spec.source,
        has_payload=payload is not None,
        inputs=_names(spec.inputs, "inputs"),
        outputs=_names(spec.outputs, "outputs"),
        python=spec.python,
        parameters=_parameters(spec.parameters or {}),
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
        name=_name(spec, job.kind) if spec.name is not None else job.name,
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


def _kind(spec: JobSpec) -> Kind:
    """The kind, given or told by the one field that says what runs."""
    given = [field for field in ("argv", "path", "source") if getattr(spec, field) is not None]
    kind = spec.kind or _told_by(given, spec)
    if kind is None:
        raise BadRequest(
            "The job does not say what to run.",
            field="argv",
            hint="Give one of `argv` (a command), `path` (a Python script or a notebook), `source` (a cell) "
            "or `payload` (a function).",
        )
    needed = _RUNS[kind]
    if given != [needed] and not (kind is Kind.FUNCTION and not given):
        raise BadRequest(f"A {kind.value} job takes `{needed}` and none of the others.", field=needed)
    _refuse_empty(spec, kind)
    for field, kinds in _ONLY_OF.items():
        if getattr(spec, field) not in (None, [], {}, "") and kind not in kinds:
            takers = " or ".join(f"a {kind.value}" for kind in kinds)
            raise BadRequest(f"{field}: only {takers} job takes it.", field=field)
    if spec.args and kind is not Kind.SCRIPT:
        raise BadRequest("args: only a script job takes it; a command has all in `argv`.", field="args")
    return kind


def _told_by(given: list[str], spec: JobSpec) -> Kind | None:
    if given == ["path"]:
        return Kind.NOTEBOOK if (spec.path or "").endswith(".ipynb") else Kind.SCRIPT
    if not given and spec.payload is not None:
        return Kind.FUNCTION
    return {"argv": Kind.COMMAND, "source": Kind.CELL}.get(given[0]) if len(given) == 1 else None


def _refuse_empty(spec: JobSpec, kind: Kind) -> None:
    if kind is Kind.COMMAND and not (spec.argv.strip() if isinstance(spec.argv, str) else spec.argv and spec.argv[0]):
        raise BadRequest("argv: the command is empty.", field="argv", hint='For example ["python", "train.py"].')
    if kind is Kind.SCRIPT and not spec.path:
        raise BadRequest("path: the script's name is empty.", field="path")
    if kind is Kind.NOTEBOOK and not (spec.path or "").endswith(".ipynb"):
        raise BadRequest(f"path: {spec.path!r} is no notebook; its name must end with .ipynb.", field="path")
    if kind is Kind.CELL and not (spec.source or "").strip():
        raise BadRequest("source: the cell is empty.", field="source", hint="Put the code to run below the magic line.")
    if kind is Kind.FUNCTION and not spec.payload:
        raise BadRequest(
            "payload: there is no function in it.",
            field="payload",
            hint="Give base64 of cloudpickle.dumps((function, args, kwargs)).",
        )


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


def _name(spec: JobSpec, kind: Kind) -> str:
    """The user's name for the job, or one told by what it runs; one line of at most 80 characters."""
    if spec.name is not None:
        if not spec.name.strip() or len(spec.name) > 200 or not spec.name.isprintable():
            raise BadRequest("name: a name is one line of 1 to 200 printable characters.", field="name")
        return spec.name
    if kind in (Kind.SCRIPT, Kind.NOTEBOOK):
        text = os.path.basename(spec.path or "")  # noqa: PTH119 - it need not be a path of this machine
    elif kind is Kind.CELL:
        lines = (line.strip() for line in (spec.source or "").splitlines())
        text = next((line for line in lines if line and not line.startswith(("#", "import ", "from "))), "cell")
        text = text if text.startswith(("!", "%")) else _COMMENT.sub(lambda found: found["text"] or "", text)
    elif kind is Kind.FUNCTION:
        text = kind.value
    else:
        text = spec.argv if isinstance(spec.argv, str) else " ".join(spec.argv or [])
    shown = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return (shown if len(shown) <= 60 else shown[:57] + "...") or kind.value


def _env(env: dict[str, str]) -> dict[str, str]:
    for name in env:
        if not name or "=" in name:
            raise BadRequest(f"env: {name!r} cannot be an environment variable.", field="env")
    return env


def _names(names: list[str], field: str) -> tuple[str, ...]:
    for name in names:
        if not name.isidentifier():
            raise BadRequest(
                f"{field}: {name!r} is not a variable name.", field=field, hint="For example `--out model,loss`."
            )
    return tuple(names)


def _parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    for name in parameters:
        if not name.isidentifier() or keyword.iskeyword(name):
            raise BadRequest(
                f"parameters: {name!r} is not a variable name.",
                field="parameters",
                hint='For example {"epochs": 3}, or --param epochs=3.',
            )
    return parameters


def read_payload(text: str) -> bytes:
    """The bytes of captured values. Raises ``BadRequest``."""
    try:
        payload = b"".join(map(_decoded, (text[at : at + _PIECE] for at in range(0, len(text), _PIECE))))
    except (binascii.Error, ValueError):
        raise BadRequest("payload: it is not base64.", field="payload") from None
    if len(payload) != len(text) // 4 * 3 - text[-2:].count("="):  # a piece before the last had padding
        raise BadRequest("payload: it is not base64.", field="payload")
    if len(payload) > LARGEST_PAYLOAD:
        raise BadRequest(
            f"payload: {len(payload) / 2**20:.0f} MiB of values are too much; "
            f"at most {LARGEST_PAYLOAD // 2**20} MiB travel with a job.",
            field="payload",
            hint="Save large data to a file and read it in the job.",
        )
    return payload


_PIECE = 2**20  # a multiple of 4; other threads go on between two pieces


def _decoded(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


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
