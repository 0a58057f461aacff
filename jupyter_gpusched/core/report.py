"""What users had of the machine: their jobs, waits, failures and GPU hours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .model import Job, Phase


@dataclass
class Tally:
    """One user's, added up job by job. A share of a card counts as a whole one.

    waited          how many of the jobs have started, after waiting ``wait_s`` in all.
    longest_wait_s  of one of them; None = none has started.
    idle_gpu_s      what their cards did nothing, of ``watched_gpu_s``.
    """

    phases: dict[Phase, int] = field(default_factory=dict)
    gpu_s: float = 0.0
    waited: int = 0
    wait_s: float = 0.0
    longest_wait_s: float | None = None
    watched_gpu_s: float = 0.0
    idle_gpu_s: float = 0.0

    @property
    def mean_wait_s(self) -> float | None:
        return self.wait_s / self.waited if self.waited else None

    def plus(self, other: Tally) -> Tally:
        phases = {phase: self.phases.get(phase, 0) + other.phases.get(phase, 0) for phase in self.phases | other.phases}
        longest = [wait for wait in (self.longest_wait_s, other.longest_wait_s) if wait is not None]
        return Tally(
            phases,
            self.gpu_s + other.gpu_s,
            self.waited + other.waited,
            self.wait_s + other.wait_s,
            max(longest, default=None),
            self.watched_gpu_s + other.watched_gpu_s,
            self.idle_gpu_s + other.idle_gpu_s,
        )


def tally_of(job: Job, now: float) -> Tally:
    gpu_s, wait_s = 0.0, None
    for attempt in job.attempts:
        if attempt.started_at is not None:
            ended = now if attempt.ended_at is None else attempt.ended_at
            gpu_s += max(0.0, ended - attempt.started_at) * len(attempt.gpus)
            wait_s = max(0.0, attempt.started_at - job.ages_from) if wait_s is None else wait_s
    return Tally(
        {job.phase: 1},
        gpu_s,
        waited=0 if wait_s is None else 1,
        wait_s=wait_s or 0.0,
        longest_wait_s=wait_s,
        watched_gpu_s=job.watched_gpu_s,
        idle_gpu_s=job.idle_gpu_s,
    )


def tallies(jobs: Iterable[Job], now: float, gone: Iterable[tuple[str, Tally]] = ()) -> dict[str, Tally]:
    """By owner. ``gone``: of jobs that have been deleted, by owner."""
    found: dict[str, Tally] = {}
    for owner, tally in (*gone, *((job.owner, tally_of(job, now)) for job in jobs)):
        found[owner] = found[owner].plus(tally) if owner in found else tally
    return found
