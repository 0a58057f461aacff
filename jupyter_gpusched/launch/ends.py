"""How an attempt ended, from what its supervisor wrote down and the end of its log.

The record lies in a folder of the job's user: a value of the wrong type counts as missing.
"""

from __future__ import annotations

from typing import Any, TypeVar

from jupyter_gpusched.core.diagnose import diagnose
from jupyter_gpusched.core.model import ExitRecord, Kind
from jupyter_gpusched.core.quantities import Mib, show_mib

Value = TypeVar("Value")


def exit_record(raw: dict[str, Any], tail: bytes, kind: Kind, *, now: float) -> ExitRecord:
    """The supervisor's record with its diagnosis; ``now`` stands in for a missing end."""
    code, signal, stopped = _get(raw, "code", int), _get(raw, "signal", int), _get(raw, "stopped", str)
    peak = _get(raw, "peak_rss_mib", int)
    reason, message = _get(raw, "reason", str), _get(raw, "message", str)
    if reason is None or message is None:
        text = tail.decode(errors="replace")
        reason, message = diagnose(code=code, signal=signal, stopped=stopped, tail=text, kind=kind)
    if reason == "signal_9" and peak is not None:
        message += f"; it had used at most {show_mib(peak)} of host memory"
    survivors = raw.get("survivors")
    return ExitRecord(
        code=code,
        signal=signal,
        started_at=_number(raw, "started_at"),
        ended_at=_number(raw, "ended_at") or now,
        reason=reason,
        message=message,
        stopped=stopped,
        peak_rss_mib=None if peak is None else Mib(peak),
        stragglers=_get(raw, "stragglers", int) or 0,
        survivors=tuple(map(str, survivors)) if isinstance(survivors, list) else (),
    )


def _get(raw: dict[str, Any], name: str, kind: type[Value]) -> Value | None:
    value = raw.get(name)
    return value if isinstance(value, kind) and not isinstance(value, bool) else None


def _number(raw: dict[str, Any], name: str) -> float | None:
    value = raw.get(name)
    return float(value) if isinstance(value, (int, float)) else None
