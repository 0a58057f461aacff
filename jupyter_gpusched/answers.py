"""What a host's answers mean: its JSON, its refusals as our errors, and whether we understand each other.

Never speaks to a host; that is ``client``'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from .core.model import (
    BadRequest,
    GpuSchedError,
    NeverFits,
    NotAllowed,
    NotAvailable,
    Unauthorized,
    Unavailable,
    UnknownJob,
    WrongPhase,
)
from .find_host import HostUnreachable
from .places import API
from .transport import Answer
from .wire import ErrorBody, ErrorDetail

LATER = "Try again in a moment; `jupyter gpusched doctor` says more."


class ApiMismatch(GpuSchedError):
    """Client and host are of versions that do not understand each other."""

    code = "api_mismatch"


_ERRORS: dict[str, type[GpuSchedError]] = {
    kind.code: kind
    for kind in (
        BadRequest,
        NeverFits,
        NotAvailable,
        UnknownJob,
        NotAllowed,
        Unauthorized,
        Unavailable,
        HostUnreachable,
        ApiMismatch,
        WrongPhase,
    )
}
_BY_STATUS: dict[int, type[GpuSchedError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: NotAllowed,
    404: GpuSchedError,
    409: BadRequest,
    413: BadRequest,
    422: BadRequest,
}


def decoded(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise Unavailable(f"What answers is no jupyter-gpusched host: {error}.", hint=LATER) from error


def accepted(answer: Answer) -> bytes:
    """The body of a good answer; a refusal is raised as the error that the host meant."""
    return good(answer).body


def good(answer: Answer) -> Answer:
    if 200 <= answer.status < 300:
        return answer
    raise _meant(answer)


def _meant(answer: Answer) -> GpuSchedError:
    try:
        detail = msgspec.json.decode(answer.body, type=ErrorBody).error
    except msgspec.MsgspecError:
        detail = ErrorDetail(code="", message=f"The host failed to answer (HTTP {answer.status}).", hint=LATER)
    kind = _ERRORS.get(detail.code) or _BY_STATUS.get(answer.status, Unavailable)
    error = kind.__new__(kind)
    GpuSchedError.__init__(error, detail.message, field=detail.field, hint=detail.hint)
    if detail.code:
        error.code = detail.code
    return error


def check_api(health: Mapping[str, Any]) -> None:
    theirs = health.get("api")
    if theirs == API:
        return
    older = "the host" if isinstance(theirs, int) and theirs < API else "this environment"
    raise ApiMismatch(
        f"The host (version {health.get('version')}, API {theirs}) and this client (API {API})"
        " do not understand each other.",
        hint=f"Upgrade jupyter-gpusched in {older}"
        + (f" (process {health.get('pid')}), then restart it." if older == "the host" else "."),
    )
