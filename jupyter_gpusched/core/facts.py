"""What a policy is told of waiting jobs at one moment, and the order that follows from it.

An owner's own order of some jobs goes before the policy's: the places that these jobs have
by the policy are dealt out among them anew, so that nobody else's job comes earlier or later
for it. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from .held import Held
from .history import Person, Runs
from .model import Gpu, GpuUuid, Job, JobId, Outcome, Priority, Request, Settings
from .past import Past, footprint, largest_part, machine
from .policies import Columns, Order, Waiting
from .queue import Queue, line_key
from .usage import at_once


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
    def held(self) -> Held: ...
    @property
    def by_hand(self) -> Mapping[str, frozenset[JobId]]: ...
    @property
    def past(self) -> Past: ...


class Heads(Protocol):
    """As much as a policy is told of the heads of lines."""

    @property
    def ages(self) -> Sequence[float]: ...
    @property
    def since(self) -> Sequence[float]: ...
    @property
    def backlog(self) -> Sequence[float]: ...
    @property
    def priorities(self) -> Sequence[Priority]: ...


Place = tuple[bool, Order, float, JobId]
"""Where a waiting job stands; smaller is looked at earlier: urgent ones, then by the policy's order, age and id."""


class Facts:
    """Worked out for whoever is asked about."""

    def __init__(self, state: Known, now: float) -> None:
        self.state, self.now = state, now
        self.settings, self.policy = state.settings, state.settings.policy
        self.history = state.past.history
        self.capacity = machine(state.gpus.values())
        self.bound = self.policy.bounds()
        self.given: list[str] = []  # owners of what has been started meanwhile, in that order
        self._shares: dict[str, float] = {}
        self._parts: dict[Request, float] = {}
        self._dealt: dict[str, dict[JobId, Place]] = {}
        self._people: dict[str, tuple[Person | None, Runs | None, float]] = {}

    def expected_s(self, job: Job) -> float:
        return self.history.expected_s(line_key(job, self.history).kin(job.request))

    def share(self, owner: str) -> float:
        """The part of the machine that an owner has had of late."""
        share = self._shares.get(owner)
        if share is None:
            state = self.state
            share = state.past.share(owner, state.held, self.capacity, self.settings, self.now)
            self._shares[owner] = share
        return share

    def of(self, owner: str) -> tuple[Person | None, Runs | None, float]:
        """An owner's past, everybody's where that says too little, and what the owner's share is not below."""
        known = self._people.get(owner)
        if known is None:
            history, past, held = self.history, self.state.past, self.state.held
            person = history.people.get(owner)
            of_all = None if person is not None and history.judges_alone(person) else history.runs
            least = past.least_share(owner, held, self.capacity, self.settings, self.now)
            known = self._people[owner] = person, of_all, least
        return known

    def gave(self, owner: str, request: Request) -> None:
        """An owner's job starts: from now on that counts as its owner's."""
        self._shares[owner] = self.share(owner) + at_once(self.part(request))
        self.given.append(owner)

    def waiting(self, job: Job) -> Waiting:
        return self._seen(job, self.expected_s(job), self.part(job.request))

    def _seen(self, job: Job, expected_s: float, part: float) -> Waiting:
        waited_s = self.now - (waits_since(job) if job.attempts else job.ages_from)
        share = self._shares.get(job.owner)
        return Waiting(
            job.ages_from,
            waited_s if waited_s > 0.0 else 0.0,  # noqa: FURB136  asked very often
            expected_s,
            part,
            self.share(job.owner) if share is None else share,
            job.priority,
            job.backlog_s or 0.0,
        )

    def part(self, request: Request) -> float:
        """The part of the machine that is asked for."""
        part = self._parts.get(request)
        if part is None:
            mib = footprint(request, self.state.gpus.values())
            part = self._parts[request] = largest_part(mib, request, self.capacity, self.settings)
        return part

    def place(self, job: Job, expected_s: float, part: float) -> Place:
        """The job's place in the queue: the policy's, or the one that its owner's order gives it."""
        if job.place_at is None:
            return self._own_place(job, expected_s, part)
        dealt = self._dealt.get(job.owner)
        if dealt is None:
            dealt = self._dealt[job.owner] = self._deal(job.owner)
        return dealt[job.id]

    def orders(self, owner: str, part: float, heads: Heads, expected_s: Sequence[float]) -> list[Order]:
        """What the policy says of many jobs of an owner that ask for the same."""
        columns = Columns(
            self.now,
            part,
            self.share(owner),
            heads.ages,
            heads.since,
            expected_s,
            heads.priorities,
            heads.backlog,
        )
        return self.policy.orders(columns)

    def patience_s(self, job: Job) -> float:
        return self.policy.patience_s(self.waiting(job), self.settings.claim_after_s)

    def _own_place(self, job: Job, expected_s: float, part: float) -> Place:
        late = not (self.policy.urgent_first and job.priority is Priority.HIGH)
        return late, self.policy.order(self._seen(job, expected_s, part)), job.ages_from, job.id

    def _deal(self, owner: str) -> dict[JobId, Place]:
        """The places of all jobs that stand in this owner's order."""
        jobs = [self.state.jobs[job_id] for job_id in self.state.by_hand.get(owner, ())]
        places = sorted(self._own_place(job, self.expected_s(job), self.part(job.request)) for job in jobs)
        wanted = sorted((job.place_at or 0.0, job.id) for job in jobs)
        return dict(zip((job_id for _, job_id in wanted), places, strict=True))


def order_of(state: Known, now: float, *, owner: str | None = None) -> list[JobId]:
    """The whole queue, or what of it is an owner's, in the order in which jobs are looked at."""
    return [job_id for _, job_id in placed(state, Facts(state, now), owner=owner)]


def placed(state: Known, facts: Facts, *, owner: str | None = None) -> list[tuple[Place, JobId]]:
    """As above, each with its place."""
    places = []
    for (request, _), owners in state.queue.lines.items():
        part = facts.part(request)
        for of in owners if owner is None else owners.keys() & {owner}:
            for key, line in owners[of].lines.items():
                expected_s = facts.history.expected_s(key.kin(request))
                places += [(facts.place(state.jobs[job_id], expected_s, part), job_id) for _, job_id in line]
    places.sort()
    return places


def rests(job: Job, now: float) -> bool:
    """Whether a failed attempt was so recent that the job is not tried again yet."""
    return job.not_before is not None and job.not_before > now


def waits_since(job: Job) -> float:
    """From when on its patience counts: a failed attempt begins it anew, an eviction does not."""
    if job.attempts and job.attempts[-1].outcome is Outcome.FAILED:
        return max(job.since, job.not_before or 0.0)
    return job.ages_from
