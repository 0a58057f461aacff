"""The messages of an administrator's day: limits, the report by user, and who did what when.

A part of the wire like ``wire``; apart from it since only administrators ask for most of it.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Allowance(msgspec.Struct, kw_only=True):
    """What a user may have; null = no limit.

    rlimits  the kernel's limits for each process by their names, in bytes, seconds or numbers; null = unlimited.
             What is not named there is as the scheduler's host itself has it.
    """

    running_jobs: int | None
    queued_jobs: int | None
    gpus: int | None
    vram_share: float | None
    cpus: int | None
    memory_mib: int | None
    longest_time_s: float | None
    priorities: list[str] | None
    rlimits: dict[str, int | None]


class InUse(msgspec.Struct, kw_only=True):
    """What a user's jobs have now, in the terms of the limits."""

    running_jobs: int
    queued_jobs: int
    gpus: int
    vram_mib: int
    cpus: int
    memory_mib: int


class OwnLimits(msgspec.Struct, kw_only=True):
    """The limits that hold for the caller, and what of them is used."""

    user: str
    groups: list[str]
    limits: Allowance
    in_use: InUse


class AllLimits(msgspec.Struct, kw_only=True):
    """All limits in force, as configured in ``file``; what a section does not name is not in it."""

    file: str | None
    everybody: dict[str, Any]
    groups: dict[str, dict[str, Any]]
    users: dict[str, dict[str, Any]]


class UserReport(msgspec.Struct, kw_only=True):
    """One user's jobs that were submitted since a moment. Waits are from submission to the first start, in seconds.

    idle_share  part of the time that their jobs were seen running on cards for which these did nothing;
                null = no card has told how busy it was.
    """

    user: str
    jobs: int
    queued: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    timeout: int
    lost: int
    gpu_hours: float
    mean_wait_s: float | None
    longest_wait_s: float | None
    idle_share: float | None = None


class Report(msgspec.Struct, kw_only=True):
    since: float
    until: float
    items: list[UserReport]
    next_cursor: str | None


class LogEntry(msgspec.Struct, kw_only=True):
    """Something that happened. ``user`` owns the job; ``by`` did it, where somebody did."""

    seq: int
    at: float
    kind: str
    job_id: str | None
    user: str | None
    by: str | None
    detail: dict[str, Any]


class Log(msgspec.Struct, kw_only=True):
    items: list[LogEntry]
    next_cursor: str | None
