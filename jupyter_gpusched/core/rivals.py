"""Lines of jobs that ask for the same, and which of their heads goes first; used up in one pass.

The heads stand in columns (``heads``), so that the first of hundreds is found by comparing
bare numbers. Whether one fits is ``room``'s, what becomes of it ``policy``'s.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import islice

from .facts import Facts, Place
from .heads import Expected, Heads, expected_of, heads_of
from .model import Job, JobId, Request
from .persistent import Line
from .queue import Own, Rank

Alone = tuple[Request, Line[Rank], float, float | None]
"""A line that is put up by itself: its request, the jobs, their expected run time and use of processors."""

_GONE = (math.inf, math.inf)
"""The order of a line that is out: no policy's order is as much."""


class Rivals:
    """``evicts``: they are urgent, so that one that does not fit says nothing of the others."""

    def __init__(self, facts: Facts, request: Request, *, evicts: bool = False, measured: bool = False) -> None:
        self.facts, self.request, self.evicts, self.measured = facts, request, evicts, measured
        self.part = facts.part(request)
        self.orders: list[tuple[float, ...]] = []
        self.starts: list[int] = []  # at which row each of the following begins
        self.owners: list[tuple[str, Heads, Expected]] = []
        self.told = len(facts.given)  # so much of what was given is known in the orders
        self.places: dict[int, Place] = {}  # of lines of which it is not the first job's
        self.rest: dict[int, Iterator[Rank]] = {}  # what follows in such a line
        self.ids: dict[int, JobId] = {}

    def add(self, owner: str, own: Own, within_s: float) -> None:
        """Put up an owner's lines but those in that owner's order; only of jobs expected to end ``within_s``."""
        heads = heads_of(own, self.request.gpus, self.facts)
        known = expected_of(own, owner, heads, self.facts.history, compute=self.measured)
        if known.least_s > within_s:
            return
        self.starts.append(len(self.orders))
        self.owners.append((owner, heads, known))
        self.orders += self.facts.orders(owner, self.part, heads, known.seconds)
        if not math.isinf(within_s):
            for row, expected_s in enumerate(known.seconds, self.starts[-1]):
                if expected_s > within_s:
                    self.leave(row)

    def add_one(self, place: Place, job_id: JobId, line: Alone, rest: Iterator[Rank]) -> None:
        """Put up one line whose place was given to it. ``rest``: what follows in it."""
        _, jobs, expected_s, compute = line
        row = len(self.orders)
        self.places[row], self.ids[row], self.rest[row] = place, job_id, rest
        self.starts.append(row)
        self.owners.append(
            (
                self.facts.state.jobs[job_id].owner,
                Heads.of(jobs),
                Expected(None, None, [expected_s], expected_s, [compute]),
            )
        )
        self.orders.append(place[1])

    def first(self) -> tuple[Place, int] | None:
        """The place of the first head of all, and its row; None = no line is left."""
        best = min(self.orders, default=_GONE)
        if best is _GONE:
            return None
        at = self.orders.index(best)
        place = self._place(at)
        if self.orders.count(best) > 1:
            place, at = min((self._place(row), row) for row, order in enumerate(self.orders) if order == best)
        return place, at

    def job(self, row: int) -> JobId:
        """The job at the head of a line."""
        if row in self.ids:
            return self.ids[row]
        heads, _, at = self._found(row)
        return heads.ids[at]

    def expected(self, row: int) -> tuple[float, float | None]:
        """The expected run time of a line's jobs, and their use of processors."""
        _, known, at = self._found(row)
        return known.seconds[at], None if known.compute is None else known.compute[at]

    def advance(self, row: int, may_be_tried: Callable[[Job], bool]) -> None:
        """The next job of a line that may be tried comes to its head; a line that has none is gone."""
        heads, known, at = self._found(row)
        left = self.rest.get(row)
        if left is None:
            left = self.rest[row] = islice(heads.lines[at], 1, None)
        for rank in left:
            job = self.facts.state.jobs[rank.job_id]
            if may_be_tried(job):
                place = self.facts.place(job, known.seconds[at], self.part)
                self.places[row], self.ids[row], self.orders[row] = place, job.id, place[1]
                return
        self.leave(row)

    def leave(self, row: int) -> None:
        self.orders[row] = _GONE

    def failed(self, row: int, brief_s: float) -> None:
        """One did not fit: gone are all that are no easier to place. ``brief_s``: the shorter may take what is kept."""
        expected_s, needs = self.expected(row)
        early = expected_s <= brief_s or brief_s < 0.0
        if early and not self.measured:
            self.orders.clear()
            return
        for start, (_, _, known) in zip(self.starts, self.owners, strict=True):
            for other, seconds in enumerate(known.seconds, start):
                share = None if known.compute is None else known.compute[other - start]
                busier = needs == share or (needs is not None and share is not None and share >= needs)
                if busier and (early or seconds > brief_s):
                    self.leave(other)

    def learn(self) -> None:
        """Owners who were given something meanwhile come later."""
        given, self.told = set(self.facts.given[self.told :]), len(self.facts.given)
        for start, (owner, heads, known) in zip(self.starts, self.owners, strict=True):
            if owner in given and self.orders:
                seconds = known.seconds if heads.ids else []  # a line that was put up alone has a place of its own
                for row, order in enumerate(self.facts.orders(owner, self.part, heads, seconds), start):
                    if row not in self.places and self.orders[row] is not _GONE:
                        self.orders[row] = order
                for row in self.places.keys() & range(start, start + len(known.seconds)):
                    if self.orders[row] is not _GONE:
                        job = self.facts.state.jobs[self.ids[row]]
                        self.places[row] = self.facts.place(job, known.seconds[row - start], self.part)
                        self.orders[row] = self.places[row][1]

    def _place(self, row: int) -> Place:
        place = self.places.get(row)
        if place is not None:
            return place
        heads, _, at = self._found(row)
        return True, self.orders[row], heads.ages[at], heads.ids[at]

    def _found(self, row: int) -> tuple[Heads, Expected, int]:
        number = bisect_right(self.starts, row) - 1
        _, heads, known = self.owners[number]
        return heads, known, row - self.starts[number]
