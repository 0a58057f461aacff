"""The policies by name: which of two waiting jobs goes first, and how long others may pass a job.

A policy is a small frozen value with two methods that see a job as ``Waiting``. It places
nothing itself: where a job fits, whom it may pass and for whom cards are kept is the same for
all policies (``policy``). Your own: subclass ``Policy`` and name it ``module:factory`` in the
setting ``GpuSched.policy``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from .frozen import quick


class Priority(str, Enum):
    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"

    __hash__ = str.__hash__  # quicker than that of an enumeration, and asked very often


class Waiting(NamedTuple):
    """What a policy may know of a waiting job.

    submitted_at  when it was submitted, seconds since the epoch.
    waited_s      how long it has waited; after a failed attempt, since it may be tried again.
    expected_s    how long such a job typically runs: learned, or its owner's corrected estimate.
    part          the part of the machine that it asks for, 0 to 1.
    share         the part of the machine that its owner has had of late, 0 to 1.
    backlog_s     how long first come, first served would have let it wait, as seen at its submission.
    """

    submitted_at: float
    waited_s: float
    expected_s: float
    part: float
    share: float
    priority: Priority
    backlog_s: float


class Columns(NamedTuple):
    """Many waiting jobs of one owner that ask for the same, each of them as ``Waiting`` has it."""

    now: float
    part: float
    share: float
    submitted_at: Sequence[float]
    since: Sequence[float]
    expected_s: Sequence[float]
    priorities: Sequence[Priority]
    backlog_s: Sequence[float]


Order = tuple[float, ...]
"""What a policy says of a job; smaller goes first."""


@quick
@dataclass(frozen=True, slots=True)
class Earlier:
    """The smallest order of some jobs of an owner at an earlier moment, with the owner's share then.

    waited_s, backlog_s  none of them had less.
    """

    order: Order
    at: float
    share: float
    waited_s: float
    backlog_s: float


Bound = Callable[[Earlier, float, float], Order]
"""Of jobs as they were, the seconds since and (at least) their owner's share now: what no order of theirs is below."""

_BONUS_S = {Priority.LOW: -3600.0, Priority.NORMAL: 0.0, Priority.HIGH: 3600.0}
"""Where age decides, a high job counts as submitted an hour earlier, a low one as much later."""


@dataclass(frozen=True, slots=True)
class Policy:
    """In the order of submission; whatever fits may pass what does not. The base of the others.

    strict      a job that does not fit holds up everything behind it.
    urgent_first  jobs of high priority are looked at before all others.
    evicts      urgent jobs, and jobs whose patience is over, may have preemptible ones ended.
    slip        when a place has been kept for so many times its patience again, nobody passes any more.
    firm_after  after so many times its patience a job's place is left free by all others.
    budget      until then, memory times seconds that may lie free for its sake, in units of what
                it needs itself; then that rests for ``rest_s``, and afterwards may be twice as much.
    """

    strict: bool = False
    urgent_first: bool = False
    evicts: bool = True
    slip: float = 20.0
    firm_after: float = 30.0
    budget: float = 4.0
    rest_s: float = 1800.0

    def order(self, job: Waiting) -> Order:
        """Smaller goes first. It may depend on time, and must not on what else waits; no smaller for a larger share."""
        return (job.submitted_at - _BONUS_S[job.priority],)

    def orders(self, jobs: Columns) -> list[Order]:
        """The same of many at once; a policy that is asked about thousands of jobs may have a quicker way."""
        now, part, share, *columns = jobs
        return [
            self.order(Waiting(at, max(0.0, now - since), expected_s, part, share, priority, backlog_s))
            for at, since, expected_s, priority, backlog_s in zip(*columns, strict=True)
        ]

    def bounds(self) -> Bound | None:
        """How it can be told that a job need not be looked at yet, from its order at an earlier moment.

        None = it cannot: each pass works out all orders anew. Then a policy needs no more than ``order``.
        """
        return _as_before if type(self).order is Policy.order else None

    def patience_s(self, job: Waiting, claim_after_s: float) -> float:
        """How long others may pass the job before cards are kept for it. ``claim_after_s`` is the setting."""
        return claim_after_s + 3.0 * job.expected_s + 5.0 * job.backlog_s

    def least_patience_s(self, claim_after_s: float) -> float:
        """No job's patience is less: younger ones need not be asked about."""
        return claim_after_s


