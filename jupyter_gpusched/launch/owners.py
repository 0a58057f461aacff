"""As whom a job runs: the unix user that a job's owner is on this machine.

The launcher is told how to find that out. A host that works for one user finds nobody, which
stands for this process itself; a service that runs as root looks in the user database.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from dataclasses import dataclass


class NoSuchOwner(Exception):
    """The owner of a job is no user of this machine (any more), or not one that jobs may run as."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A unix user. ``user`` is the exact key by which jobs name their owner; ``groups`` are all numbers of groups."""

    user: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str


Owners = Callable[[str], Owner | None]
"""Finds the unix user of a job's owner; None = this process's own user. Raises ``NoSuchOwner``."""


def ourselves(_user: str) -> Owner | None:
    """Every job runs as this process does."""
    return None


def unix_user(user: str) -> Owner:
    """The user of exactly this name in the user database. Raises ``NoSuchOwner``."""
    try:
        entry = pwd.getpwnam(user)
    except (KeyError, ValueError):
        raise NoSuchOwner(f"this machine has no user {user!r} any more") from None
    if entry.pw_name != user:  # a user database that ignores case
        raise NoSuchOwner(f"this machine has no user {user!r}, but {entry.pw_name!r}")
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return Owner(user, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir, entry.pw_shell or "/bin/sh")
