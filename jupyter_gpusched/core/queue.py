"""The waiting jobs, sorted once: by what they ask for, then in lines of jobs that are alike.

Jobs of one line ask for the same, are of the same owner and priority and are expected to run
as long: whatever a policy says of the first holds for all, so that a pass looks at the heads
of lines only. Frozen. Which line comes first is ``policies``'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .frozen import quick, replace
from .history import History, Kin
from .model import Job, JobId, Phase, Priority, Request
from .persistent import Line, Map


class Rank(NamedTuple):
    """A job's place in its line; smaller is earlier. Time does not change it, only its owner does."""

    key: float
    job_id: JobId


class LineKey(NamedTuple):
    """What the jobs of one line have in common beside their request. ``name`` is empty while it says nothing yet.

    by_hand  they stand in the order in which their owner put them, not in that of their submission.
    yields   they agreed to be ended for others.
    """

    owner: str
    name: str
    priority: Priority
    limit_s: float | None
    by_hand: bool = False
    yields: bool = False

    def kin(self, request: Request) -> Kin:
        return Kin(self.owner, self.name, request.gpus, self.limit_s)


class Group(NamedTuple):
    """Lines whose jobs ask for the same, and are all urgent or none."""

    request: Request
    urgent: bool


Lines = Mapping[LineKey, Line[Rank]]


@dataclass(slots=True)
class Known:
    """What ``heads`` worked out of some lines, good as long as they are the same; ``before`` is what was of others."""

    heads: Any = None
    expected: Any = None
    least: Any = None
    before: Known | None = None


@quick
@dataclass(frozen=True, slots=True)
class Own:
    """The lines of one owner in a group."""

    lines: Lines
    known: Known = field(default_factory=Known, compare=False, repr=False)


@quick
@dataclass(frozen=True, slots=True)
class Queue:
    """All that wait, and beside their lines what would otherwise have to be searched for.

    lines     by group and owner.
    ages      all by submission.
    work      what they were expected to take, MiB of all cards times seconds.
    nameless  those whose name says nothing yet, by owner and name, by submission.
    requests  equal requests are kept once only.
    """

    lines: Mapping[Group, Mapping[str, Own]] = field(default_factory=dict)
    ages: Line[Rank] = Line()  # noqa: RUF009  frozen
    work: int = 0
    nameless: Map[Line[Rank]] = field(default_factory=Map)
    requests: dict[Request, Request] = field(default_factory=dict, compare=False, repr=False)

    def one_of(self, request: Request) -> Request:
        """The request, as the one value that equal ones share as long as there are not too many."""
        if len(self.requests) > _MOST_REQUESTS:
            self.requests.clear()
        return self.requests.setdefault(request, request)

    def moved(self, before: Sequence[Job | None], after: Sequence[Job], history: History) -> Queue:
        """The queue after some jobs changed: who joins a line, who leaves one, and who changes lines."""
        lines: _Opened = {}
        nameless: dict[str, Line[Rank]] = {}
        ages, work = self.ages, self.work
        older: list[Rank] = []
        joining: dict[tuple[Group, LineKey], list[Rank]] = {}  # a whole array may join one line
        unnamed: dict[str, list[Rank]] = {}
        for was, is_now in zip(before, after, strict=True):
            old, new = _stands(was, history), _stands(is_now, history)
            work += ((is_now.work or 0) if new else 0) - ((was.work or 0) if was and old else 0)
            if old == new:
                continue
            if was is not None and old is not None:
                group, key, at, both = old
                by_age = at if was.place_at is None else age(was)
                ages = ages.without_item(by_age)
                _leave(self._opened(lines, group, was.owner), key, at)
                if both is not None:
                    nameless[both] = nameless.get(both, self.nameless.get(both, _NO_LINE)).without_item(by_age)
            if new is not None:
                group, key, at, both = new
                by_age = at if is_now.place_at is None else age(is_now)
                older.append(by_age)
                joining.setdefault((group, key), []).append(at)
                if both is not None:
                    unnamed.setdefault(both, []).append(by_age)
        for (group, key), ranks in joining.items():
            opened = self._opened(lines, group, key.owner)
            opened[key] = opened.get(key, _NO_LINE).with_items(ranks)
        for both, ranks in unnamed.items():
            nameless[both] = nameless.get(both, self.nameless.get(both, _NO_LINE)).with_items(ranks)
        if not lines and work == self.work:
            return self
        emptied = [both for both, line in nameless.items() if not line]
        filled = {both: line for both, line in nameless.items() if line}
        unknown = self.nameless.changed(filled, emptied)
        return Queue(self._with(lines), ages.with_items(older), work, unknown, self.requests)

    def with_known(self, owner: str, name: str, jobs: Mapping[JobId, Job]) -> Queue:
        """The queue after the past has begun to say something of a name: its jobs get lines of their own."""
        nameless = self.nameless.get(_both(owner, name), _NO_LINE)
        if not nameless or not name:
            return self
        leaving: dict[tuple[Group, LineKey], list[Rank]] = {}
        for at in nameless:
            job = jobs[at.job_id]
            leaving.setdefault((_group(job), _line_key(job, "")), []).append(rank(job))
        lines: _Opened = {}
        for (group, key), ranks in leaving.items():
            opened = self._opened(lines, group, owner)
            opened[key._replace(name=name)] = Line(ranks)
            opened[key] = opened[key].without(ranks)
            if not opened[key]:
                del opened[key]
        nameless_left = self.nameless.changed({}, [_both(owner, name)])
        return replace(self, lines=self._with(lines), nameless=nameless_left)

    def with_forgotten(self, owner: str, name: str, jobs: Mapping[JobId, Job]) -> Queue:
        """The queue after the past has forgotten a name: its jobs stand with all nameless ones again."""
        if not name:
            return self
        lines: _Opened = {}
        both = _both(owner, name)
        nameless = self.nameless.get(both, _NO_LINE)
        for group, owners in self.lines.items():
            keyed = owners[owner].lines if owner in owners else {}
            for key in [key for key in keyed if key.name == name]:
                opened = self._opened(lines, group, owner)
                ranks, unnamed = list(opened.pop(key)), key._replace(name="")
                opened[unnamed] = opened.get(unnamed, _NO_LINE).with_items(ranks)
                nameless = nameless.with_items(age(jobs[at.job_id]) for at in ranks)
        if not lines:
            return self
        return replace(self, lines=self._with(lines), nameless=self.nameless.changed({both: nameless}))

    def __bool__(self) -> bool:
        return bool(self.lines)

    def __len__(self) -> int:
        return len(self.ages)

    def _opened(self, lines: _Opened, group: Group, owner: str) -> dict[LineKey, Line[Rank]]:
        """The owner's lines there, to be changed."""
        owners = lines.setdefault(group, {})
        opened = owners.get(owner)
        if opened is None:
            own = self.lines.get(group, {}).get(owner)
            opened = owners[owner] = {} if own is None else dict(own.lines)
        return opened

    def _with(self, changed: _Opened) -> Mapping[Group, Mapping[str, Own]]:
        merged = dict(self.lines)
        for group, opened in changed.items():
            owners = dict(merged.get(group, {}))
            for owner, lines in opened.items():
                if lines:
                    owners[owner] = Own(lines, _inherited(owners.get(owner)))
                else:
                    owners.pop(owner, None)
            if owners:
                merged[group] = owners
            else:
                merged.pop(group, None)
        return merged


