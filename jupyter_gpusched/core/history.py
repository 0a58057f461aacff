"""What the past says of run times and of the use of a card's processors.

Learns from attempts that ended by themselves: by user and name, by user and number of GPUs,
by user, by all; a time limit is read as its owner's estimate and corrected by how that
owner's estimates turned out. Frozen; an ended attempt leads to a new ``History``.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from .frozen import quick
from .persistent import Map

K = TypeVar("K")
V = TypeVar("V")
_Row = tuple[float, ...]

KNOWN_AFTER = 2
"""So many runs of a name say more than anything else its owner did."""

PRIOR_S = 1800.0
"""Expected run time of a job of which nothing is known at all."""

_KEPT, _KEPT_OF_ALL, _KEPT_ESTIMATES, _KEPT_COMPUTE = 32, 512, 96, 8
_MOST_NAMES = 1024
_TRUSTED = 4
"""So many runs before a broader family is believed."""

_FEWEST_ESTIMATES = 6
_MOST_TOLD = 4096
MIDDLE = 0.5


@quick
@dataclass(frozen=True, slots=True)
class Runs:
    """The latest run times of one family, in seconds."""

    recent: tuple[float, ...] = ()
    ordered: tuple[float, ...] = ()
    _typical: list[float] = field(default_factory=list, compare=False, repr=False)

    @property
    def typical_s(self) -> float:
        """Between median and mean. Worked out once it is asked for."""
        if not self._typical:
            typical_s = (sum(map(math.sqrt, self.ordered)) / len(self.ordered)) ** 2 if self.ordered else 0.0
            self._typical[:] = typical_s, math.log(max(1.0, typical_s))
        return self._typical[0]

    @property
    def log_typical(self) -> float:
        return self._typical[1] if self._typical else math.log(max(1.0, self.typical_s))

    def with_run(self, seconds: float, *, kept: int) -> Runs:
        return Runs(*_with_latest(self.recent, self.ordered, seconds, kept))

    def quantile(self, share: float) -> float:
        return self.typical_s if share == MIDDLE else _quantile(self.ordered, share)


@quick
@dataclass(frozen=True, slots=True)
class Estimates:
    """How a user's estimates turned out: logarithms of run time over estimate."""

    recent: tuple[float, ...] = ()
    ordered: tuple[float, ...] = ()
    _typical: list[float] = field(default_factory=list, compare=False, repr=False)

    def factor(self, share: float) -> float:
        """By what an estimate is multiplied to be what this share of runs does not exceed."""
        if share != MIDDLE:
            return math.exp(_quantile(self.ordered, share))
        if not self._typical:
            self._typical.append(math.exp(_quantile(self.ordered, share)))
        return self._typical[0]

    def with_ratio(self, ratio: float) -> Estimates:
        return Estimates(*_with_latest(self.recent, self.ordered, ratio, _KEPT_ESTIMATES))


@quick
@dataclass(frozen=True, slots=True)
class Person:
    """One user's past. ``compute``: by name, and of all ("") the latest shares of a card's processors, 1 = all."""

    names: Mapping[str, Runs] = field(default_factory=dict)
    by_gpus: Mapping[int, Runs] = field(default_factory=dict)
    runs: Runs = Runs()
    estimates: Estimates = Estimates()
    compute: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


class Kin(NamedTuple):
    """By what a job is known to the past."""

    owner: str
    name: str
    gpus: int
    limit_s: float | None


