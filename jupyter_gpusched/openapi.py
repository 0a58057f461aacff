"""The REST interface as an OpenAPI document, made from the types of ``wire``.

Owns the list of what can be asked, with parameters, statuses and bodies; a test holds it
against the paths that ``api`` really serves. It answers nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from . import administration, wire
from ._version import __version__
from .core.model import Phase

Schema = dict[str, Any]

_REF = "#/components/schemas/{name}"
FRAMES = (wire.SnapshotFrame, wire.JobFrame, wire.GpusFrame, wire.AlertFrame, wire.OutputsFrame)
_TYPES = (
    wire.Health, wire.GpuList, wire.JobList, wire.JobView, wire.JobSpec, wire.Batch, wire.Created, wire.CreatedBatch,
    wire.CancelRequest, wire.HoldRequest, wire.ManyRequest, wire.JobIds, wire.ArrayView,
    wire.JobOrder, wire.Outputs, wire.ErrorBody, wire.GpuHistory, wire.MemoryCurve, wire.Timeline,
    wire.JobEvents, wire.AlertList, wire.DrainState, wire.QuarantineRequest, wire.CauseRequest, *FRAMES,
    wire.ReservationRequest, wire.Reservation, wire.ReservationList,
    administration.OwnLimits, administration.AllLimits, administration.Report, administration.Log,
)  # fmt: skip

_COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}
_WAIT: Schema = {"type": "number", "minimum": 0, "maximum": 30}
_TEXT: Schema = {"type": "string"}
BYTES: Schema = {"type": "string", "format": "binary"}

_ERRORS = {
    400: "The request cannot be read.",
    401: "Nobody can say who asks.",
    403: "Another user's host, or for administrators only; in a Jupyter server: no login, token or permission.",
    404: "There is no such job, or not one of yours.",
    409: "Not possible as things stand; the hint says what to do.",
    413: "The body is too large.",
    422: "The request is understood and refused; `field` names the culprit.",
    429: "The caller asks faster than a host for several users answers; `Retry-After` says when to ask again.",
    503: "The host cannot answer now; try again in a moment.",
}
_ALWAYS = (400, 401, 403, 429, 503)


@dataclass(frozen=True)
class Parameter:
    name: str
    words: str
    schema: Schema


@dataclass(frozen=True)
class Operation:
    """One thing that can be asked. ``answer`` is a type, a schema, or None for an answer without a body."""

    method: str
    path: str
    words: str
    status: int
    answer: type | Schema | tuple[type, ...] | None
    media: str = "application/json"
    query: tuple[Parameter, ...] = ()
    body: Schema | None = None
    refuses: tuple[int, ...] = ()


_ATTEMPT = Parameter("attempt", "which attempt; the latest when left out", {**_COUNT, "maximum": 10**6})
_AFTER_OUTPUT = Parameter("after", "the `next` of the answer before; 0 is the beginning", _COUNT)
_ALL_USERS = Parameter(
    "all_users", "with 1 everybody's jobs, which is for administrators", {"type": "string", "enum": ["0", "1"]}
)
_OF_JOBS = (
    Parameter("phase", "only jobs in this phase", {"type": "string", "enum": [phase.value for phase in Phase]}),
    Parameter("ended", "with 1 only jobs that have ended, in whatever phase", {"type": "string", "enum": ["0", "1"]}),
    Parameter("user", "whose jobs; administrators see those of others", _TEXT),
    _ALL_USERS,
    Parameter("name", "only jobs with exactly this name", _TEXT),
    Parameter("array", "only the elements of this array", _TEXT),
    Parameter("limit", "at most so many (default 100, at most 1000)", _COUNT),
    Parameter("cursor", "the `next_cursor` of the page before", _TEXT),
)
_OF_EVENTS = (
    Parameter("cursor", "the `next_cursor` of the page before", _COUNT),
    Parameter("limit", "at most so many (default and at most 1000)", _COUNT),
)
_SINCE_TIME = Parameter("since", "only samples after this time, seconds since the epoch",
                        {"type": "number", "minimum": 0, "maximum": 10**15})  # fmt: skip
_OF_WAIT = (
    Parameter("wait", "answer only when the job is final", {"type": "string", "enum": ["final"]}),
    Parameter("timeout", "with `wait`: answer after so many seconds in any case (at most 30)", _WAIT),
)  # fmt: skip
_OF_LOG = (
    _ATTEMPT,
    Parameter("offset", "first byte", _COUNT),
    Parameter("limit", "at most so many bytes (8 MiB at once)", _COUNT),
)
_SUBMITTED_SINCE = Parameter("since", "only jobs submitted after this time, seconds since the epoch (default: a week)",
                             {"type": "number", "minimum": 0, "maximum": 10**15})  # fmt: skip
_OF_LOG_OF_EVENTS = (
    Parameter("cursor", "the `next_cursor` of the page before", _COUNT),
    Parameter("limit", "at most so many (default 200, at most 1000)", _COUNT),
)
_NEWEST = Parameter("newest", "of a long answer only about so many bytes from its end", _COUNT)
_SINCE = Parameter("after", "the `seq` of the last frame you have; without it a snapshot comes first", _COUNT)


def _ref(kind: type) -> Schema:
    return {"$ref": _REF.format(name=kind.__name__)}


_CHANGES: Schema = {"$ref": _REF.format(name="JobChanges")}
_TERMS: Schema = {"$ref": _REF.format(name="JobTerms")}
_TERMS_OR_ORDER: Schema = {"anyOf": [_TERMS, _ref(wire.JobOrder)]}
_SUBMISSION: Schema = {"anyOf": [_ref(wire.JobSpec), _ref(wire.Batch)]}

OPERATIONS = (
    Operation("get", "health", "Is there a host, which one, and is anything wrong.", 200, wire.Health),
    Operation("get", "gpus", "The GPUs, their figures and who holds what.", 200, wire.GpuList),
    Operation("get", "gpus/history", "What each GPU showed in the last quarter of an hour.", 200, wire.GpuHistory,
              query=(_SINCE_TIME,), refuses=(422,)),
    Operation("get", "jobs", "Your jobs, newest first.", 200, wire.JobList, query=_OF_JOBS, refuses=(422,)),
    Operation("post", "jobs", "Queue one job, or a batch: all or none. They are on disk when this answers.", 201,
              (wire.Created, wire.CreatedBatch), body=_SUBMISSION, refuses=(409, 413, 422)),
    Operation("get", "jobs/{id}", "One job; with `wait=final` once it has ended.", 200, wire.JobView, query=_OF_WAIT,
              refuses=(404, 422)),
    Operation("patch", "jobs/{id}", "Change a job that is still queued (`null` stands for the default), or its place: "
              "right before or after another of yours. Of an array (or `ID[0-9]`) what waits is changed, and the "
              "answer has the ids.", 200, (wire.JobView, wire.JobIds), body=_TERMS_OR_ORDER,
              refuses=(404, 409, 413, 422)),
    Operation("delete", "jobs/{id}", "Delete the record and the files of a job that has ended.", 204, None,
              refuses=(404, 409)),
    Operation("post", "jobs/{id}/cancel", "End a job; answers at once. Harmless when it has ended. `id` may be that of "
              "an array, or name some of its elements (`ID[0-9]`): then the answer has their ids.", 200,
              (wire.JobView, wire.JobIds), body=_ref(wire.CancelRequest), refuses=(404, 413, 422)),
    Operation("post", "jobs/{id}/hold", "A job that waits does not start until it is released; ids as for `cancel`.",
              200, (wire.JobView, wire.JobIds), body=_ref(wire.HoldRequest), refuses=(404, 409, 413, 422)),
    Operation("post", "jobs/{id}/release", "A held job goes on; ids as for `cancel`.", 200,
              (wire.JobView, wire.JobIds), refuses=(404, 409, 413, 422)),
    Operation("post", "jobs/{id}/resubmit", "Queue the same work again as a new job, with changes if any. Of an array "
              "those elements that ended otherwise than succeeded (all that are named, with `ID[0-9]`).", 201,
              (wire.Created, wire.CreatedBatch), body=_CHANGES, refuses=(404, 409, 413, 422)),
    Operation("post", "jobs/cancel", "End those of your jobs whose name fits a pattern.", 200, wire.JobIds,
              body=_ref(wire.ManyRequest), refuses=(413, 422)),
    Operation("post", "jobs/hold", "Hold those of your waiting jobs whose name fits a pattern.", 200, wire.JobIds,
              body=_ref(wire.ManyRequest), refuses=(413, 422)),
    Operation("post", "jobs/release", "Release those of your held jobs whose name fits a pattern.", 200, wire.JobIds,
              body=_ref(wire.ManyRequest), refuses=(413, 422)),
    Operation("get", "arrays/{id}", "An array as a whole; its elements are `GET jobs?array=ID`.", 200, wire.ArrayView,
              refuses=(404,)),
    Operation("get", "jobs/{id}/log", "What it printed, as bytes; `X-Gpusched-Log-Size` is the size of all of it, "
              "`X-Gpusched-Log-Next` the offset to go on with.", 200,
              BYTES, media="application/octet-stream", query=_OF_LOG, refuses=(404, 422)),
    Operation("get", "jobs/{id}/outputs", "Its outputs as a notebook has them.", 200, wire.Outputs,
              query=(_ATTEMPT, _AFTER_OUTPUT, _NEWEST), refuses=(404, 422)),
    Operation("get", "jobs/{id}/result/{name}", "The pickled value of one `--out` variable.", 200, BYTES,
              media="application/octet-stream", refuses=(404,)),
    Operation("get", "jobs/{id}/spec", "What was submitted, without captured values.", 200, wire.JobSpec,
              refuses=(404,)),
    Operation("get", "jobs/{id}/memory", "The VRAM it used over its life.", 200, wire.MemoryCurve, refuses=(404,)),
    Operation("get", "jobs/{id}/timeline", "Who held what before an attempt ran out of GPU memory.", 200,
              wire.Timeline, query=(_ATTEMPT,), refuses=(404, 422)),
    Operation("get", "jobs/{id}/events", "What happened to it, as the journal has it.", 200, wire.JobEvents,
              query=_OF_EVENTS, refuses=(404, 422)),
    Operation("get", "alerts", "What a person should look at now; those about jobs are your own.", 200, wire.AlertList),
    Operation("get", "reservations", "GPUs that are kept for somebody, now or later.", 200, wire.ReservationList),
    Operation("post", "reservations", "Keep GPUs for somebody in a window of time; administrators only.", 201,
              wire.Reservation, body=_ref(wire.ReservationRequest), refuses=(409, 413, 422)),
    Operation("delete", "reservations/{id}", "End a reservation; administrators only.", 204, None, refuses=(404,)),
    Operation("post", "admin/quarantine", "Give a card no jobs, or with `release` give it jobs again.", 200,
              wire.GpuView, body=_ref(wire.QuarantineRequest), refuses=(409, 413, 422)),
    Operation("post", "admin/drain", "Start nothing new; what runs goes on, and what is submitted waits.", 200,
              wire.DrainState, body=_ref(wire.CauseRequest), refuses=(413, 422)),
    Operation("post", "admin/resume", "End a drain.", 200, wire.DrainState, body=_ref(wire.CauseRequest),
              refuses=(413, 422)),
 Operation("get", "limits", "What you may have at a time, and have.", 200, administration.OwnLimits),
    Operation("get", "admin/limits", "The limits of all users.", 200, administration.AllLimits),
    Operation("post", "admin/limits", "Read the limits' file again; nothing that runs is ended.", 200,
              administration.AllLimits, body=_ref(wire.CauseRequest), refuses=(413, 422)),
    Operation("get", "admin/report", "What each user had: jobs, waits, failures, GPU hours.", 200,
              administration.Report, query=(_SUBMITTED_SINCE,), refuses=(422,)),
    Operation("get", "admin/events", "Who did what when, oldest first; without `cursor` the newest.", 200,
              administration.Log, query=_OF_LOG_OF_EVENTS, refuses=(422,)),
    Operation("get", "events", "What happens, one JSON object a line, without end. Empty lines keep it alive.", 200,
              FRAMES, media="application/x-ndjson", query=(_SINCE, _ALL_USERS), refuses=(422,)),
    Operation("get", "metrics", "Cards, queue and waits in the text form of Prometheus. No label names anybody.", 200,
              _TEXT, media="text/plain"),
    Operation("get", "openapi.json", "This document.", 200, {"type": "object"}),
)  # fmt: skip


@cache
def document() -> bytes:
    """The document as JSON."""
    return msgspec.json.encode(_document())


def _document() -> Schema:
    paths: dict[str, Schema] = {}
    for operation in OPERATIONS:
        paths.setdefault("/" + operation.path, {})[operation.method] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "jupyter-gpusched",
            "version": __version__,
            "description": "GPU jobs of this machine. The same over the host's unix socket and behind a Jupyter "
            "server, which asks for its token.",
        },
        "servers": [{"url": "."}],
        "security": [{}, {"jupyterToken": []}],
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {
                "jupyterToken": {
                    "type": "apiKey", "in": "header", "name": "Authorization",
                    "description": "`token <the Jupyter server's token>`; not needed on the unix socket.",
                },
            },
        },
    }  # fmt: skip


def _operation(operation: Operation) -> Schema:
    described: Schema = {
        "operationId": _operation_id(operation),
        "summary": operation.words,
        "parameters": [*_in_path(operation.path), *_in_query(operation.query)],
        "responses": {
            str(operation.status): _answer(operation),
            **{str(status): _refusal(status) for status in sorted({*_ALWAYS, *operation.refuses})},
        },
    }
    if operation.body is not None:
        described["requestBody"] = {
            "required": operation.path == "jobs",
            "content": {"application/json": {"schema": operation.body}},
        }
    return described


def _operation_id(operation: Operation) -> str:
    words = operation.path.replace("{id}", "one").replace("/{name}", "").replace(".json", "").split("/")
    return "_".join([operation.method, *words])


def _in_path(path: str) -> Iterable[Schema]:
    meant = {
        "id": ("the id of a job (or `ARRAY[3]`)", r"^[a-z][a-z0-9]{7}(\[[0-9,-]+\])?$"),
        "name": ("the variable's name", "^[A-Za-z_][A-Za-z0-9_]*$"),
    }
    for name, (words, pattern) in meant.items():
        if f"{{{name}}}" in path:
            schema = {"type": "string", "pattern": pattern}
            yield {"name": name, "in": "path", "required": True, "description": words, "schema": schema}


def _in_query(parameters: Iterable[Parameter]) -> Iterable[Schema]:
    for parameter in parameters:
        yield {"name": parameter.name, "in": "query", "description": parameter.words, "schema": parameter.schema}


def _answer(operation: Operation) -> Schema:
    answer = operation.answer
    if answer is None:
        return {"description": "Done."}
    if isinstance(answer, tuple):
        schema: Schema = {"anyOf": [_ref(kind) for kind in answer]}
    else:
        schema = _ref(answer) if isinstance(answer, type) else answer
    return {"description": "What was asked for.", "content": {operation.media: {"schema": schema}}}


def _refusal(status: int) -> Schema:
    content = {"application/json": {"schema": _ref(wire.ErrorBody)}}
    return {"description": _ERRORS[status], "content": content}


def _schemas() -> Schema:
    _, components = msgspec.json.schema_components(_TYPES, ref_template=_REF)
    spec = components["JobSpec"]
    fields = spec["properties"]
    components["JobChanges"] = _changes("Fields of a submission to be given anew.", fields)
    terms = {name: form for name, form in fields.items() if name in wire.TERMS}
    components["JobTerms"] = _changes("What can be changed while a job is queued.", terms)
    return components


def _changes(words: str, fields: Schema) -> Schema:
    """Each field as in a submission, or null for its default."""
    forms = {name: {"anyOf": [_without_default(form), {"type": "null"}]} for name, form in fields.items()}
    return {"type": "object", "description": words, "properties": forms, "additionalProperties": False}


def _without_default(form: Schema) -> Schema:
    return {key: value for key, value in form.items() if key != "default"}
