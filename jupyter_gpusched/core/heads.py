"""The first jobs of an owner's lines in columns, remembered from pass to pass.

A pass compares hundreds of heads. What of them neither time nor another's job changes is
worked out once and kept with the lines themselves (``Own.known``): it is right as long as the
lines are the same and the past says the same of their jobs. Nothing is decided here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .facts import Facts, waits_since
from .history import MIDDLE, Alike, History, Person, Runs
from .persistent import Line
from .policies import Priority
from .queue import LineKey, Own, Rank


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
    least_s: float
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


def expected_of(own: Own, owner: str, heads: Heads, history: History, *, compute: bool) -> Expected:
    person = history.people.get(owner)
    known: Expected | None = own.known.get("expected")
    if known is None or known.person is not person or (known.of_all is not None and known.of_all is not history.runs):
        seconds = history.expected_of_many(owner, heads.kins)
        of_all = None if history.judges_alone(person) else history.runs
        known = own.known["expected"] = Expected(person, of_all, seconds, min(seconds, default=math.inf))
    if compute and known.compute is None:
        known.compute = [history.compute(owner, key.name) for key in heads.keys]
    return known