@dataclass(slots=True)
class Outlook:
    """What the past says of a run that goes on, as long as neither the past nor the run comes to tell more.

    person, of_all     the past from which it comes; ``of_all`` only where its owner's says too little.
    since_s, until_s   how long the run must have lasted for it to hold.
    total_s            how long it will have lasted in the end; None = nothing is known of such long ones.
    """

    person: Person
    of_all: Runs | None
    limit_s: float | None
    since_s: float
    until_s: float
    total_s: float | None

    def remaining_s(self, elapsed_s: float) -> float:
        limit_s, total_s = self.limit_s, self.total_s
        if total_s is not None:
            seconds = total_s - elapsed_s
            if limit_s is not None and limit_s > elapsed_s:
                seconds = min(seconds, max(limit_s - elapsed_s, 60.0))
            return seconds if seconds > 20.0 else 20.0  # noqa: FURB136  asked very often
        if limit_s is not None and limit_s > elapsed_s:
            return max(20.0, 0.7 * (limit_s - elapsed_s))
        return max(60.0, 0.5 * elapsed_s)


Alike = tuple[str, int, float | None, float]
"""Name, number of GPUs, time limit, and the share of runs that is asked about."""

_NOBODY = Person()
_Told = dict[Alike, float]
_NOTHING_TOLD: _Told = {}
_ToldByAll = dict[tuple[str, str, int, float | None, float], float]


