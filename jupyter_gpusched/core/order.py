"""An owner's own order among waiting jobs.

Jobs that were put in an order carry numbers (``Job.place_at``), the smaller the earlier. They
say nothing to jobs without one, and nothing to those of others: the places that the numbered
ones have by the policy are dealt out among them (``facts``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from .model import JobId


def renumbered(
    own: Sequence[JobId], numbers: Mapping[JobId, float], moved: JobId, anchor: JobId, *, before: bool
) -> dict[JobId, float]:
    """The numbers that change once ``moved`` stands right before (or after) ``anchor``, in the new order.

    own      all the owner's waiting jobs as they stand.
    numbers  of those that have one; they rise along ``own``.
    """
    order = [job_id for job_id in own if job_id != moved]
    order.insert(order.index(anchor) + (not before), moved)
    displaced = {job_id for job_id, other in zip(own, order, strict=True) if job_id != other}
    if not displaced:
        return {}
    members = [job_id for job_id in order if job_id in displaced or job_id in numbers]
    kept = {job_id: number for job_id, number in numbers.items() if job_id != moved}
    new = _filled(members, kept)
    if any(first >= second for first, second in pairwise(new)):  # too narrow for so many halves
        new = [float(number) for number in range(len(members))]
    return {job_id: number for job_id, number in zip(members, new, strict=True) if numbers.get(job_id) != number}


def _filled(members: Sequence[JobId], kept: Mapping[JobId, float]) -> list[float]:
    """A number for everybody, with those that are kept; the others are spread evenly between their neighbours."""
    new: list[float] = []
    at = 0
    while at < len(members):
        if members[at] in kept:
            new.append(kept[members[at]])
            at += 1
            continue
        end = next((k for k in range(at, len(members)) if members[k] in kept), len(members))
        count = end - at
        if end < len(members):
            high = kept[members[end]]
            low = new[-1] if new else high - count - 1
            new += [low + (high - low) * (k + 1) / (count + 1) for k in range(count)]
        else:
            low = new[-1] if new else -1.0
            new += [low + k + 1 for k in range(count)]
        at = end
    return new
