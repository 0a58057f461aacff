"""The cgroup of an attempt of our own user as the host finds it again: by what the supervisor wrote down.

What another user's supervisor wrote down is never taken for a path: ``homes`` finds what we made for it.
"""

from __future__ import annotations

import os
from typing import Any

from .means import Hierarchy

OF_ATTEMPT = "gpusched-{job_id}-{attempt}-"
"""How the names of all begin that were ever made for an attempt; its marker goes on."""

KEPT_READY = "gpusched-{marker}"
"""Made before anybody knew for which attempt: the whole marker, which no other attempt has."""


def name_of(job_id: str, attempt: int, marker: str) -> str:
    return OF_ATTEMPT.format(job_id=job_id, attempt=attempt) + marker[:8]


def cgroup_of(record: dict[str, Any], job_id: str, attempt: int, marker: str | None) -> str | None:
    """The path in a claim; None unless it is a cgroup that can only be this attempt's."""
    path = record.get("cgroup")
    if not isinstance(path, str) or marker is None:
        return None
    if os.path.basename(path) not in (name_of(job_id, attempt, marker), KEPT_READY.format(marker=marker)):  # noqa: PTH119
        return None
    real = os.path.realpath(path)
    return path if real == path and os.path.exists(f"{path}/cgroup.procs") else None  # noqa: PTH110


def as_ordered(hierarchy: Hierarchy | None, job_id: str, attempt: int, marker: str) -> dict[str, str] | None:
    """What the supervisor is told: where cgroups are, and the name of its own."""
    if hierarchy is None:
        return None
    return {"mount": hierarchy.mount, "root": hierarchy.root, "name": name_of(job_id, attempt, marker)}


def as_kept_ready(hierarchy: Hierarchy | None, marker: str) -> dict[str, str] | None:
    """As above, for a supervisor that waits for its attempt."""
    if hierarchy is None:
        return None
    return {"mount": hierarchy.mount, "root": hierarchy.root, "name": KEPT_READY.format(marker=marker)}
