"""The order that a supervisor gets: what to execute, where, with which environment and files.

Translates a job's work into an argument list; knows nothing of processes that run already.
"""

from __future__ import annotations

import json
import marshal
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import jupyter_gpusched.runner
from jupyter_gpusched.core.asked import Swept
from jupyter_gpusched.core.environment import attempt_environment
from jupyter_gpusched.core.model import Job, Kind, Work
from jupyter_gpusched.ports import LaunchOrder

from .cgroups import as_ordered
from .means import Means

PLAIN = Means()
"""Nothing but descent and marker: what works everywhere."""

_RUNNER = Path(jupyter_gpusched.runner.__file__).parent
SUPERVISOR = str(_RUNNER / "supervise.py")
NURSERY = str(_RUNNER / "nurse.py")
RUNNER = str(_RUNNER / "cell.py")
FENCE = str(_RUNNER / "fence.py")
STARTUP = str(_RUNNER / "startup")
_BEFORE_THE_SEAM = 64 * 1024
"""So much less than a quarter of its limit a log's head may be, to end with a line."""

_RUN_BY_US = frozenset({Kind.CELL, Kind.FUNCTION, Kind.NOTEBOOK})


def supervisor_order(
    order: LaunchOrder,
    *,
    passed_on: Mapping[str, str],
    marker: str,
    log_limit: int | None = None,
    means: Means = PLAIN,
    home: str | None = None,
) -> bytes:
    """The order as the supervisor reads it: bytes throughout, so that no locale can change a word.

    log_limit  bytes of its log that stay on disk; None = all.
    means      what this machine offers.
    home       the cgroup that was made for it; None = the supervisor makes its own.
    """
    work, sweep = order.work, dict(order.job.sweep)
    env = attempt_environment(
        order.job,
        work,
        order.attempt,
        str(order.folder),
        passed_on=passed_on,
        marker=marker,
        python=work.python or (None if work.kind is Kind.COMMAND else sys.executable),
        hook=STARTUP,
    )
    return marshal.dumps(
        {
            "argv": [os.fsencode(word) for word in arguments(work, order.folder, order.attempt)],
            "env": {os.fsencode(name): os.fsencode(value) for name, value in env.items()},
            "cwd": os.fsencode(work.cwd),
            "marker": marker,
            "folders": ["checkpoint", "results"] if work.kind in _RUN_BY_US else ["checkpoint"],
            "files": runner_files(work, order.attempt, log_limit, sweep=sweep) if work.kind in _RUN_BY_US else {},
            "time_limit_s": order.job.time_limit_s,
            "grace_s": order.job.grace_s,
            "notice": _notice(order.job),
            "log_limit": log_limit,
            "cgroup": {"path": home} if home else as_ordered(means.cgroups, order.job.id, order.attempt, marker),
            "oom_counters": list(means.oom_counters),
        },
        2,  # a version that every Python reads: a prepared cell's supervisor runs in the job's own
    )


def _notice(job: Job) -> list[float] | None:
    """The number of the signal that is sent so many seconds before the time limit."""
    notice = job.notice
    return None if notice is None else [int(signal.Signals[f"SIG{notice.signal}"]), notice.before_s]


def arguments(work: Work, folder: Path, attempt: int) -> list[str]:
    """What is executed: exactly the given list, or a shell only where one string was given for it."""
    python = work.python or sys.executable
    if work.kind in _RUN_BY_US:
        return [python, RUNNER, str(folder), str(attempt)]
    if work.kind is Kind.SCRIPT:
        path = work.path or ""
        return [python, f"./{path}" if path.startswith("-") else path, *work.args]
    if work.shell is not None:
        return ["/bin/sh", "-c", work.shell]
    return list(work.argv)


def runner_files(
    work: Work, attempt: int, log_limit: int | None = None, *, sweep: Mapping[str, Swept] = MappingProxyType({})
) -> dict[str, bytes]:
    """The work for its runner. The journal is there from the start: it tells a cell's outputs from a log.

    Text is taken into it from the head of the log only, which is never cut away.
    """
    told: dict[str, object] = {"kind": work.kind.value}
    if log_limit is not None:
        told["most_text"] = log_limit // 4 - _BEFORE_THE_SEAM
    if work.kind is Kind.CELL:
        told |= {"source": work.source, "outputs": list(work.outputs), "has_payload": work.has_payload}
    if work.kind in (Kind.CELL, Kind.FUNCTION) and sweep:
        told["sweep"] = dict(sweep)
    if work.item is not None:
        told["item"] = work.item
    if work.kind is Kind.NOTEBOOK:
        told |= {"path": work.path, "parameters": work.parameters}
    return {
        f"attempt-{attempt}/work.json": json.dumps(told).encode(),
        f"attempt-{attempt}/outputs.jsonl": b"",
    }
