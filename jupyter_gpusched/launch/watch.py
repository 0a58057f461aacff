"""One attempt as the launcher follows it, and whose its processes must be.

What lies in a job's folder is its owner's word. A host that works for others believes it only as
far as it is about that owner's own processes.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_gpusched.core.model import Job, JobId
from jupyter_gpusched.ports import LaunchOrder

from .cgroups import cgroup_of
from .door import owner_of
from .homes import Homes
from .means import Means
from .orders import PLAIN
from .owners import NoSuchOwner, Owner, Owners, ourselves


@dataclass(eq=False)
class Watch:
    """One attempt as we follow it. ``settled`` once its last event was reported.

    uid  whose its processes must be; None where everything in the job's folder is our own user's word.
    """

    job: Job
    attempt: int
    folder: Path
    uid: int | None = None
    started: bool = False
    main_followed: bool = False
    settled: bool = False
    supervisor: dict[str, Any] | None = None
    order: LaunchOrder | None = None  # of what we started
    means: Means = PLAIN
    child: int | None = None  # the supervisor's pid if we started it: then it is ours to reap
    spare_since: int | None = None  # its start time if it was kept ready: then it is the nursery's to reap
    home: str | None = None  # its cgroup
    marker: str | None = None  # known of what we started; of all else the claim says it
    reaped: bool = False
    wake: int | None = None
    said: bytes = b""  # what the supervisor printed before the job ran: only ever an error
    held: dict[int, int] = field(default_factory=dict)  # pidfds being watched, by pid
    timers: list[asyncio.TimerHandle] = field(default_factory=list)

    @property
    def key(self) -> tuple[JobId, int]:
        return self.job.id, self.attempt

    @property
    def may_start_again(self) -> bool:
        """Whether there is another way to start what nobody has claimed."""
        return self.spare_since is not None or self.means.scope is not None


class Whose:
    """Finds out as whom jobs run, and whose processes may be taken for theirs."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners

    def owner(self, job: Job) -> Owner | None:
        """None = ourselves. Raises ``NoSuchOwner``."""
        return self._owners(job.owner)

    def known_owner(self, job: Job) -> Owner | None:
        """As ``owner``; where the owner is gone, what is done is done by ourselves."""
        try:
            return self._owners(job.owner)
        except NoSuchOwner:
            return None

    def uid(self, job: Job, folder: Path) -> int | None:
        """The owner of the job's folder, and where there is none yet of the job; None = it does not matter."""
        if self._owners is ourselves:
            return None
        uid = owner_of(folder)
        if uid is not None:
            return uid
        owner = self.known_owner(job)
        return os.geteuid() if owner is None else owner.uid


def home_of(watch: Watch, homes: Homes | None, record: dict[str, Any], marker: str | None) -> str | None:
    """The cgroup of an attempt: the one that a record of our own user names, or that we made for another's.

    What is in it is killed as root, so that nothing counts of what another user has written down.
    """
    if watch.uid is None:
        return cgroup_of(record, *watch.key, marker)
    return None if homes is None else homes.of(*watch.key)
