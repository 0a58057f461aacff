"""What must be true after a round of random kills, seen from outside; see ``kills.py``.

Knows what was asked and what was told, and nothing of how hosts work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

FINAL = {"succeeded", "failed", "cancelled", "timeout", "lost"}


@dataclass
class Expectation:
    """One acknowledged job: how it ends by itself and what it prints, and what was done to it.

    cancelled  the phase that the answer to the cancellation showed.
    """

    code: int
    log: bytes
    cancelled: str | None = None
    killed: bool = False
    supervisor_killed: bool = False


@dataclass
class Told:
    """What hosts, jobs and the machine said afterwards. Runs and ends are counted by (job, attempt)."""

    views: Mapping[str, dict[str, Any]]
    runs: Counter[tuple[str, str]]
    ends: Counter[tuple[str, str]]
    logs: Mapping[str, bytes]
    followed: Mapping[str, bytes]
    stream: list[tuple[int, str, str]]
    replay: list[tuple[int, str, str]]
    grants_left: list[Any]
    processes_left: list[str]
    strangers_harmed: list[int]
    kills: int


def faults(jobs: Mapping[str, Expectation], told: Told) -> list[str]:
    """Everything that is wrong, in words; empty when nothing is."""
    found = [fault for job_id, job in jobs.items() for fault in _of_job(job_id, job, told)]
    found += [f"attempt {attempt} ran {times} times" for attempt, times in told.runs.items() if times > 1]
    if unknown := {job_id for job_id, _ in told.runs} - set(jobs):
        found.append(f"nobody acknowledged {unknown}, yet they ran")
    found += _of_stream(told)
    if told.grants_left:
        found.append(f"memory stays granted: {told.grants_left}")
    found += [f"still running: {process}" for process in told.processes_left]
    found += [f"stranger {pid} was ended" for pid in told.strangers_harmed]
    if not told.kills:
        found.append("no host was killed: the round shows nothing")
    return found


def _of_job(job_id: str, job: Expectation, told: Told) -> Iterator[str]:
    view = told.views[job_id]
    phase, runs = view["phase"], sum(times for (ran, _), times in told.runs.items() if ran == job_id)
    ended = any(ran == job_id for ran, _ in told.ends)
    if not _true(view, job, runs, ended):
        yield (
            f"{job_id} is {phase} ({view['reason']}, code {view['exit_code']}, signal {view['signal']}:"
            f" {view['message']}); it ran {runs} times, {'to its end' if ended else 'not to its end'}; {job}"
        )
    if runs > 1:
        yield f"{job_id} ran {runs} times"
    if job.cancelled in {"cancelled", "queued"} and phase != "cancelled":
        yield f"{job_id} was {job.cancelled} when its cancellation was acknowledged, and is {phase}"
    log = told.logs.get(job_id, b"")
    if (ended and log != job.log) or not job.log.startswith(log):
        yield f"the log of {job_id} is {log!r}, not {job.log!r}"
    if told.followed.get(job_id, log) != log:
        yield f"who followed {job_id} saw {told.followed[job_id]!r}, not {log!r}"


def _true(view: Mapping[str, Any], job: Expectation, runs: int, ended: bool) -> bool:
    """Whether the final phase is the truth about the job."""
    match view["phase"]:
        case "succeeded":
            return job.code == 0 and view["exit_code"] == 0 and ended
        case "failed":
            by_itself = job.code != 0 and view["exit_code"] == job.code and ended
            by_kill = job.killed and view["signal"] == 9
            before_start = job.supervisor_killed and view["reason"] == "launch_failed" and runs == 0
            return by_itself or by_kill or before_start
        case "lost":
            return job.supervisor_killed
        case "cancelled":
            return job.cancelled is not None and (view["started_at"] is not None or runs == 0)
        case _:
            return False


def _of_stream(told: Told) -> Iterator[str]:
    """Who listened through all kills was told the same as who asks afterwards: nothing missing, nothing twice."""
    last = told.replay[-1][0]
    heard = [frame for frame in told.stream if frame[0] <= last]
    if heard != told.replay:
        missing, extra = set(told.replay) - set(heard), Counter(heard) - Counter(told.replay)
        yield f"the stream of events differs: missing {sorted(missing)}, too many {sorted(extra.elements())}"
    ends: Counter[str] = Counter()
    previous: dict[str, str] = {}
    for _, job_id, phase in told.replay:
        ends[job_id] += phase in FINAL and previous.get(job_id) != phase
        previous[job_id] = phase
    for job_id, times in ends.items():
        if times != 1:
            yield f"{job_id} had {times} final phases"
