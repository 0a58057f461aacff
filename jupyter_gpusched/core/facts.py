"""What a policy is told of waiting jobs at one moment, and the order that follows from it.

An owner's own order of some jobs goes before the policy's: the places that these jobs have
by the policy are dealt out among them anew, so that nobody else's job comes earlier or later
for it. Nothing is decided here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from .model import Gpu, GpuUuid, Job, JobId, Outcome, Priority, Request, Settings
from .past import Past, footprint, largest_part, machine
from .policies import Waiting
from .queue import LineKey, Queue, line_key


class Known(Protocol):
    """As much of the state as the order depends on."""

    @property
    def settings(self) -> Settings: ...
    @property
    def jobs(self) -> Mapping[JobId, Job]: ...
    @property
    def gpus(self) -> Mapping[GpuUuid, Gpu]: ...
    @property
    def queue(self) -> Queue: ...
    @property
    def busy(self) -> Mapping[JobId, Job]: ...
    @property
    def by_hand(self) -> frozenset[JobId]: ...
    @property
    def past(self) -> Past: ...


class Place(NamedTuple):
    """Where a waiting job stands; smaller is looked at earlier. ``late``: after the urgent ones."""

    late: bool
    order: tuple[float, ...]
    submitted_at: float
    job_id: JobId


class Facts:
    """Worked out for whoever is asked about."""

    def __init__(self, state: Known, now: float) -> None:
        self.state, self.now = state, now
        self.settings, self.policy = state.settings, state.settings.policy
        self.history = state.past.history
        self.capacity = machine(state.gpus.values())
        self.shares = state.past.shares(state.busy.values(), self.capacity, state.settings, now)
        self._parts: dict[Request, float] = {}
        self._dealt: dict[JobId, Place] | None = None

    def expected_s(self, job: Job) -> float:
        return self.history.expected_s(line_key(job, self.history).kin(job.request))

    def waiting(self, job: Job, key: LineKey | None = None) -> Waiting:
        key = line_key(job, self.history) if key is None else key
        request = job.request
        part = self._parts.get(request)
        if part is None:
            mib = footprint(request, self.state.gpus.values())
            part = self._parts[request] = largest_part(mib, request, self.capacity, self.settings)
        return Waiting(
            submitted_at=job.submitted_at,
            waited_s=max(0.0, self.now - waits_since(job)),
            expected_s=self.history.expected_s(key.kin(request)),
            part=part,
            share=self.shares.get(job.owner, 0.0),
            priority=job.priority,
            backlog_s=job.backlog_s or 0.0,
        )

    def place(self, job: Job, key: LineKey | None = None) -> Place:
        """The job's place in the queue: the policy's, or the one that its owner's order gives it."""
        if job.place_at is None:
            return self._own_place(job, key)
        if self._dealt is None:
            self._dealt = self._deal()
        return self._dealt[job.id]

    def patience_s(self, job: Job, key: LineKey | None = None) -> float:
        return self.policy.patience_s(self.waiting(job, key), self.settings.claim_after_s)

    def _own_place(self, job: Job, key: LineKey | None = None) -> Place:
        late = not (self.policy.urgent_first and job.priority is Priority.HIGH)
        return Place(late, self.policy.order(self.waiting(job, key)), job.submitted_at, job.id)

    def _deal(self) -> dict[JobId, Place]:
        """The places of all jobs that stand in an order of their owner's."""
        owners: dict[str, list[tuple[float, JobId]]] = defaultdict(list)
        for job_id in self.state.by_hand:
            job = self.state.jobs[job_id]
            owners[job.owner].append((job.place_at or 0.0, job_id))
        dealt: dict[JobId, Place] = {}
        for wanted in owners.values():
            places = sorted(self._own_place(self.state.jobs[job_id]) for _, job_id in wanted)
            dealt.update(zip((job_id for _, job_id in sorted(wanted)), places, strict=True))
        return dealt


def order_of(state: Known, now: float, *, owner: str | None = None) -> list[JobId]:
    """The whole queue, or what of it is an owner's, in the order in which jobs are looked at."""
    facts = Facts(state, now)
    places = [
        (facts.place(state.jobs[rank.job_id], key), rank.job_id)
        for keyed in state.queue.lines.values()
        for key, line in keyed.items()
        if owner in {None, key.owner}
        for rank in line
    ]
    return [job_id for _, job_id in sorted(places)]


def rests(job: Job, now: float) -> bool:
    """Whether a failed attempt was so recent that the job is not tried again yet."""
    return job.not_before is not None and job.not_before > now


def waits_since(job: Job) -> float:
    """From when on its patience counts: a failed attempt begins it anew, an eviction does not."""
    if job.attempts and job.attempts[-1].outcome is Outcome.FAILED:
        return max(job.since, job.not_before or 0.0)
    return job.submitted_at
