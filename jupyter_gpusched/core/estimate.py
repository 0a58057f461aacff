"""When waiting jobs will probably start: the same policy, run ahead on expected run times.

Nobody knows how long a job will run, so the future is played several times, each time with other
run times from what was learned; what the plays agree on is the estimate, and where they differ is
its range. What rests on a run of which nothing is known is not foretold. Costly, so that it is
never part of a scheduling pass; it looks at a copy and changes nothing. Who is set aside is not foretold, but
whoever of them comes to its turn in a play stands in the way of others as it will then (``foreseen``).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple
from zlib import crc32

from .facts import order_of
from .foreseen import foreseen
from .history import History
from .ledger import foreign_use
from .messages import Exited, Launch, StopAttempt, Submitted
from .model import ExitRecord, Gpu, Grant, Job, JobId, Phase
from .past import begun
from .quantities import Mib
from .queue import kin_of
from .reservations import opens
from .schedule import next_wakeup, schedule
from .state import State, apply

PLAYS = 5
"""How often the future is played; a prime, so that each job meets each of its run times once."""

MOST_JOBS = 128
"""So many of the queue are foretold, from its front; what stands behind is too far away."""

MOST_PASSES = 256
FARTHEST_S = 7 * 86400.0

SOONER, LATER = 0.7, 1.5
"""By so much a range is wider than the plays: what is learned says too little of what was never seen before.