def _inherited(before: Own | None) -> Known:
    """What was worked out of lines of which some have changed since: of the others it is still true."""
    if before is None:
        return Known()
    known = before.known
    return Known(before=known.before if known.heads is None else known)


_Opened = dict[Group, dict[str, dict[LineKey, Line[Rank]]]]
"""Lines that are being changed, by group and owner."""

_NO_LINE: Line[Rank] = Line()
_MOST_REQUESTS = 4096


def _both(owner: str, name: str) -> str:
    return f"{owner}\0{name}"


def _leave(lines: dict[LineKey, Line[Rank]], key: LineKey, at: Rank) -> None:
    line = lines.get(key, _NO_LINE).without_item(at)
    if line:
        lines[key] = line
    else:
        del lines[key]


def rank(job: Job) -> Rank:
    return Rank(job.ages_from if job.place_at is None else job.place_at, job.id)


def age(job: Job) -> Rank:
    return Rank(job.ages_from, job.id)


def line_key(job: Job, history: History) -> LineKey:
    return _line_key(job, job.name if history.knows(job.owner, job.name) else "")


def _line_key(job: Job, name: str) -> LineKey:
    return LineKey(job.owner, name, job.priority, job.time_limit_s, job.place_at is not None, job.may_be_evicted)


def kin_of(job: Job) -> Kin:
    return Kin(job.owner, job.name, job.request.gpus, job.time_limit_s)


def _stands(job: Job | None, history: History) -> tuple[Group, LineKey, Rank, str | None] | None:
    """Where a job stands, and by what it is found once its name says something; None for one that does not wait."""
    if job is None or job.phase is not Phase.QUEUED or job.set_aside:
        return None
    key = line_key(job, history)
    return _group(job), key, rank(job), None if key.name else _both(job.owner, job.name)


def _group(job: Job) -> Group:
    return Group(job.request, job.priority is Priority.HIGH)
