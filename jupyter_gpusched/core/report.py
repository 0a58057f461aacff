"""What users had of the machine: their jobs, waits, failures and GPU hours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .model import Job, Phase


@dataclass
class Tally:
    """One user's, added up job by job. A share of a card counts as a whole one."""

    phases: dict[Phase, int] = field(default_factory=dict)
    gpu_s: float = 0.0
    waits_s: list[float] = field(default_factory=list)
    watched_gpu_s: float = 0.0
    idle_gpu_s: float = 0.0

    def add(self, job: Job, now: float) -> None:
        self.phases[job.phase] = self.phases.get(job.phase, 0) + 1
        for attempt in job.attempts:
            if attempt.started_at is not None:
                ended = now if attempt.ended_at is None else attempt.ended_at
                self.gpu_s += max(0.0, ended - attempt.started_at) * len(attempt.gpus)
        self.watched_gpu_s += job.watched_gpu_s
        self.idle_gpu_s += job.idle_gpu_s
        first = next((attempt.started_at for attempt in job.attempts if attempt.started_at is not None), None)
        if first is not None:
            self.waits_s.append(max(0.0, first - job.ages_from))


def tallies(jobs: Iterable[Job], now: float) -> dict[str, Tally]:
    """By owner."""
    found: dict[str, Tally] = {}
    for job in jobs:
        found.setdefault(job.owner, Tally()).add(job, now)
    return found
