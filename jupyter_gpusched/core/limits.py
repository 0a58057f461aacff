"""What the administrator lets users have: limits for everybody, for groups and for single users.

For each limit the user's own word counts; else the most generous of the user's groups that say
one; else everybody's. Values only; ``quota`` says what follows for a job.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from .quantities import Mib

PRIORITIES = ("low", "normal", "high")

RLIMITS: Mapping[str, str] = {
    "as": "bytes",
    "core": "bytes",
    "cpu": "seconds",
    "data": "bytes",
    "fsize": "bytes",
    "memlock": "bytes",
    "msgqueue": "bytes",
    "nofile": "count",
    "nproc": "count",
    "sigpending": "count",
    "stack": "bytes",
}
"""The resource limits of the kernel that can be set, as ``getrlimit(2)`` names them, with their units."""

Rlimits = Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one user may have; None = no limit.

    running_jobs    in an attempt at a time.
    queued_jobs     waiting at a time.
    gpus            asked for by what runs, each share of a card counting as one.
    vram_share      part of the memory of all cards that is promised to what runs, above 0 up to 1.
    cpus, memory    asked for by what runs; memory in MiB.
    longest_time_s  that a job may run; also the time limit of those that name none.
    priorities      that may be asked for.
    rlimits         of each process, by the kernel's names; None = unlimited. Others stay as the host has them.
    """

    running_jobs: int | None = None
    queued_jobs: int | None = None
    gpus: int | None = None
    vram_share: float | None = None
    cpus: int | None = None
    memory: Mib | None = None
    longest_time_s: float | None = None
    priorities: tuple[str, ...] | None = None
    rlimits: Rlimits = field(default_factory=dict)


NAMES = tuple(one.name for one in fields(Allowance))

Words = Mapping[str, Any]
"""Some limits by their names; what is not among them is left to others to say."""


@dataclass(frozen=True)
class Limits:
    """All limits as configured. Never changed in place, since what was found for a user is kept."""

    everybody: Words = field(default_factory=dict)
    groups: Mapping[str, Words] = field(default_factory=dict)
    users: Mapping[str, Words] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.everybody or self.groups or self.users)

    def __hash__(self) -> int:
        return id(self)

    def of(self, user: str, groups: tuple[str, ...]) -> Allowance:
        """The limits of a user who is in these groups. Names are compared exactly."""
        return _resolved(self, user, groups)


@lru_cache(maxsize=4096)
def _resolved(limits: Limits, user: str, groups: tuple[str, ...]) -> Allowance:
    own = limits.users.get(user, {})
    shared = [limits.groups[group] for group in groups if group in limits.groups]
    found = {name: _found(name, own, shared, limits.everybody) for name in NAMES if name != "rlimits"}
    return Allowance(**found, rlimits=_rlimits(own, shared, limits.everybody))


def _rlimits(own: Words, shared: Sequence[Words], everybody: Words) -> Rlimits:
    """Each is a limit of its own: who names one leaves the others to those who would say them else."""
    own, *shared, everybody = [words.get("rlimits", {}) for words in (own, *shared, everybody)]
    return {name: _found(name, own, shared, everybody) for name in sorted({*own, *everybody}.union(*shared))}


def _found(name: str, own: Words, shared: Sequence[Words], everybody: Words) -> Any:
    said = [words[name] for words in shared if name in words]
    if name in own:
        return own[name]
    return _most_generous(name, said) if said else everybody.get(name)


def _most_generous(name: str, said: Iterable[Any]) -> Any:
    values = list(said)
    if None in values:
        return None
    if name == "priorities":
        allowed = {priority for value in values for priority in value}
        return tuple(priority for priority in PRIORITIES if priority in allowed)
    return max(values, key=lambda value: math.inf if value is None else value)


NO_LIMITS = Limits()
