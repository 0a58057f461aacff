"""Lines of jobs that ask for the same, and which of their heads goes first; used up in one pass.

The heads stand in columns (``heads``), so that the first of hundreds is found by comparing
bare numbers; and an owner's are put up only when one of them may be the first, as far as the
orders of an earlier pass tell. Whether one fits is ``room``'s, what becomes of it ``policy``'s.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from heapq import heapify, heappop
from itertools import islice
from typing import NamedTuple

from .facts import Facts, Place
from .heads import Expected, Heads, expected_of, heads_of, least_of, may_be_brief, note_least
from .model import Job, JobId, Request
from .persistent import Line
from .policies import Order
from .queue import LineKey, Own, Rank

Alone = tuple[Request, Line[Rank], float, float | None]
"""A line that is put up by itself: its request, the jobs, their expected run time and use of processors."""

Easier = Callable[[LineKey, Request], bool]
"""Which lines may use cards that another may not."""

_GONE = (math.inf, math.inf)
"""The order of a line that is out: no policy's order is as much."""


class _Failure(NamedTuple):
    """One did not fit: gone are those that run longer than ``over_s`` and need no less, but for the ``easier``."""

    over_s: float
    needs: float | None
    easier: Easier | None


class Rivals:
    """``evicts``: they are urgent, so that one that does not fit says nothing of the others.

    insists  they are tried whether or not there can be room for them.
    """

    def __init__(
        self, facts: Facts, request: Request, *, evicts: bool = False, insists: bool = False, measured: bool = False
    ) -> None:
        self.facts, self.request, self.evicts, self.measured = facts, request, evicts, measured
        self.insists = insists
        self.part = facts.part(request)
        self.later: list[
            tuple[Order, str, Own]
        ] = []  # owners that are not put up yet, by what their orders are not below
        self.within_s = math.inf  # only who is expected to end within that is put up
        self.failures: list[_Failure] = []
        self.orders: list[Order] = []
        self.starts: list[int] = []  # at which row each of the following begins
        self.owners: list[tuple[str, Heads, Expected]] = []
        self.told = len(facts.given)  # so much of what was given is known in the orders
        self.places: dict[int, Place] = {}  # of lines of which it is not the first job's
        self.rest: dict[int, Iterator[Rank]] = {}  # what follows in such a line
        self.ids: dict[int, JobId] = {}

    def add(self, owner: str, own: Own) -> None:
        """An owner's lines, but those in that owner's order."""
        least = least_of(own, owner, self.request.gpus, self.part, self.facts)
        if least is None:
            self._put_up(owner, own)
        else:
            self.later.append((least, owner, own))

    def ready(self) -> Order | None:
        """All have been added. What the first order of all is not below; None = there is no line."""
        heapify(self.later)
        least = min(self.orders, default=_GONE)
        least = min(least, self.later[0][0]) if self.later else least
        return None if least is _GONE else least

    def narrow(self, within_s: float) -> None:
        """Only those are left that are expected to end ``within_s``."""
        self.within_s = within_s
        self.later = [one for one in self.later if may_be_brief(one[2], within_s)]
        heapify(self.later)
        for start, (_, _, known) in zip(self.starts, self.owners, strict=True):
            self._narrow(start, known)

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
        while self.later and self.later[0][0] <= best:
            _, owner, own = heappop(self.later)
            best = min(best, self._put_up(owner, own))
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
        return heads.firsts[at].job_id

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

    def failed(self, row: int, brief_s: float, easier: Easier | None = None) -> None:
        """One did not fit: gone are all that are no easier to place. ``brief_s``: the shorter may take what is kept.

        easier  which lines may use cards that this one may not, and stay; None = none.
        """
        expected_s, needs = self.expected(row)
        early = expected_s <= brief_s or brief_s < 0.0
        if not self.measured and easier is None:
            if early:
                self.orders.clear()
                self.later.clear()
            else:
                self.narrow(brief_s)
            return
        self.leave(row)
        failure = _Failure(-math.inf if early else brief_s, needs, easier)
        self.failures.append(failure)
        for start, (_, heads, known) in zip(self.starts, self.owners, strict=True):
            self._fail(failure, start, heads, known)

    def learn(self) -> None:
        """Owners who were given something meanwhile come later."""
        given, self.told = set(self.facts.given[self.told :]), len(self.facts.given)
        for start, (owner, heads, known) in zip(self.starts, self.owners, strict=True):
            if owner in given and self.orders:
                seconds = known.seconds if heads.firsts else []  # a line that was put up alone has a place of its own
                for row, order in enumerate(self.facts.orders(owner, self.part, heads, seconds), start):
                    if row not in self.places and self.orders[row] is not _GONE:
                        self.orders[row] = order
                for row in self.places.keys() & range(start, start + len(known.seconds)):
                    if self.orders[row] is not _GONE:
                        job = self.facts.state.jobs[self.ids[row]]
                        self.places[row] = self.facts.place(job, known.seconds[row - start], self.part)
                        self.orders[row] = self.places[row][1]

    def _put_up(self, owner: str, own: Own) -> Order:
        """Returns the smallest order of those that may go."""
        start, heads = len(self.orders), heads_of(own, self.request.gpus, self.facts)
        known = expected_of(own, owner, heads, self.facts, compute=self.measured)
        orders = self.facts.orders(owner, self.part, heads, known.seconds)
        least = note_least(own, owner, self.part, orders, self.facts)
        self.starts.append(start)
        self.owners.append((owner, heads, known))
        self.orders += orders
        if self.within_s == math.inf and not self.failures:
            return _GONE if least is None else least
        self._narrow(start, known)
        for failure in self.failures:
            self._fail(failure, start, heads, known)
        return min(self.orders[start:], default=_GONE)

    def _narrow(self, start: int, known: Expected) -> None:
        for row, expected_s in enumerate(known.seconds, start):
            if expected_s > self.within_s:
                self.leave(row)

    def _fail(self, failure: _Failure, start: int, heads: Heads, known: Expected) -> None:
        over_s, needs, easier = failure
        if easier is not None and not heads.keys:
            return
        for row, seconds in enumerate(known.seconds, start):
            if seconds <= over_s or (easier is not None and easier(heads.keys[row - start], self.request)):
                continue
            share = None if known.compute is None else known.compute[row - start]
            if needs == share or (needs is not None and share is not None and share >= needs):
                self.leave(row)

    def _place(self, row: int) -> Place:
        place = self.places.get(row)
        if place is not None:
            return place
        heads, _, at = self._found(row)
        return True, self.orders[row], *heads.firsts[at]

    def _found(self, row: int) -> tuple[Heads, Expected, int]:
        number = bisect_right(self.starts, row) - 1
        _, heads, known = self.owners[number]
        return heads, known, row - self.starts[number]
