"""The waiting jobs, sorted once: by what they ask for, then in lines of jobs that are alike.

Jobs of one line ask for the same, are of the same owner and priority and are expected to run
as long: whatever a policy says of the first holds for all, so that a pass looks at the heads
of lines only. Frozen. Which line comes first is ``policies``'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from .history import History, Kin
from .model import Job, JobId, Phase, Priority, Request
from .persistent import Line


class Rank(NamedTuple):
    """A job's place in its line; smaller is earlier. Time does not change it, only its owner does."""

    key: float
    job_id: JobId


class LineKey(NamedTuple):
    """What the jobs of one line have in common beside their request. ``name`` is empty while it says nothing yet.

    by_hand  they stand in the order in which their owner put them, not in that of their submission.
    """

    owner: str
    name: str
    priority: Priority
    limit_s: float | None
    by_hand: bool = False

    def kin(self, request: Request) -> Kin:
        return Kin(self.owner, self.name, request.gpus, self.limit_s)


class Group(NamedTuple):
    """Lines whose jobs ask for the same, and are all urgent or none."""

    request: Request
    urgent: bool


Lines = Mapping[LineKey, Line[Rank]]


@dataclass(frozen=True, slots=True)
class Queue:
    """``ages``: all by submission. ``work``: what they were expected to take, MiB of all cards times seconds."""

    lines: Mapping[Group, Lines] = field(default_factory=dict)
    ages: Line[Rank] = Line()  # noqa: RUF009  frozen
    work: int = 0

    def moved(self, before: Sequence[Job | None], after: Sequence[Job], history: History) -> Queue:
        """The queue after some jobs changed: who joins a line, who leaves one, and who changes lines."""
        lines: dict[Group, dict[LineKey, Line[Rank]]] = {}
        ages, work = self.ages, self.work
        for was, is_now in zip(before, after, strict=True):
            old, new = _stands(was, history), _stands(is_now, history)
            work += ((is_now.work or 0) if new else 0) - ((was.work or 0) if was and old else 0)
            if old == new:
                continue
            for job, place, joins in ((was, old, False), (is_now, new, True)):
                if job is not None and place is not None:
                    group, key, at = place
                    opened = lines.get(group)
                    if opened is None:
                        opened = lines[group] = dict(self.lines.get(group, {}))
                    ages = ages.with_item(age(job)) if joins else ages.without_item(age(job))
                    line = opened.get(key, _NO_LINE)
                    opened[key] = line.with_item(at) if joins else line.without_item(at)
                    if not opened[key]:
                        del opened[key]
        return self if not lines and work == self.work else Queue(self._with(lines), ages, work)

    def with_known(self, owner: str, name: str, jobs: Mapping[JobId, Job]) -> Queue:
        """The queue after the past has begun to say something of a name: its jobs get lines of their own."""
        lines: dict[Group, dict[LineKey, Line[Rank]]] = {}
        for group, keyed in self.lines.items():
            for key, line in keyed.items():
                if key.owner != owner or key.name:
                    continue
                leaving = [rank for rank in line if jobs[rank.job_id].name == name]
                if leaving:
                    opened = lines.setdefault(group, dict(keyed))
                    opened[key._replace(name=name)] = Line(leaving)
                    gone = set(leaving)
                    opened[key] = Line(rank for rank in line if rank not in gone)
                    if not opened[key]:
                        del opened[key]
        return replace(self, lines=self._with(lines)) if lines else self

    def __bool__(self) -> bool:
        return bool(self.lines)

    def __len__(self) -> int:
        return len(self.ages)

    def _with(self, changed: Mapping[Group, Lines]) -> Mapping[Group, Lines]:
        merged = {**self.lines, **changed}
        for group, keyed in changed.items():
            if not keyed:
                del merged[group]
        return merged


_NO_LINE: Line[Rank] = Line()


def rank(job: Job) -> Rank:
    return Rank(job.submitted_at if job.place_at is None else job.place_at, job.id)


def age(job: Job) -> Rank:
    return Rank(job.submitted_at, job.id)


def line_key(job: Job, history: History) -> LineKey:
    name = job.name if history.knows(job.owner, job.name) else ""
    return LineKey(job.owner, name, job.priority, job.time_limit_s, job.place_at is not None)


def kin_of(job: Job) -> Kin:
    return Kin(job.owner, job.name, job.request.gpus, job.time_limit_s)


def _stands(job: Job | None, history: History) -> tuple[Group, LineKey, Rank] | None:
    """Where a job stands; None for one that does not wait."""
    if job is None or job.phase is not Phase.QUEUED:
        return None
    return Group(job.request, job.priority is Priority.HIGH), line_key(job, history), rank(job)
