"""The first jobs of an owner's lines in columns, remembered from pass to pass.

A pass compares hundreds of heads. What of them neither time nor another's job changes is
worked out once and kept with the lines themselves (``Own.known``): it is right as long as the
lines are the same and the past says the same of their jobs. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .facts import Facts, waits_since
from .history import MIDDLE, Alike, Person, Runs
from .persistent import Line
from .policies import Earlier, Order, Priority
from .queue import LineKey, Own, Rank


@dataclass(slots=True)
class Heads:
    """Of each line its key, by what the past knows it, itself, its first job, and what a policy is told of that one.

    latest, least_backlog  since when the one waits that waits least, and the smallest backlog.
    """

    keys: list[LineKey]
    kins: list[Alike]
    lines: list[Line[Rank]]
    firsts: list[Rank]
    ages: list[float]
    priorities: list[Priority]
    since: list[float]
    backlog: list[float]
    latest: float
    least_backlog: float

    @classmethod
    def of(cls, line: Line[Rank]) -> Heads:
        """One line of whose jobs nothing is to be told."""
        return cls([], [], [line], [], [], [], [], [], 0.0, 0.0)


@dataclass(slots=True)
class Expected:
    """Run times (``least_s`` is the least) and, where asked for, use of processors, by the past that they come from."""

    person: Person | None
    of_all: Runs | None
    seconds: list[float]
    least_s: float
    compute: list[float | None] | None = None


def heads_of(own: Own, gpus: int, facts: Facts) -> Heads:
    """Lines in the order of their owner are left out: their places are dealt anew in each pass."""
    known: Heads | None = own.known.heads
    if known is None:
        known = own.known.heads = _renewed(own, gpus, facts)
    return known


def _renewed(own: Own, gpus: int, facts: Facts) -> Heads:
    """The heads of lines of which some may be as they were, as is what was worked out of them."""
    known, before = own.known, own.known.before
    known.before = None
    was: Heads | None = None if before is None else before.heads
    keys = [key for key in own.lines if not key.by_hand]
    lines = [own.lines[key] for key in keys]
    firsts = [line.first for line in lines]
    ages = [rank.key for rank in firsts]
    if was is None or before is None or keys != was.keys:
        kins = [(key.name, gpus, key.limit_s, MIDDLE) for key in keys]
        priorities = [key.priority for key in keys]
        since, backlog = _columns(firsts, facts)
    else:
        keys, kins, priorities = was.keys, was.kins, was.priorities
        since, backlog = was.since, was.backlog
        known.expected = before.expected
        changed = [at for at, first in enumerate(firsts) if first is not was.firsts[at]]
        if changed:
            since, backlog = list(since), list(backlog)
            news = _columns([firsts[at] for at in changed], facts)
            for at, *new in zip(changed, *news, strict=True):
                since[at], backlog[at] = new
        else:
            known.least = before.least
    latest, least_backlog = max(since, default=0.0), min(backlog, default=0.0)
    return Heads(keys, kins, lines, firsts, ages, priorities, since, backlog, latest, least_backlog)


def _columns(firsts: Sequence[Rank], facts: Facts) -> tuple[list[float], list[float]]:
    """From when on jobs wait, and the backlog that they met."""
    known = facts.state.jobs
    jobs = [known[rank.job_id] for rank in firsts]
    since = [waits_since(job) if job.attempts else job.ages_from for job in jobs]
    return since, [job.backlog_s or 0.0 for job in jobs]


def expected_of(own: Own, owner: str, heads: Heads, facts: Facts, *, compute: bool) -> Expected:
    person, of_all, _ = facts.of(owner)
    known: Expected | None = own.known.expected
    if known is None or known.person is not person or known.of_all is not of_all:
        seconds = facts.history.expected_of_many(owner, heads.kins)
        known = own.known.expected = Expected(person, of_all, seconds, min(seconds, default=0.0))
    if compute and known.compute is None:
        known.compute = [facts.history.compute(owner, key.name) for key in heads.keys]
    return known


@dataclass(slots=True)
class Least:
    """The smallest order of an owner's heads as it was in an earlier pass, and what it came from.

    least_s  the shortest expected run time.
    """

    person: Person | None
    of_all: Runs | None
    part: float
    earlier: Earlier
    least_s: float


def least_of(own: Own, owner: str, gpus: int, part: float, facts: Facts) -> Order | None:
    """What no head's order is below now, as far as that follows from an earlier pass; None = nothing does.

    gpus, part  that each of them asks for; ``part`` is of the machine.
    """
    if facts.bound is None:
        return None
    if own.known.before is not None:
        heads_of(own, gpus, facts)
    known: Least | None = own.known.least
    if known is None:
        return None
    person, of_all, share = facts.of(owner)
    if known.person is not person or known.of_all is not of_all or known.part != part:
        return None
    earlier = known.earlier
    passed_s = facts.now - earlier.at
    return facts.bound(earlier, passed_s, share) if passed_s >= 0.0 else None


def may_be_brief(own: Own, within_s: float) -> bool:
    """Whether some head is expected to end within that, of an owner who is known by ``least_of``."""
    known: Least = own.known.least
    return known.least_s <= within_s


def note_least(own: Own, owner: str, part: float, orders: Sequence[Order], facts: Facts) -> Order | None:
    """Remember the smallest of the orders of all of an owner's heads, as they are now; None = there are none."""
    if not orders:
        return None
    least, now, known = min(orders), facts.now, own.known
    heads: Heads = known.heads
    expected: Expected = known.expected
    waited_s = now - heads.latest if now > heads.latest else 0.0
    earlier = Earlier(least, now, facts.share(owner), waited_s, heads.least_backlog)
    known.least = Least(expected.person, expected.of_all, part, earlier, expected.least_s)
    return least
