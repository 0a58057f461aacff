"""How long a claim lets others pass, and what it may cost them; from the policy's figures and a job's patience.

Who gets a claim, and on which cards, is ``policy``'s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .facts import Facts, waits_since
from .model import Claim, GpuUuid, Job
from .past import footprint


def is_firm(job: Job, facts: Facts) -> bool:
    """Whether its place is fixed on cards and kept free of everything that starts."""
    if job.claim is not None and job.claim.firm:
        return True
    return facts.now - waits_since(job) >= facts.policy.firm_after * facts.patience_s(job)


def due_of(job: Job, facts: Facts) -> float | None:
    """Until when a new claim lets others pass at all; None = for ever."""
    if math.isinf(facts.policy.slip):
        return None
    return facts.now + facts.policy.slip * max(facts.patience_s(job), facts.expected_s(job))


def accounted(before: Claim | None, cards: Sequence[GpuUuid], idle: int, now: float, due: float | None) -> Claim | None:
    """A soft claim with what has lain free for its sake so far; None = it is as before. ``idle``: MiB that lie free."""
    if before is not None and (before.gpus, before.idle) == (tuple(cards), idle):
        return None
    cost = 0.0 if before is None else spent(before, now)
    since = now if before is None else before.since
    return Claim(tuple(cards), since, firm=False, idle=idle, spent=cost, counted_at=now, due=due)


def spent(claim: Claim, now: float) -> float:
    """MiB times seconds that have lain free for it."""
    return claim.spent + claim.idle * max(0.0, now - claim.counted_at)


def budget(job: Job, facts: Facts) -> float:
    """MiB times seconds that may lie free for a job before its claim rests; more each time, so that it ends."""
    return float(facts.policy.budget * 2 ** min(job.claim_rests, 32) * worth(job, facts))


def worth(job: Job, facts: Facts) -> float:
    """MiB times seconds that a job is expected to take."""
    return max(facts.expected_s(job), 300.0) * footprint(job.request, facts.state.gpus.values())
