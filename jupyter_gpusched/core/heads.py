"""The first jobs of an owner's lines in columns, remembered from pass to pass.

A pass compares hundreds of heads. What of them neither time nor another's job changes is
worked out once and kept with the lines themselves (``Own.known``): it is right as long as the
lines are the same and the past says the same of their jobs. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .facts import Facts, waits_since
from .frozen import quick
from .history import MIDDLE, Alike, Person, Runs
from .persistent import Line
from .policies import Earlier, Order, Priority
from .queue import LineKey, Own, Rank


@quick
@dataclass(frozen=True, slots=True)
class Heads:
    """Of each line its key, by what the past knows it, itself, its first job, and what a policy is told of that one."""

    keys: list[LineKey]
    kins: list[Alike]
    lines: list[Line[Rank]]
    ids: list[str]
    ages: list[float]
    since: list[float]
    backlog: list[float]
    priorities: list[Priority]

    @classmethod
    def of(cls, line: Line[Rank]) -> Heads:
        """One line of whose jobs nothing is to be told."""
        return cls([], [], [line], [], [], [], [], [])


@dataclass(slots=True)
class Expected:
    """Run times, and use of processors where it was asked for, by the past that they come from."""

    person: Person | None
    of_all: Runs | None
    seconds: list[float]
    compute: list[float | None] | None = None


def heads_of(own: Own, gpus: int, facts: Facts) -> Heads:
    """Lines in the order of their owner are left out: their places are dealt anew in each pass."""
    known: Heads | None = own.known.get("heads")
    if known is None:
        keys = [key for key in own.lines if not key.by_hand]
        lines = [own.lines[key] for key in keys]
        firsts = [line.first for line in lines]
        jobs = [facts.state.jobs[rank.job_id] for rank in firsts]
        known = own.known["heads"] = Heads(
            keys,
            [(key.name, gpus, key.limit_s, MIDDLE) for key in keys],
            lines,
            ids=[rank.job_id for rank in firsts],
            ages=[rank.key for rank in firsts],
            since=[waits_since(job) if job.attempts else job.ages_from for job in jobs],
            backlog=[job.backlog_s or 0.0 for job in jobs],
            priorities=[key.priority for key in keys],
        )
    return known


def expected_of(own: Own, owner: str, heads: Heads, facts: Facts, *, compute: bool) -> Expected:
    person, of_all, _ = facts.of(owner)
    known: Expected | None = own.known.get("expected")
    if known is None or known.person is not person or known.of_all is not of_all:
        seconds = facts.history.expected_of_many(owner, heads.kins)
        known = own.known["expected"] = Expected(person, of_all, seconds)
    if compute and known.compute is None:
        known.compute = [facts.history.compute(owner, key.name) for key in heads.keys]
    return known


class Least(NamedTuple):
    """The smallest order of an owner's heads as it was in an earlier pass, and what it came from.

    least_s  the shortest expected run time.
    """

    person: Person | None
    of_all: Runs | None
    part: float
    earlier: Earlier
    least_s: float


def least_of(own: Own, owner: str, part: float, facts: Facts) -> Order | None:
    """What no head's order is below now, as far as that follows from an earlier pass; None = nothing does.

    part  of the machine that each of them asks for.
    """
    known: Least | None = own.known.get("least")
    if known is None or facts.bound is None:
        return None
    person, of_all, share = facts.of(owner)
    if known.person is not person or known.of_all is not of_all or known.part != part:
        return None
    earlier = known.earlier
    passed_s = facts.now - earlier.at
    return facts.bound(earlier, passed_s, share) if passed_s >= 0.0 else None


def may_be_brief(own: Own, within_s: float) -> bool:
    """Whether some head is expected to end within that, of an owner who is known by ``least_of``."""
    known: Least = own.known["least"]
    return known.least_s <= within_s


def note_least(own: Own, owner: str, part: float, orders: Sequence[Order], facts: Facts) -> None:
    """Remember the smallest of the orders of all of an owner's heads, as they are now."""
    if orders:
        heads: Heads = own.known["heads"]
        expected: Expected = own.known["expected"]
        waited_s = max(0.0, facts.now - max(heads.since))
        earlier = Earlier(min(orders), facts.now, facts.share(owner), waited_s, min(heads.backlog))
        own.known["least"] = Least(expected.person, expected.of_all, part, earlier, min(expected.seconds))
