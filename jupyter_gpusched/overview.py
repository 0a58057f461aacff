"""What an administrator's commands print: limits, the report by user, and the log of who did what."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .core.limits import RLIMITS
from .core.model import BadRequest
from .core.quantities import parse_seconds, show_mib, show_seconds
from .describe import one_line, table

if TYPE_CHECKING:
    from .client import Client

View = Mapping[str, Any]

_LIMITS = {
    "running_jobs": "running jobs",
    "queued_jobs": "waiting jobs",
    "gpus": "GPUs",
    "vram_share": "GPU memory",
    "cpus": "CPUs",
    "memory_mib": "host memory",
    "longest_time_s": "time of a job",
    "priorities": "priorities",
}


def answer(command: str, client: Client, *, since: str, everybody: bool, reread: bool, limit: int) -> tuple[Any, str]:
    """What a command has to say, for programs and for people."""
    if command == "limits":
        if everybody or reread:
            every = client.reread_limits() if reread else client.all_limits()
            return every, all_limits(every)
        own = client.limits()
        return own, own_limits(own)
    try:
        begin = time.time() - parse_seconds(since)
    except ValueError as error:
        raise BadRequest(f"--since: {error}.", field="since") from None
    if command == "report":
        told = client.report(begin)
        return told, report(told)
    entries = [entry for entry in client.log_of_events(limit) if entry["at"] >= begin]
    return entries, "\n".join(map(log_line, entries)) or "Nothing has happened in that time."


def own_limits(view: View) -> str:
    """The limits of whoever asks, with what of them is used."""
    use = view["in_use"]
    used = {
        "running_jobs": use["running_jobs"],
        "queued_jobs": use["queued_jobs"],
        "gpus": use["gpus"],
        "vram_share": show_mib(use["vram_mib"]),
        "cpus": use["cpus"],
        "memory_mib": show_mib(use["memory_mib"]),
    }
    rows = [["LIMIT", "AT MOST", "NOW"]]
    rows += [[words, _amount(name, view["limits"][name]), str(used.get(name, ""))] for name, words in _LIMITS.items()]
    rows += [[*row, ""] for row in _rlimits(view["limits"].get("rlimits") or {})]
    return table(rows)


def all_limits(view: View) -> str:
    """Everybody's limits, those of groups and of users, a line each."""
    sections = {"everybody": view["everybody"]}
    sections |= {f"group {one_line(name)}": words for name, words in view["groups"].items()}
    sections |= {f"user {one_line(name)}": words for name, words in view["users"].items()}
    rows = [["FOR", "LIMIT", "AT MOST"]]
    for who, words in sections.items():
        told = [[_LIMITS[name], _amount(name, value)] for name, value in words.items() if name in _LIMITS]
        rows += [[who, *row] for row in [*told, *_rlimits(words.get("rlimits") or {})]]
    return table(rows) if len(rows) > 1 else "No limits are set (GpuSched.limits names their file)."


def _amount(name: str, value: Any) -> str:
    if value is None:
        return "unlimited"
    if name == "memory_mib":
        return show_mib(value)
    if name == "longest_time_s":
        return show_seconds(value)
    if name == "vram_share":
        return f"{value:.0%} of all cards"
    return ", ".join(value) if name == "priorities" else str(value)


def _rlimits(rlimits: Mapping[str, int | None]) -> list[list[str]]:
    show: dict[str, Callable[[int], str]] = {
        "bytes": lambda value: f"{value} bytes",
        "seconds": show_seconds,
        "count": str,
    }
    return [
        [f"{one_line(name)} (ulimit)", "unlimited" if value is None else show[RLIMITS.get(name, "count")](value)]
        for name, value in rlimits.items()
    ]


def report(view: View) -> str:
    """What each user had, those with the most GPU hours first."""
    rows = [["USER", "JOBS", "GPU HOURS", "IDLE", "FAILED", "WAITING NOW", "RUNNING NOW", "MEAN WAIT", "LONGEST WAIT"]]
    for one in sorted(view["items"], key=lambda one: (-one["gpu_hours"], one["user"])):
        failed = one["failed"] + one["timeout"] + one["lost"]
        rows.append(
            [
                one_line(one["user"]),
                str(one["jobs"]),
                f"{one['gpu_hours']:.1f}",
                "n/a" if one.get("idle_share") is None else f"{one['idle_share']:.0%}",
                str(failed),
                str(one["queued"]),
                str(one["running"]),
                show_seconds(one["mean_wait_s"]),
                show_seconds(one["longest_wait_s"]),
            ]
        )
    return table(rows) if view["items"] else "Nobody has submitted a job in that time."


def log_line(entry: View) -> str:
    """When, who, what, of which job and whose; then what else is known of it."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry["at"]))
    who = f" by {one_line(entry['by'])}" if entry["by"] else ""
    of = "" if entry["job_id"] is None else f" job {entry['job_id']} of {one_line(entry['user'])}"
    rest = {name: value for name, value in entry["detail"].items() if name not in ("by", "alert") and value is not None}
    if alert := entry["detail"].get("alert"):
        rest["alert"] = alert.get("message")
    more = "".join(f" {name}={one_line(str(value))}" for name, value in rest.items())
    return f"{at} {entry['kind']}{who}{of}{more}"
