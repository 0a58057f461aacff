"""What people do today, as schedules of a trace: a queue that retries in turn, and EASY backfill.

They see what our policy sees; only ``Knowing`` looks at how long a job will run. On the recorded traces
their measures are those of `baselines.csv` (`tests/core/test_habits.py`), so that fresh traces can be
judged by the same rules.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from jupyter_gpusched.core.trace import Segment, Traced

RETRY_S = 5.0
_MOMENT_S = 1e-9
_SHORTEST_GUESS_S = 1800.0
"""What EASY takes an unlimited job for while few have ended."""


@dataclass
class Server:
    """Cards with free memory, and what runs on them."""

    gpus: int
    vram: int
    now: float = 0.0
    free: list[int] = field(default_factory=list)
    running: dict[str, tuple[Traced, float, tuple[int, ...]]] = field(default_factory=dict)
    ends: list[tuple[float, int, str]] = field(default_factory=list)

    def first_fit(self, one: Traced) -> tuple[int, ...] | None:
        return self._cards(one, range(self.gpus))

    def best_fit(self, one: Traced) -> tuple[int, ...] | None:
        return self._cards(one, sorted(range(self.gpus), key=lambda card: (self.free[card], card)))

    def _cards(self, one: Traced, order: Sequence[int] | range) -> tuple[int, ...] | None:
        fitting = [card for card in order if self.free[card] >= need(one)][: one.job.request.gpus]
        return tuple(fitting) if len(fitting) == one.job.request.gpus else None

    def start(self, one: Traced, cards: tuple[int, ...]) -> None:
        for card in cards:
            self.free[card] -= need(one)
        self.running[one.job.id] = (one, self.now, cards)
        heappush(self.ends, (self.now + one.duration_s, len(self.running), one.job.id))

    def end(self) -> tuple[Traced, Segment]:
        _, _, job_id = heappop(self.ends)
        one, begun, cards = self.running.pop(job_id)
        for card in cards:
            self.free[card] += need(one)
        return one, Segment(job_id, begun, self.now, cards, preempted=False)


def need(one: Traced) -> int:
    assert one.job.request.vram is not None
    return int(one.job.request.vram)


class Retry:
    """Each waiting job looks in turn, one every five seconds; what does not fit goes to the end."""

    def __init__(self) -> None:
        self.waiting: list[Traced] = []
        self.looked_at = 0.0

    def submitted(self, one: Traced) -> None:
        self.waiting.append(one)

    def ended(self, one: Traced) -> None:
        pass

    def decide(self, server: Server) -> None:
        if len(self.waiting) > 1:
            turns = int((server.now - self.looked_at) / RETRY_S) % len(self.waiting)
            self.waiting = self.waiting[turns:] + self.waiting[:turns]
        self.looked_at = server.now
        left = []
        for one in self.waiting:
            cards = server.first_fit(one)
            if cards is None:
                left.append(one)
            else:
                server.start(one, cards)
        self.waiting = left


class Easy:
    """In the order of submission; others may pass the first one if, by the users' limits, they do not delay it."""

    def __init__(self) -> None:
        self.waiting: list[Traced] = []
        self.lasted: list[float] = []

    def submitted(self, one: Traced) -> None:
        self.waiting.append(one)

    def ended(self, one: Traced) -> None:
        bisect.insort(self.lasted, one.duration_s)

    def expected_s(self, one: Traced) -> float:
        median = self.lasted[len(self.lasted) // 2] if self.lasted else _SHORTEST_GUESS_S
        return one.job.time_limit_s or max(_SHORTEST_GUESS_S, median)

    def decide(self, server: Server) -> None:
        while self.waiting and (cards := server.best_fit(self.waiting[0])) is not None:
            server.start(self.waiting.pop(0), cards)
        if not self.waiting:
            return
        head, others = self.waiting[0], self.waiting[1:]
        at, then_free = self._shadow(server, head)
        left = [head]
        for one in others:
            cards = server.best_fit(one)
            if cards is not None and server.now + self.expected_s(one) > at:
                cards = _beside(server, one, head, then_free)
                for card in cards or ():
                    then_free[card] -= need(one)
            if cards is None:
                left.append(one)
            else:
                server.start(one, cards)
        self.waiting = left

    def _shadow(self, server: Server, head: Traced) -> tuple[float, list[int]]:
        """When the first one fits if running jobs end as expected, and what is free then."""
        free, at = list(server.free), server.now
        ends = sorted((self._ends_at(server, one, begun), cards, need(one))
                      for one, begun, cards in server.running.values())  # fmt: skip
        while sum(room >= need(head) for room in free) < head.job.request.gpus:
            if not ends:
                return math.inf, free
            at = ends[0][0]
            while ends and ends[0][0] <= at:
                _, cards, memory = ends.pop(0)
                for card in cards:
                    free[card] += memory
        return at, free

    def _ends_at(self, server: Server, one: Traced, begun: float) -> float:
        has_run, expected = server.now - begun, self.expected_s(one)
        return server.now + (expected - has_run if expected > has_run else max(30.0, has_run / 2))


class Knowing:
    """Shortest first by run times that nobody can know: what there was to gain, and no schedule to reach."""

    def __init__(self) -> None:
        self.waiting: list[Traced] = []

    def submitted(self, one: Traced) -> None:
        bisect.insort(self.waiting, one, key=lambda other: other.duration_s)

    def ended(self, one: Traced) -> None:
        pass

    def decide(self, server: Server) -> None:
        left = []
        for one in self.waiting:
            cards = server.best_fit(one)
            if cards is None:
                left.append(one)
            else:
                server.start(one, cards)
        self.waiting = left


def _beside(server: Server, one: Traced, head: Traced, then_free: list[int]) -> tuple[int, ...] | None:
    """Cards for one that outlasts the shadow, such that the first one's place is still complete then."""
    spare = sum(room >= need(head) for room in then_free) - head.job.request.gpus
    chosen: list[int] = []
    for card in sorted(range(server.gpus), key=lambda card: (server.free[card], card)):
        if min(server.free[card], then_free[card]) < need(one):
            continue
        if then_free[card] >= need(head) > then_free[card] - need(one):
            if spare <= 0:
                continue
            spare -= 1
        chosen.append(card)
        if len(chosen) == one.job.request.gpus:
            return tuple(chosen)
    return None


def run(traced: Sequence[Traced], habit: Retry | Easy | Knowing, *, gpus: int, vram: int) -> list[Segment]:
    """The schedule that a habit makes of a trace, without contention."""
    server = Server(gpus, vram, free=[vram] * gpus)
    coming = sorted(traced, key=lambda one: one.job.submitted_at)[::-1]
    segments: list[Segment] = []
    while coming or server.ends:
        next_submitted = coming[-1].job.submitted_at if coming else math.inf
        server.now = min(next_submitted, server.ends[0][0] if server.ends else math.inf)
        while coming and coming[-1].job.submitted_at <= server.now + _MOMENT_S:
            habit.submitted(coming.pop())
        while server.ends and server.ends[0][0] <= server.now + _MOMENT_S:
            one, segment = server.end()
            segments.append(segment)
            habit.ended(one)
        if habit.waiting:
            habit.decide(server)
    return segments
