"""Traces of jobs and schedules of them, as CSV: what ``simulate`` reads and writes.

A trace has one line per job with what is hidden from a policy (``duration_s``, ``sm_pct``);
a schedule has one line per run. Text in, values out; files are opened elsewhere.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from .model import BadRequest, Job, Kind, Request
from .policies import Priority
from .quantities import Mib

NEEDED = ("job_id", "user", "name", "submit_s", "duration_s", "gpus", "vram_mib")
_PRIORITY = {"0": Priority.LOW, "1": Priority.NORMAL, "2": Priority.HIGH}


@dataclass(frozen=True, slots=True)
class Traced:
    """A job as a user would submit it, and what is not known then: how long it runs alone, and its share of a card."""

    job: Job
    duration_s: float
    compute: float


@dataclass(frozen=True, slots=True)
class Segment:
    """One run of a job; ``preempted``: it was ended for another, and what it had done is lost."""

    job_id: str
    start_s: float
    end_s: float
    gpus: tuple[int, ...]
    preempted: bool


def read_trace(lines: Iterable[str]) -> list[Traced]:
    """The jobs of a trace in the order of the file. Raises ``BadRequest`` naming the line."""
    rows = csv.DictReader(lines)
    missing = [column for column in NEEDED if column not in (rows.fieldnames or ())]
    if missing:
        raise BadRequest(
            f"The trace lacks the columns {', '.join(missing)}.",
            hint="Its first line names the columns: " + ",".join((*NEEDED, "priority", "preemptible", "est_s")) + ".",
        )
    traced, seen = [], set()
    for number, row in enumerate(rows, start=2):
        try:
            one = _traced(row)
        except (ValueError, TypeError) as error:
            raise BadRequest(f"Line {number} of the trace cannot be read: {error}.") from None
        if one.job.id in seen:
            raise BadRequest(f"Line {number} of the trace: there are two jobs {one.job.id}.")
        seen.add(one.job.id)
        traced.append(one)
    return traced


def without_estimates(traced: Iterable[Traced]) -> list[Traced]:
    """The same jobs of users who give no time limit."""
    return [replace(one, job=replace(one.job, time_limit_s=None)) for one in traced]


def schedule_lines(segments: Iterable[Segment]) -> Iterator[str]:
    """The CSV of a schedule, in order of time."""
    yield "job_id,start_s,end_s,gpu_ids,preempted\n"
    for one in sorted(segments, key=lambda segment: (segment.start_s, segment.job_id)):
        gpus = " ".join(map(str, one.gpus))
        yield f"{one.job_id},{one.start_s:.3f},{one.end_s:.3f},{gpus},{int(one.preempted)}\n"


def _traced(row: dict[str, str]) -> Traced:
    at, duration_s = _amount(row, "submit_s"), _amount(row, "duration_s")
    estimate = _amount(row, "est_s") if row.get("est_s") else None
    level = row.get("priority") or "1"
    if level not in _PRIORITY:
        raise ValueError(f"priority {level!r} is none of 0 (low), 1 (normal) and 2 (high)")
    job = Job(
        id=row["job_id"],
        owner=row["user"],
        kind=Kind.COMMAND,
        name=row["name"],
        request=Request(gpus=int(row["gpus"]), vram=Mib(int(_amount(row, "vram_mib")))),
        priority=_PRIORITY[level],
        preemptible=bool(int(row.get("preemptible") or 0)),
        submitted_at=at,
        since=at,
        time_limit_s=estimate or None,
        grace_s=0.0,
    )
    compute = _amount(row, "sm_pct") / 100.0 if row.get("sm_pct") else 0.0
    return Traced(job, max(1.0, duration_s), compute)


def _amount(row: dict[str, str], column: str) -> float:
    amount = float(row[column])
    if not 0 <= amount < math.inf:
        raise ValueError(f"{column} is {row[column]}, which is no amount from 0 on")
    return amount
