"""What users may have, what they had, and who did what when.

Each user sees the own limits; all the rest is the administrators'. Answers come from the state
and the journal; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import anyio.to_thread

from . import administration as messages
from .core.limits import Allowance, Words
from .core.messages import LimitsChanged
from .core.model import Job, Phase
from .core.quota import use_of_owner, waiting_of
from .core.report import Tally, tallies
from .desk import Desk, Handler
from .operate import OfAdministrators
from .ports import Recorded, Store

WEEK_S = 7 * 86400.0
_PAGE = 1000
_BUSY = (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)


class LimitsHandler(Handler):
    """GET limits: what the caller may have, and has."""

    def get(self) -> None:
        state, caller = self.desk.engine.state, self.caller
        use = use_of_owner(state, caller.user)
        self.answer(
            messages.OwnLimits(
                user=caller.user,
                groups=list(caller.groups),
                limits=_allowance(state.settings.limits.of(caller.user, caller.groups)),
                in_use=messages.InUse(
                    running_jobs=use.jobs,
                    queued_jobs=waiting_of(caller.user, state.jobs.values()),
                    gpus=use.gpus,
                    vram_mib=use.vram,
                    cpus=use.cpus,
                    memory_mib=use.memory,
                ),
            )
        )


class AdminLimitsHandler(OfAdministrators):
    """GET admin/limits: all of them. POST: read their file again; they hold from the next pass on."""

    may: ClassVar[Mapping[str, str]] = {"GET": "see the limits of all users", "POST": "have the limits read again"}

    def get(self) -> None:
        self.answer(_all_limits(self.desk))

    async def post(self) -> None:
        await reload_limits(self.desk, by=self.caller.user)
        self.answer(_all_limits(self.desk))


class ReportHandler(OfAdministrators):
    """GET admin/report: what each user had, of the jobs submitted after ``since``; of deleted ones to the hour."""

    may: ClassVar[Mapping[str, str]] = {"GET": "see the report of all users"}

    async def get(self) -> None:
        now = self.desk.engine.clock()
        since = float(self.number("since", max(0.0, now - WEEK_S)))
        store = self.desk.engine.store
        found = await anyio.to_thread.run_sync(
            lambda: tallies(_submitted_since(store, since), now, store.gone_since(since))
        )
        items = [_report(user, tally) for user, tally in sorted(found.items())]
        self.answer(messages.Report(since=since, until=now, items=items, next_cursor=None))


class LogOfEventsHandler(OfAdministrators):
    """GET admin/events: who did what when, oldest first; without ``cursor`` the newest ``limit`` of them."""

    may: ClassVar[Mapping[str, str]] = {"GET": "see who did what"}

    async def get(self) -> None:
        store, limit = self.desk.engine.store, int(self.number("limit", 200, most=1000))
        cursor = self.number("cursor")

        def look() -> tuple[list[Recorded], bool]:
            after = max(0, store.last_seq() - limit) if cursor is None else int(cursor)
            found = store.events(after=after, limit=limit + 1)
            return found[:limit], len(found) > limit

        found, more = await anyio.to_thread.run_sync(look)
        following = str(found[-1].seq) if more and found else None
        self.answer(messages.Log(items=[_entry(one) for one in found], next_cursor=following))


async def reload_limits(desk: Desk, *, by: str) -> None:
    """Read the limits anew. Raises ``BadLimits``; then the old ones stand."""
    limits = await anyio.to_thread.run_sync(desk.read_limits)
    await desk.engine.operate(LimitsChanged(by, limits))


def _submitted_since(store: Store, since: float) -> Iterator[Job]:
    before: tuple[float, str] | None = None
    while True:
        page = store.jobs(limit=_PAGE, before=before)
        for job in page:
            if job.submitted_at < since:
                return
            yield job
        if len(page) < _PAGE:
            return
        before = page[-1].submitted_at, page[-1].id


def _report(user: str, tally: Tally) -> messages.UserReport:
    phases = tally.phases
    return messages.UserReport(
        user=user,
        jobs=sum(phases.values()),
        queued=phases.get(Phase.QUEUED, 0),
        running=sum(phases.get(phase, 0) for phase in _BUSY),
        succeeded=phases.get(Phase.SUCCEEDED, 0),
        failed=phases.get(Phase.FAILED, 0),
        cancelled=phases.get(Phase.CANCELLED, 0),
        timeout=phases.get(Phase.TIMEOUT, 0),
        lost=phases.get(Phase.LOST, 0),
        gpu_hours=round(tally.gpu_s / 3600, 4),
        mean_wait_s=tally.mean_wait_s,
        longest_wait_s=tally.longest_wait_s,
        idle_share=round(tally.idle_gpu_s / tally.watched_gpu_s, 4) if tally.watched_gpu_s else None,
    )


def _entry(one: Recorded) -> messages.LogEntry:
    owner = None if one.job is None else one.job.owner
    by = one.detail.get("by")
    return messages.LogEntry(
        seq=one.seq,
        at=one.at,
        kind=one.kind,
        job_id=None if one.job is None else one.job.id,
        user=owner,
        by=by if isinstance(by, str) else owner if one.kind == "submitted" else None,
        detail=dict(one.detail),
    )


def _allowance(allowance: Allowance) -> messages.Allowance:
    return messages.Allowance(
        running_jobs=allowance.running_jobs,
        queued_jobs=allowance.queued_jobs,
        gpus=allowance.gpus,
        vram_share=allowance.vram_share,
        cpus=allowance.cpus,
        memory_mib=allowance.memory,
        longest_time_s=allowance.longest_time_s,
        priorities=None if allowance.priorities is None else list(allowance.priorities),
        rlimits=dict(allowance.rlimits),
    )


def _all_limits(desk: Desk) -> messages.AllLimits:
    limits = desk.engine.state.settings.limits
    return messages.AllLimits(
        file=desk.limits_file or None,
        everybody=_shown(limits.everybody),
        groups={name: _shown(words) for name, words in limits.groups.items()},
        users={name: _shown(words) for name, words in limits.users.items()},
    )


def _shown(words: Words) -> dict[str, Any]:
    return {_WIRE.get(name, name): value for name, value in words.items()}


_WIRE: Mapping[str, str] = {"memory": "memory_mib"}