@quick
@dataclass(frozen=True, slots=True)
class History:
    people: Map[Person] = field(default_factory=Map)
    runs: Runs = Runs()
    estimates: Estimates = Estimates()
    _told: dict[str, _Told] = field(default_factory=dict, compare=False, repr=False)
    _told_by_all: _ToldByAll = field(default_factory=dict, compare=False, repr=False)

    def with_run(self, kin: Kin, seconds: float, *, compute: float | None) -> History:
        """The history after one more run; ``compute`` is the share of its card's processors, where it was seen."""
        person = self.people.get(kin.owner, _NOBODY)
        ratio = math.log(max(1.0, seconds) / kin.limit_s) if kin.limit_s else None
        person = Person(
            names=_put(person.names, kin.name, person.names.get(kin.name, Runs()).with_run(seconds, kept=_KEPT)),
            by_gpus=_put(person.by_gpus, kin.gpus, person.by_gpus.get(kin.gpus, Runs()).with_run(seconds, kept=_KEPT)),
            runs=person.runs.with_run(seconds, kept=_KEPT),
            estimates=person.estimates if ratio is None else person.estimates.with_ratio(ratio),
            compute=person.compute if compute is None else _seen(_seen(person.compute, kin.name, compute), "", compute),
        )
        told = self._told.copy()  # it stays good for the others, unless everybody's runs were used for it
        told.pop(kin.owner, None)
        return History(
            people=self.people.changed({kin.owner: person}),
            runs=self.runs.with_run(seconds, kept=_KEPT_OF_ALL),
            estimates=self.estimates if ratio is None else self.estimates.with_ratio(ratio),
            _told=told,
        )

    def knows(self, owner: str, name: str) -> bool:
        """Whether this name's own runs are what its jobs are judged by."""
        runs = self.people.get(owner, _NOBODY).names.get(name)
        return runs is not None and len(runs.recent) >= KNOWN_AFTER

    def judges_alone(self, person: Person | None) -> bool:
        """Whether an owner's own past says all about that owner's jobs, whatever is learned of others."""
        if person is None or len(person.runs.ordered) < _TRUSTED:
            return False
        return len(person.estimates.ordered) >= _FEWEST_ESTIMATES

    def forgotten(self, earlier: History, owner: str) -> list[str]:
        """Names of this owner that an earlier history knew and this one does not, since there are too many."""
        before, now = earlier.people.get(owner, _NOBODY).names, self.people.get(owner, _NOBODY).names
        if len(before) < _MOST_NAMES:
            return []
        return [name for name in before if name not in now and earlier.knows(owner, name)]

    def expected_s(self, kin: Kin, share: float = MIDDLE) -> float:
        """Run time that this share of such jobs does not exceed; at one half a typical one. At least 10 s."""
        return self.expected_of(kin.owner, kin.name, kin.gpus, kin.limit_s, share)

    def expected_of(self, owner: str, name: str, gpus: int, limit_s: float | None, share: float = MIDDLE) -> float:
        """The same for somebody who has not made a ``Kin`` of it; asked very often."""
        return self.expected_of_many(owner, ((name, gpus, limit_s, share),))[0]

    def expected_of_many(self, owner: str, kins: Sequence[Alike]) -> list[float]:
        """The same of many of an owner's jobs at once."""
        known = self._told.get(owner, _NOTHING_TOLD)
        try:
            return [known[kin] for kin in kins]
        except KeyError:  # some of them were not asked about since something was learned
            pass
        person, by_all = self.people.get(owner, _NOBODY), self._told_by_all
        corrects_alone = len(person.estimates.ordered) >= _FEWEST_ESTIMATES
        told = []
        for kin in kins:
            seconds = known.get(kin)
            if seconds is None and by_all:
                seconds = by_all.get((owner, *kin))
            if seconds is None:
                name, gpus, limit_s, share = kin
                own, family = True, person.names.get(name)
                if family is None or len(family.ordered) < KNOWN_AFTER:
                    own, family = False, self._broader(person, gpus)
                seconds = self._blended(person, limit_s, share, family, own=own)
                seconds = max(seconds, 10.0)
                if family is not None and family is not self.runs and (not limit_s or corrects_alone):
                    known = self._told.setdefault(owner, {})  # its owner's past alone says it
                    if len(known) > _MOST_TOLD:
                        known.clear()
                    known[kin] = seconds
                else:
                    by_all[owner, name, gpus, limit_s, share] = seconds
            told.append(seconds)
        return told

    def _broader(self, person: Person, gpus: int) -> Runs | None:
        """The runs that jobs are judged by whose name says nothing."""
        by_gpus = person.by_gpus.get(gpus)
        if by_gpus is not None and len(by_gpus.ordered) >= _TRUSTED:
            return by_gpus
        if len(person.runs.ordered) >= _TRUSTED:
            return person.runs
        return self.runs if len(self.runs.ordered) >= _TRUSTED else None

    def remaining_s(self, kin: Kin, elapsed_s: float, share: float) -> float:
        """What is left of a run given that it has already lasted so long."""
        return self.outlook(kin, elapsed_s, share).remaining_s(elapsed_s)

    def outlook(self, kin: Kin, elapsed_s: float, share: float, before: Outlook | None = None) -> Outlook:
        """How long such a run will have lasted in the end given that it has already lasted so long.

        before  what was said of the same run earlier; where its owner's past said too little, it does so still.
        """
        owner, name, gpus, limit_s = kin
        person, everybody = self.people.get(owner, _NOBODY), self.runs
        families = [person.names.get(name, _NO_RUNS), person.by_gpus.get(gpus, _NO_RUNS), person.runs, everybody]
        if before is not None and before.of_all is not None and before.person is person and elapsed_s >= before.since_s:
            families = [everybody]
        for runs in families:
            ordered = runs.ordered
            longer = bisect_right(ordered, elapsed_s)
            left = len(ordered) - longer
            if left >= _TRUSTED:  # of those that lasted longer: the shortest, and what this share does not exceed
                of_all = everybody if runs is everybody else None
                total_s = ordered[longer + min(left - 1, int(share * left))]
                return Outlook(person, of_all, limit_s, elapsed_s, ordered[longer], total_s)
        return Outlook(person, everybody, limit_s, elapsed_s, math.inf, None)

    def person(self, owner: str) -> Person:
        return self.people.get(owner, _NOBODY)

    def still_holds(self, outlook: Outlook, person: Person, elapsed_s: float) -> bool:
        """Whether it would be the same now, with what is known of the owner; its kin must be the same."""
        of_all = outlook.of_all
        return (
            outlook.person is person
            and outlook.since_s <= elapsed_s < outlook.until_s
            and (of_all is None or of_all is self.runs or self._still_unheard_of(outlook, elapsed_s))
        )

    def _still_unheard_of(self, outlook: Outlook, elapsed_s: float) -> bool:
        """Whether nothing was known of such long runs, and nothing is."""
        ordered = self.runs.ordered
        return outlook.total_s is None and (len(ordered) < _TRUSTED or ordered[-_TRUSTED] <= elapsed_s)

    def compute(self, owner: str, name: str) -> float | None:
        """The share of a card's processors that such jobs used, or those of their owner; None = never seen."""
        known = self.people.get(owner, _NOBODY).compute
        seen = known.get(name) or known.get("")
        return sum(seen) / len(seen) if seen else None

    def basis(self, kin: Kin) -> str:
        """In words, what the expected run time of such a job comes from."""
        for (runs, needed), what in zip(self._families(kin), _WORDS, strict=True):
            if len(runs.ordered) >= needed:
                cards = f"{kin.gpus} GPU" + ("" if kin.gpus == 1 else "s")
                return what.format(count=len(runs.ordered), name=kin.name, gpus=cards, owner=kin.owner)
        return "no run seen yet"

    def says_something(self, kin: Kin) -> bool:
        """Whether there are runs from which the run time of such a job can be told."""
        return any(len(runs.ordered) >= needed for runs, needed in self._families(kin))

    def _families(self, kin: Kin) -> Iterator[tuple[Runs, int]]:
        """The past of jobs like this one, most alike first, each with the number of runs that makes it believed."""
        person = self.people.get(kin.owner, _NOBODY)
        yield person.names.get(kin.name, _NO_RUNS), KNOWN_AFTER
        yield person.by_gpus.get(kin.gpus, _NO_RUNS), _TRUSTED
        yield person.runs, _TRUSTED
        yield self.runs, _TRUSTED

    def _blended(self, person: Person, limit_s: float | None, share: float, family: Runs | None, *, own: bool) -> float:
        """``own``: the family are runs of the same name."""
        if not limit_s:
            return family.quantile(share) if family is not None else PRIOR_S * (1 if share <= 0.6 else 3)
        guessed = limit_s * self._correction(person.estimates, share)
        if family is None:
            return guessed
        count = len(family.ordered)
        weight = (0.5 if count >= 6 else 0.5 * (count / 6)) if own else 0.15
        learned = family.log_typical if share == MIDDLE else math.log(max(1.0, family.quantile(share)))
        return math.exp(weight * learned + (1 - weight) * math.log(guessed if guessed > 1.0 else 1.0))  # noqa: FURB136

    def _correction(self, estimates: Estimates, share: float) -> float:
        """What a user's estimate is worth in the light of that user's earlier ones, or of everybody's."""
        if len(estimates.ordered) < _FEWEST_ESTIMATES:
            estimates = self.estimates
        if len(estimates.ordered) >= _FEWEST_ESTIMATES:
            return estimates.factor(share)
        return 0.5 if share <= 0.6 else 1.0


_NO_RUNS = Runs()
_WORDS = (
    "{count} runs of {name}",
    "{count} runs of {owner} on {gpus}",
    "{count} runs of {owner}",
    "{count} runs of all users",
)


def _seen(known: Mapping[str, tuple[float, ...]], name: str, compute: float) -> dict[str, tuple[float, ...]]:
    return _put(known, name, (*known.get(name, ()), compute)[-_KEPT_COMPUTE:])


def _with_latest(recent: _Row, ordered: _Row, value: float, kept: int) -> tuple[_Row, _Row]:
    """The latest values and the same in their order, with one more; the oldest goes when there are too many."""
    row = list(ordered)
    insort(row, value)
    if len(recent) < kept:
        return (*recent, value), tuple(row)
    del row[bisect_left(row, recent[0])]
    return (*recent[1:], value), tuple(row)


def _quantile(ordered: tuple[float, ...], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _put(mapping: Mapping[K, V], key: K, value: V) -> dict[K, V]:
    """A copy with one entry renewed, and so the youngest; the oldest goes when there are too many."""
    copy = dict(mapping)
    copy.pop(key, None)
    copy[key] = value
    if len(copy) > _MOST_NAMES:
        del copy[next(iter(copy))]
    return copy
