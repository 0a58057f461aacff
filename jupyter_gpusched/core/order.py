"""An owner's own order among waiting jobs.

The places that the jobs hold together are dealt out anew, so that nobody else's job comes
earlier or later for it. A place is what ``state.rank`` calls a key: seconds since the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .model import JobId


def dealt(places: Sequence[tuple[float, JobId]], moved: JobId, anchor: JobId, *, before: bool) -> dict[JobId, float]:
    """Who stands at which place once ``moved`` stands right before (or after) ``anchor``.

    places  the keys of all the owner's waiting jobs in their order, with who stands there.
    Of equal keys the later ones are taken for the smallest step later: equal ones would be in
    the order of the ids again.
    """
    order = [job_id for _, job_id in places if job_id != moved]
    order.insert(order.index(anchor) + (not before), moved)
    keys: list[float] = []
    for key, _ in places:
        keys.append(key if not keys or key > keys[-1] else math.nextafter(keys[-1], math.inf))
    return dict(zip(order, keys, strict=True))
