"""A trace of jobs run through the scheduler's own core on a virtual clock.

The decisions are those of the engine: the same state, events and passes. Only the world is
made up: cards that always answer, jobs that last as long as the trace says and use what they
were promised, ended ones whose memory is free at once. Deterministic; no clock, no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from .frozen import replace
from .ledger import check_fits
from .messages import Event, Exited, Instruction, Launch, Sampled, Started, StopAttempt, Submitted
from .model import ExitRecord, Gpu, Job, JobId, NeverFits, Settings
from .policies import DEFAULT, Policy
from .quantities import Mib
from .schedule import next_wakeup, schedule
from .state import State, apply
from .trace import Segment, Traced

_MOMENT_S = 1e-9
_SUBMIT, _EXIT, _WAKE = 0, 1, 2


def simulate(
    traced: Sequence[Traced],
    *,
    gpus: int,
    vram: Mib,
    policy: Policy = DEFAULT,
    contention: bool = False,
    settings: Settings | None = None,
) -> list[Segment]:
    """Every run of every job of a trace, on so many cards of so much usable memory.

    contention  jobs on one card slow each other down by their use of its processors, and the
                cards show how busy they are.
    Raises ``NeverFits`` for a job that no card can hold.
    """
    if settings is None:
        settings = Settings(cpus=1, memory=Mib(1))
    settings = replace(settings, policy=policy, headroom=Mib(0), stale_after_s=float("inf"), release_timeout_s=0.0)
    world = _World(traced, _cards(gpus, vram), settings, contention=contention)
    return world.run()


def slowdown(demand: float, jobs: int) -> float:
    """How much longer jobs take that share a card: next to nothing up to its full use, then by a fitted power.

    Fitted to published measurements of pairs up to twice the use; beyond that proportional.
    """
    factor = float(max(1.0, demand) ** 0.55 if demand <= 2.0 else 2.0**0.55 * demand / 2.0)
    return factor * (1.0 + 0.01 * (jobs - 1))


def _cards(number: int, vram: Mib) -> list[Gpu]:
    return [
        Gpu(f"GPU-{index}", index, "simulated", vram, 0.0, used=Mib(0), free=vram, simulated=True)
        for index in range(number)
    ]


@dataclass(slots=True)
class _Run:
    """A job that runs: what is left of it at full speed, as of a moment, and how fast it goes since."""

    begun: float
    cards: tuple[int, ...]
    left_s: float
    as_of: float
    speed: float = 1.0
    version: int = 0


class _World:
    """Cards, running jobs and the events to come. Not pure, but nobody else sees it."""

    def __init__(self, traced: Sequence[Traced], cards: list[Gpu], settings: Settings, *, contention: bool) -> None:
        self.jobs = {one.job.id: one for one in traced}
        self.cards, self.settings, self.contention = cards, settings, contention
        self.now, self.count = 0.0, 0
        self.runs: dict[JobId, _Run] = {}
        self.segments: list[Segment] = []
        self.agenda: list[tuple[float, int, int, JobId, int]] = []
        self.on: list[dict[JobId, float]] = [{} for _ in cards]
        self.touched: set[int] = set()
        self.state = State.begin(settings, gpus=cards)
        self.wakes_at: float | None = None
        for one in traced:
            if one.job.request.gpus:
                check_fits(one.job.request, cards, settings)
            self._note(one.job.submitted_at, _SUBMIT, one.job.id)

    def run(self) -> list[Segment]:
        left = len(self.jobs)
        while left:
            if not self.agenda:
                stuck = self.state.queue.ages.first.job_id
                raise NeverFits(f"Job {stuck} of the trace can never start on these cards.", field="vram")
            self.now = self.agenda[0][0]
            submitted: list[Job] = []
            exited = 0
            while self.agenda and self.agenda[0][0] <= self.now + _MOMENT_S:
                _, kind, _, job_id, version = heappop(self.agenda)
                if kind == _SUBMIT:
                    submitted.append(self.jobs[job_id].job)
                elif kind == _EXIT and job_id in self.runs and self.runs[job_id].version == version:
                    self._ends(job_id)
                    exited += 1
            left -= exited
            if submitted or exited or self.now == self.wakes_at:
                self._look()
                if submitted:
                    self._happen(Submitted(tuple(submitted)))
                self._pass()
        return self.segments

    def _pass(self) -> None:
        """Passes until nothing more is ended for others: what an evicted job leaves is free at once here."""
        while True:
            step = schedule(self.state, self.now)
            self.state = step.state
            evicted = self._obey(step.instructions)
            if not evicted:
                break
        self._adjust_speeds()
        due = next_wakeup(self.state, self.now)
        if due is not None and (self.wakes_at is None or due < self.wakes_at or self.wakes_at <= self.now):
            self.wakes_at = due
            self._note(due, _WAKE, "")

    def _obey(self, instructions: Sequence[Instruction]) -> bool:
        evicted = False
        for instruction in instructions:
            if isinstance(instruction, Launch):
                self._starts(instruction.job_id)
            elif isinstance(instruction, StopAttempt):
                self._leaves(instruction.job_id, preempted=True)
                self._report(instruction.job_id, stopped="preempted")
                evicted = True
        return evicted

    def _starts(self, job_id: JobId) -> None:
        job, one = self.state.jobs[job_id], self.jobs[job_id]
        cards = tuple(grant.index for grant in job.attempts[-1].gpus)
        self.runs[job_id] = _Run(self.now, cards, one.duration_s, self.now, version=job.attempt << 32)
        for card in cards:
            self.on[card][job_id] = one.compute
        self.touched.update(cards)
        self._happen(Started(job_id, job.attempt, self.now))
        if not self.contention:
            self._note(self.now + one.duration_s, _EXIT, job_id, self.runs[job_id].version)
        else:
            self.runs[job_id].speed = -1.0  # its first speed is worked out with the others

    def _ends(self, job_id: JobId) -> None:
        self._leaves(job_id, preempted=False)
        self._report(job_id, stopped=None)

    def _leaves(self, job_id: JobId, *, preempted: bool) -> None:
        run = self.runs.pop(job_id)
        for card in run.cards:
            del self.on[card][job_id]
        self.touched.update(run.cards)
        self.segments.append(Segment(job_id, run.begun, self.now, run.cards, preempted))

    def _report(self, job_id: JobId, *, stopped: str | None) -> None:
        job = self.state.jobs[job_id]
        code, signal = (0, None) if stopped is None else (None, 15)
        record = ExitRecord(code, signal, job.attempts[-1].started_at, self.now, "exit", "", stopped=stopped)
        self._happen(Exited(job_id, job.attempt, record))

    def _look(self) -> None:
        """What the cards show, as a real one would: never more than all of its processors."""
        if self.contention:
            busy = [min(100.0, 100.0 * sum(on.values())) for on in self.on]
            seen = (
                replace(gpu, utilization_pct=share, sampled_at=self.now)
                for gpu, share in zip(self.cards, busy, strict=True)
            )
            self._happen(Sampled(tuple(seen)))

    def _adjust_speeds(self) -> None:
        """Who shares a card on which something started or ended goes faster or slower from now on."""
        if not self.contention:
            return
        for job_id in sorted({job_id for card in self.touched for job_id in self.on[card]}):
            run = self.runs[job_id]
            slow = max(slowdown(sum(self.on[card].values()), len(self.on[card])) for card in run.cards)
            if run.speed != 1.0 / slow:
                if run.speed > 0:
                    run.left_s -= (self.now - run.as_of) * run.speed
                run.as_of, run.speed, run.version = self.now, 1.0 / slow, run.version + 1
                self._note(self.now + max(0.0, run.left_s) / run.speed, _EXIT, job_id, run.version)
        self.touched.clear()

    def _happen(self, event: Event) -> None:
        self.state = apply(self.state, event, self.now).state

    def _note(self, at: float, kind: int, job_id: JobId, version: int = 0) -> None:
        self.count += 1
        heappush(self.agenda, (at, kind, self.count, job_id, version))
