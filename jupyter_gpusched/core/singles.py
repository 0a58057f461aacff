"""Lines that a pass puts up each by itself: urgent ones, and those in the order of their owner; used up in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from .facts import Facts, Place
from .model import Job, JobId, Request
from .queue import Lines, Own, Rank
from .rivals import Alone

Head = tuple[Place, int, JobId]
"""The place of a line's first job that is left, the number of the line in the pass, and the job."""


class Asked(Protocol):
    """What a pass is asked about a job. It is given with each question: who kept it would make a circle with it."""

    def may_be_tried(self, job: Job, /) -> bool:
        """Whether nothing has been decided about the job yet, nor does it rest."""

    def is_barred(self, job: Job, /) -> bool:
        """Whether limits keep it, and with it all of its line, from starting."""


class Singles:
    """``urgent`` are the heads that go before claims, ``heads`` those that come after."""

    def __init__(self, facts: Facts, measured: bool) -> None:
        self.facts, self.measured = facts, measured
        self.rows: list[Alone] = []
        self.rest: list[Iterator[Rank]] = []
        self.heads: list[Head] = []
        self.urgent: list[Head] = []

    def join(self, request: Request, lines: Lines, asked: Asked) -> None:
        history = self.facts.history
        for key, line in lines.items():
            expected_s = history.expected_of(key.owner, key.name, request.gpus, key.limit_s)
            compute = history.compute(key.owner, key.name) if self.measured else None
            number = len(self.rows)
            self.rows.append((request, line, expected_s, compute))
            self.rest.append(iter(line))
            head = self.next(number, asked)
            if head is not None:
                (self.heads if head[0][0] else self.urgent).append(head)

    def next(self, number: int, asked: Asked) -> Head | None:
        """The first job left of a line that may be tried at all."""
        for rank in self.rest[number]:
            job = self.facts.state.jobs[rank.job_id]
            if asked.is_barred(job):
                return None
            if asked.may_be_tried(job):
                return self.place_now(number, job.id), number, job.id
        return None

    def place_now(self, number: int, job_id: JobId) -> Place:
        """Where a line's job stands, as far as is known by now."""
        request, _, expected_s, _ = self.rows[number]
        return self.facts.place(self.facts.state.jobs[job_id], expected_s, self.facts.part(request))


def in_order(own: Own) -> Lines:
    """The lines that stand in the order in which their owner put them."""
    return {key: line for key, line in own.lines.items() if key.by_hand}