With it four of five starts fall into their range, on traces from which it was not made
(docs/explanation/scheduling.md).
"""

DAY_S = 86400.0
LEAST_SPAN_S = 3600.0
"""What came within less than an hour is taken to come once an hour."""


class Start(NamedTuple):
    """When a job will probably start, and between which moments it does so four times out of five."""

    at: float
    earliest: float
    latest: float


def foretold(state: State, now: float, recent: Sequence[Job] = (), *, most: int = MOST_JOBS) -> dict[JobId, Start]:
    """The probable starts of the first ``most`` waiting jobs, as far as anything is known of them.

    recent  jobs as they were submitted of late: as many and such as these will come, and some will pass.
    """
    if state.operations.drain is not None or not state.queue:
        return {}
    state = _apart(state)
    ahead = _copied(state, order_of(state, now)[:most], most)
    plays = [_Play(ahead, now, number, recent).run() for number in range(PLAYS)]
    told = {}
    for rank in ahead.queue.ages:
        starts = sorted(play.get(rank.job_id, math.inf) for play in plays)
        if starts[-1] < math.inf:
            first, middle, last = starts[0] - now, starts[PLAYS // 2], starts[-1] - now
            earliest = now + SOONER * first
            if ahead.operations.reservations:
                earliest = _allowed(ahead, ahead.jobs[rank.job_id], earliest, starts)
            told[rank.job_id] = Start(middle, earliest, now + LATER * last)
    return told


def _allowed(state: State, job: Job, earliest: float, starts: Sequence[float]) -> float:
    """Not while reservations shut its cards to it, nor before the end of one for which it waits in all plays."""
    ends = {one.end for one in state.operations.reservations.values()}
    if starts[0] == starts[-1] and starts[0] in ends:
        return starts[0]
    return min(starts[PLAYS // 2], opens(state, job, earliest))


def _apart(state: State) -> State:
    """The same state with nothing remembered of sums: the original may go on beside it in another thread."""
    history = replace(state.past.history, _told={}, _told_by_all={})
    held = replace(state.held, sums={}, outlooks={})
    return replace(state, held=held, past=replace(state.past, history=history))


def _copied(state: State, waiting: Collection[JobId], most: int) -> State:
    """The busy jobs, these waiting ones and who comes after them, on cards that are free as soon as their jobs end."""
    settings = replace(state.settings, stale_after_s=math.inf, release_timeout_s=0.0)
    jobs = [*state.busy.values(), *(state.jobs[job_id] for job_id in waiting if job_id not in state.busy)]
    jobs += foreseen(state, jobs, most)
    cards = [_card(gpu, state.held.grants.get(gpu.uuid, ())) for gpu in state.seen.values()]
    return State.begin(settings, jobs, cards, state.operations, state.past)


def _card(gpu: Gpu, grants: Collection[Grant]) -> Gpu:
    """The card if its jobs used nothing yet of what they were promised; what is not ours stays in use."""
    foreign = foreign_use(gpu, (grant.job_id for grant in grants))
    if foreign is None or gpu.free is None:
        return gpu
    return replace(
        gpu,
        used=foreign,
        free=Mib(gpu.total - gpu.reserved - foreign),
        used_by_job={},
        used_by_earlier={},
        utilization_pct=None if gpu.utilization_pct is None else 0.0,  # then what is known of its jobs is added up
        sampled_at=-math.inf,
    )


class _Play:
    """One future: every job lasts as long as its share of earlier runs did. Local to one look ahead."""

    def __init__(self, state: State, now: float, number: int, recent: Sequence[Job]) -> None:
        self.state, self.now, self.number = state, now, number
        self.coming = _coming(recent, now, number)
        self.comes = next(self.coming, None)
        self.history = state.past.history
        self.agenda: list[tuple[float, JobId, int]] = []  # when, whose end, of which attempt; "" = only a pass
        self.starts: dict[JobId, float] = {}
        self.left = {rank.job_id for rank in state.queue.ages}
        self.passes = MOST_PASSES + len(state.asides.waiting)
        for job in state.busy.values():
            if job.phase.active and (at := self._end_of(job)) < math.inf:
                heappush(self.agenda, (at, job.id, job.attempt))

    def run(self) -> Mapping[JobId, float]:
        until = self.now + FARTHEST_S
        self._pass()
        for _ in range(self.passes):
            self.now = min(self.agenda[0][0] if self.agenda else math.inf, _at(self.comes))
            if not self.left or self.now > until:
                break
            while self.comes is not None and self.comes.submitted_at <= self.now:
                self.state = apply(self.state, Submitted((self.comes,)), self.now).state
                self.comes = next(self.coming, None)
            while self.agenda and self.agenda[0][0] <= self.now:
                _, job_id, attempt = heappop(self.agenda)
                self._ends(job_id, attempt, "cancelled")  # which says nothing about run times
            self._pass()
        return self.starts

    def _pass(self) -> None:
        evicted = True
        while evicted:
            step = schedule(self.state, self.now)
            self.state = step.state
            evicted = False
            for instruction in step.instructions:
                if isinstance(instruction, Launch):
                    self._starts(self.state.jobs[instruction.job_id])
                elif isinstance(instruction, StopAttempt):
                    self._ends(instruction.job_id, instruction.attempt, instruction.reason)
                    evicted = True
        if (due := next_wakeup(self.state, self.now)) is not None:
            heappush(self.agenda, (due, "", 0))

    def _starts(self, job: Job) -> None:
        self.starts.setdefault(job.id, self.now)
        self.left.discard(job.id)
        lasts_s = self._lasts_s(job)
        if lasts_s < math.inf:
            heappush(self.agenda, (self.now + lasts_s, job.id, job.attempt))

    def _ends(self, job_id: JobId, attempt: int, reason: str) -> None:
        job = self.state.jobs.get(job_id)
        if job is not None and job.phase.active and job.attempt == attempt:
            record = ExitRecord(None, 15, None, self.now, "exit", "", stopped=reason)
            self.state = apply(self.state, Exited(job_id, attempt, record), self.now).state

    def _end_of(self, job: Job) -> float:
        if job.phase is Phase.STOPPING:
            return self.now + (1.0 if job.stop is None else max(1.0, job.stop.since + job.stop.grace_s - self.now))
        since = begun(job.attempts[-1])
        return self.now + self._remaining_s(job, 0.0 if since is None else max(0.0, self.now - since))

    def _remaining_s(self, job: Job, elapsed_s: float) -> float:
        """How much longer it runs in this play.

        Of one that has lasted longer than any known run all that can be said is that it goes on about as long
        again; of one of which only the limit is known, that it may end at any moment up to that.
        """
        if not knows(self.history, job):
            return math.inf
        share, limit_s = self._share(job), job.time_limit_s
        outlook = self.history.outlook(kin_of(job), elapsed_s, share)
        if outlook.total_s is not None:
            return outlook.remaining_s(elapsed_s)
        if limit_s is not None and limit_s > elapsed_s:
            return share * (limit_s - elapsed_s)
        return max(60.0, elapsed_s * share / (1.0 - share))

    def _lasts_s(self, job: Job) -> float:
        """How long one that starts in this play will run."""
        share = self._share(job)
        if self.history.says_something(kin_of(job)):
            return self.history.expected_s(kin_of(job), share)
        return math.inf if job.time_limit_s is None else share * job.time_limit_s

    def _share(self, job: Job) -> float:
        """Which of its run times a job has in this play: in all plays together each once, in an order of its own."""
        seed = crc32(job.id.encode())
        step, first = 1 + seed % (PLAYS - 1), seed // PLAYS
        return ((first + step * self.number) % PLAYS + 0.5) / PLAYS


def _at(job: Job | None) -> float:
    return math.inf if job is None else job.submitted_at


def _coming(recent: Sequence[Job], now: float, number: int) -> Iterator[Job]:
    """What will be submitted: the recent past over and over, begun in each play at another moment of it."""
    ages = [now - job.submitted_at for job in recent if now - job.submitted_at <= DAY_S]
    if not ages:
        return
    span = max(LEAST_SPAN_S, *ages)
    begin = number / PLAYS * span
    moments = sorted(
        ((span - (now - job.submitted_at) - begin) % span, job.id, job)
        for job in recent
        if now - job.submitted_at <= DAY_S
    )
    for again in count():
        for offset, _, job in moments:
            at = now + again * span + offset
            yield Job(
                id=f"~{again}-{job.id}",
                owner=job.owner,
                kind=job.kind,
                name=job.name,
                request=job.request,
                priority=job.priority,
                submitted_at=at,
                since=at,
                time_limit_s=job.time_limit_s,
                preemptible=job.preemptible,
            )


def knows(history: History, job: Job) -> bool:
    """Whether anything says how long such a job runs."""
    return job.time_limit_s is not None or history.says_something(kin_of(job))
