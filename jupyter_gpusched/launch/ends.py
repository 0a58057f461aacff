"""How an attempt ended, from what its supervisor wrote down and the end of its log.

The record lies in a folder of the job's user: a value of the wrong type counts as missing.
"""

from __future__ import annotations

from typing import Any

from jupyter_gpusched.core.diagnose import diagnose, host_oom, shortage
from jupyter_gpusched.core.model import ExitRecord, Kind
from jupyter_gpusched.core.quantities import Mib, show_little

from .values import as_text, integer, seconds, text

MOST_SURVIVORS = 20
_SKEW_S = 86400.0
"""A record may be so far ahead of our clock, which may have been set back meanwhile."""


def exit_record(raw: dict[str, Any], tail: bytes, kind: Kind, *, now: float) -> ExitRecord:
    """The supervisor's record with its diagnosis; ``now`` stands in for a missing end."""
    code, signal = integer(raw, "code", least=0, most=255), integer(raw, "signal", least=1, most=255)
    stopped = text(raw, "stopped", most=100)
    peak = integer(raw, "peak_rss_mib", least=0, most=2**40)
    reason, message = text(raw, "reason", most=100), text(raw, "message")
    if reason is None or message is None:
        printed = tail.decode(errors="replace")
        reason, message = diagnose(code=code, signal=signal, stopped=stopped, tail=printed, kind=kind)
    if reason == "signal_9" and (kills := raw.get("oom_kills")) and isinstance(kills, dict):
        reason, message = host_oom(kills) or (reason, message)
    if reason in ("signal_9", "host_oom") and peak is not None:
        message += f"; it had used at most {show_little(peak)} of host memory"
    survivors = raw.get("survivors")
    stragglers = integer(raw, "stragglers", least=0) or 0
    if stragglers and stopped is None:
        message += f"; {stragglers} process{'' if stragglers == 1 else 'es'} that it left behind had to be ended"
    return ExitRecord(
        code=code,
        signal=signal,
        started_at=seconds(raw, "started_at", most=now + _SKEW_S),
        ended_at=seconds(raw, "ended_at", most=now + _SKEW_S) or now,
        reason=reason,
        message=message,
        stopped=stopped,
        peak_rss_mib=None if peak is None else Mib(peak),
        stragglers=stragglers,
        survivors=_names(survivors) if isinstance(survivors, list) else (),
        shortage=shortage(tail.decode(errors="replace")) if reason == "cuda_oom" else None,
    )


def _names(survivors: list[Any]) -> tuple[str, ...]:
    return tuple(as_text(name, most=200) for name in survivors[:MOST_SURVIVORS] if isinstance(name, (str, int)))