def _as_before(jobs: Earlier, passed_s: float, share: float) -> Order:  # noqa: ARG001
    """Neither time nor a share changes the order."""
    return jobs.order


_LONG_S = 14400.0
"""Waiting makes a job earlier in units of this, more slowly for one that takes long or met a long queue."""

_NEARLY = 1.0 - 1e-9
"""A bound is worked out in another way than an order, and must not be above it for that."""


@dataclass(frozen=True, slots=True)
class Hybrid(Policy):
    """Short and small first, by what was learned; dampened by share and by age. Urgent jobs go before all."""

    urgent_first: bool = True
    size_weight: float = 0.6
    share_weight: float = 0.5
    share_scale: float = 8.0
    per_expected: float = 3.0
    per_backlog: float = 5.0

    def order(self, job: Waiting) -> Order:
        size = job.expected_s * job.part**self.size_weight
        fair = (1.0 + self.share_scale * job.share) ** self.share_weight
        patience = _LONG_S + self.per_expected * job.expected_s + self.per_backlog * job.backlog_s
        return (size * fair / (1.0 + job.waited_s / patience),)

    def orders(self, jobs: Columns) -> list[Order]:
        if type(self).order is not Hybrid.order:
            return Policy.orders(self, jobs)
        now, per_expected, per_backlog = jobs.now, self.per_expected, self.per_backlog
        weight, fair = jobs.part**self.size_weight, (1.0 + self.share_scale * jobs.share) ** self.share_weight
        return [
            (
                expected_s
                * weight
                * fair
                / (
                    1.0
                    + (now - since if now > since else 0.0)
                    / (_LONG_S + per_expected * expected_s + per_backlog * backlog_s)
                ),
            )
            for since, expected_s, backlog_s in zip(jobs.since, jobs.expected_s, jobs.backlog_s, strict=True)
        ]

    def bounds(self) -> Bound | None:
        """A share makes an order larger, by its factor alone; age smaller, but ever more slowly."""
        scale, weight, per_backlog = self.share_scale, self.share_weight, self.per_backlog
        if type(self).order is not Hybrid.order or min(scale, weight, self.per_expected, per_backlog) < 0.0:
            return None

        def bound(jobs: Earlier, passed_s: float, share: float) -> Order:
            (order,) = jobs.order
            fair = ((1.0 + scale * share) / (1.0 + scale * jobs.share)) ** weight
            patience = _LONG_S + per_backlog * jobs.backlog_s + jobs.waited_s
            return (order * fair * (patience / (patience + passed_s)) * _NEARLY,)

        return bound

    def patience_s(self, job: Waiting, claim_after_s: float) -> float:
        return claim_after_s + self.per_expected * job.expected_s + self.per_backlog * job.backlog_s


@dataclass(frozen=True, slots=True)
class Fifo(Policy):
    """Strictly in the order of submission: nothing passes a job that does not fit."""

    strict: bool = True
    evicts: bool = False


@dataclass(frozen=True, slots=True)
class Backfill(Policy):
    """In the order of submission; the oldest has its place kept at once, and others pass where they do not delay it."""

    evicts: bool = False
    slip: float = math.inf
    firm_after: float = math.inf
    budget: float = math.inf

    def patience_s(self, job: Waiting, claim_after_s: float) -> float:  # noqa: ARG002
        return 0.0

    def least_patience_s(self, claim_after_s: float) -> float:  # noqa: ARG002
        return 0.0


@dataclass(frozen=True, slots=True)
class Fair(Policy):
    """Who has had least of the machine of late goes first, then the order of submission."""

    urgent_first: bool = True

    def order(self, job: Waiting) -> Order:
        return round(job.share, 7), job.submitted_at

    def bounds(self) -> Bound | None:
        return _least_used if type(self).order is Fair.order else None


def _least_used(jobs: Earlier, passed_s: float, share: float) -> Order:  # noqa: ARG001
    return round(share, 7), jobs.order[1]


DEFAULT = Hybrid()
NAMED: Mapping[str, Policy] = {"default": DEFAULT, "fifo": Fifo(), "backfill": Backfill(), "fair": Fair()}
