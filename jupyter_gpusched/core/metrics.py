"""How good a schedule of a trace is, and how good any schedule of it could be.

Measures over jobs (time to completion, wait, slowdown, lost work) and lower bounds that hold
for every policy, clairvoyant or not. Times in seconds; a bounded slowdown counts a job as at
least ``SHORTEST_S`` long, so that the shortest do not outweigh all others.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace

from .policies import Priority
from .trace import Segment, Traced

SHORTEST_S = 60.0
_FEWEST_JOBS = 5
"""A user with fewer jobs is no measure of fairness."""

_CUTS = (0.0, 0.1, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5)
_NOTHING = 1e-9


@dataclass(frozen=True, slots=True)
class Score:
    """completion, wait, slowdown are means over jobs; ``worst_user`` the highest mean slowdown of a user."""

    completion_s: float
    completion_p95_s: float
    wait_s: float
    longest_wait_s: float
    urgent_wait_s: float
    slowdown: float
    worst_user: float
    makespan_s: float
    evictions: int
    lost_work: float


@dataclass(frozen=True, slots=True)
class Bounds:
    completion_s: float
    makespan_s: float


def score(traced: Sequence[Traced], segments: Sequence[Segment]) -> Score:
    """The measures of a schedule in which every job has run to its end."""
    ended = {segment.job_id: segment.end_s for segment in segments if not segment.preempted}
    completion = [ended[one.job.id] - one.job.submitted_at for one in traced]
    waits = [max(0.0, took - one.duration_s) for took, one in zip(completion, traced, strict=True)]
    slow = [max(1.0, took / max(one.duration_s, SHORTEST_S)) for took, one in zip(completion, traced, strict=True)]
    urgent = [wait for wait, one in zip(waits, traced, strict=True) if one.job.priority is Priority.HIGH]
    jobs = {one.job.id: one for one in traced}
    lost = sum(
        (segment.end_s - segment.start_s) * _footprint(jobs[segment.job_id])
        for segment in segments
        if segment.preempted
    )
    return Score(
        completion_s=_mean(completion),
        completion_p95_s=sorted(completion)[int(0.95 * (len(completion) - 1))],
        wait_s=_mean(waits),
        longest_wait_s=max(waits),
        urgent_wait_s=_mean(urgent),
        slowdown=_mean(slow),
        worst_user=_worst_user(traced, slow),
        makespan_s=max(ended.values()) - min(one.job.submitted_at for one in traced),
        evictions=sum(segment.preempted for segment in segments),
        lost_work=lost / sum(one.duration_s * _footprint(one) for one in traced),
    )


def bounds(traced: Sequence[Traced], *, gpus: int, vram: int) -> Bounds:
    """Completion time and makespan that no schedule without contention can beat.

    Every job takes at least its run time. Beyond that the cards are pooled into one preemptive
    machine on which job j is ``duration * gpus * f(vram / size of a card)`` of work, for ``f``
    the dual feasible functions of Martello and Toth: there, shortest remaining work first has
    the least sum of completion times, and least work first the least sum of mean busy times,
    which lie half a run before the completion of a run in one piece (Goemans).
    """
    ordered = sorted(traced, key=lambda one: one.job.submitted_at)
    first = ordered[0].job.submitted_at
    alone = sum(one.duration_s for one in ordered) / len(ordered)
    completion = alone
    makespan = max(one.job.submitted_at + one.duration_s for one in ordered) - first
    for cut in _CUTS:
        work = [one.duration_s * one.job.request.gpus * _dual((one.job.request.vram or vram) / vram, cut) / gpus
                for one in ordered]  # fmt: skip
        free = sum(one.duration_s for one, area in zip(ordered, work, strict=True) if area <= 0)
        submitted = sum(one.job.submitted_at for one, area in zip(ordered, work, strict=True) if area > 0)
        pooled = (_pooled(ordered, work, mean_busy=False) - submitted + free) / len(ordered)
        busy = (_pooled(ordered, work, mean_busy=True) - submitted + free / 2) / len(ordered) + alone / 2
        completion = max(completion, pooled, busy)
        after = 0.0
        for one, area in zip(reversed(ordered), reversed(work), strict=True):
            after += area
            makespan = max(makespan, one.job.submitted_at + after - first)
    return Bounds(completion, makespan)


def summary(found: Score, least: Bounds) -> Mapping[str, float]:
    """What ``simulate --summary`` prints."""
    return {
        "mean completion time, s": found.completion_s,
        "  times the lower bound": found.completion_s / least.completion_s,
        "95 % completed within, s": found.completion_p95_s,
        "mean wait, s": found.wait_s,
        "longest wait, s": found.longest_wait_s,
        "mean wait of urgent jobs, s": found.urgent_wait_s,
        "mean bounded slowdown": found.slowdown,
        "  of the worst user": found.worst_user,
        "makespan, s": found.makespan_s,
        "  times the lower bound ": found.makespan_s / least.makespan_s,
        "evictions": found.evictions,
        "work lost by them, %": 100.0 * found.lost_work,
    }


def _footprint(one: Traced) -> int:
    return one.job.request.gpus * (one.job.request.vram or 0)


def _worst_user(traced: Sequence[Traced], slow: Sequence[float]) -> float:
    of: defaultdict[str, list[float]] = defaultdict(list)
    for one, slowdown in zip(traced, slow, strict=True):
        of[one.job.owner].append(slowdown)
    return max((_mean(many) for many in of.values() if len(many) >= _FEWEST_JOBS), default=1.0)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _dual(size: float, cut: float) -> float:
    if size > 1 - cut:
        return 1.0
    return size if size >= cut else 0.0


def _pooled(ordered: Sequence[Traced], work: Sequence[float], *, mean_busy: bool) -> float:
    """Sum of completion times (least remaining first) or of mean busy times (least in all first) on one machine."""
    heap: list[list[float]] = []  # what decides, number, left, in all
    now, number, total = 0.0, 0, 0.0
    while number < len(ordered) or heap:
        if not heap:
            now = max(now, ordered[number].job.submitted_at)
        while number < len(ordered) and ordered[number].job.submitted_at <= now + 1e-12:
            if work[number] > 0:
                heappush(heap, [work[number], number, work[number], work[number]])
            number += 1
        if not heap:
            continue
        until = ordered[number].job.submitted_at if number < len(ordered) else math.inf
        top = heap[0]
        runs = min(top[2], until - now)
        if mean_busy:
            total += runs / top[3] * (now + runs / 2)
        top[2] -= runs
        now += runs
        if top[2] <= _NOTHING:
            heappop(heap)
            total += 0.0 if mean_busy else now
        elif not mean_busy:
            heapreplace(heap, [top[2], *top[1:]])
    return total
