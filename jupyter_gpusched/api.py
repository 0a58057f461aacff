"""The host's HTTP interface: Tornado handlers over the unix socket, and their paths.

It asks engine and admission and decides nothing.
"""

from __future__ import annotations

import re
from functools import partial
from http import HTTPStatus
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from tornado.web import Application, HTTPError

from . import wire
from .acting import ACTIONS
from .bookings import ReservationHandler, ReservationsHandler
from .core.alerts import policy_failed
from .core.model import BadRequest, Job, Phase, UnknownJob
from .desk import Desk, Handler
from .engine import Engine
from .events import EventsHandler
from .openapi import document
from .operate import AlertsHandler, DrainHandler, QuarantineHandler, ResumeHandler, drained
from .oversight import AdminLimitsHandler, LimitsHandler, LogOfEventsHandler, ReportHandler
from .places import API
from .reading import LogHandler, OfJob, OutputsHandler, ResultHandler
from .respec import spec_of
from .submission import read_order, read_submission
from .targets import find
from .telemetry import MEDIA, Machine, exposition
from .wire import PREFIX

LONGEST_WAIT_S = 30.0
LIST_PATIENCE_S, SHOW_PATIENCE_S = 0.02, 0.5
"""So long an answer about waiting jobs waits for their probable start to be worked out."""

_ORDER = frozenset(wire.JobOrder.__struct_fields__)


class HealthHandler(Handler):
    """GET health: is there a host, which one, and is anything wrong."""

    def get(self) -> None:
        desk, record = self.desk, self.desk.record
        causes = _causes(desk.engine)
        live = [job for job in desk.engine.state.jobs.values() if job.owner == self.caller.user]
        self.answer(
            wire.Health(
                status="degraded" if causes else "ok",
                version=record.version,
                api=API,
                instance=record.instance,
                pid=record.pid,
                state_dir=str(desk.state),
                simulated=record.simulated,
                causes=causes,
                cpus=desk.engine.settings.cpus,
                memory_mib=desk.engine.settings.memory,
                kind=record.kind,
                epoch=record.epoch,
                socket=record.socket,
                gpu_cause=desk.engine.gpus.cause,
                ending=desk.means.ending,
                notices=desk.means.notices if self.caller.admin else [],
                isolation=desk.means.isolation,
                host_limits="limited" if desk.means.limits_host else "counted",
                drained=drained(desk.engine.state.operations.drain),
                live_jobs=sum(not job.phase.final for job in live),
                user=self.caller.user,
                admin=self.caller.admin,
                administrators=desk.doorkeeper.administrators(),
                unseen=desk.unseen(),
            )
        )


class GpusHandler(Handler):
    """GET gpus: every card with its figures and holders."""

    def get(self) -> None:
        self.answer(wire.GpuList(items=self.desk.card_frames.of(self.views()), next_cursor=None))


class JobsHandler(Handler):
    """POST jobs: queue one or a batch. GET jobs: the caller's, newest first."""

    async def post(self) -> None:
        asked, caller = read_submission(await self.body()), self.caller
        ids = await self.desk.admission.submit(asked.jobs, by=caller, array=asked.array)
        if not asked.batch:
            self.answer(wire.Created(id=ids[0]), HTTPStatus.CREATED)
            return
        array_id = None if asked.array is None else (await self.desk.engine.job(ids[0], caller.sees)).array_id
        self.answer(wire.CreatedBatch(ids=ids, array_id=array_id), HTTPStatus.CREATED)

    async def get(self) -> None:
        phase = self.get_query_argument("phase", None)
        if phase is not None and phase not in {known.value for known in Phase}:
            raise BadRequest(
                f"phase: there is no phase {phase!r}.",
                field="phase",
                hint="Known: " + ", ".join(known.value for known in Phase) + ".",
            )
        limit = int(self.number("limit", 100, most=1000))
        user = self.get_query_argument("user", None if self.of_everybody() else self.caller.user)
        seen = user is None or self.caller.sees(user)
        jobs = await self._page(user, phase, limit) if seen and limit else []
        if any(job.phase is Phase.QUEUED for job in jobs):
            await self.desk.foresight.renewed(LIST_PATIENCE_S)
        views = await self.views_now()
        if any(views.knows_no_more(job) for job in jobs):
            jobs = await self._page(user, phase, limit)
        more = len(jobs) > limit
        cursor = f"{jobs[limit - 1].submitted_at!r}~{jobs[limit - 1].id}" if more else None
        self.answer(wire.JobList(items=views.jobs(jobs[:limit]), next_cursor=cursor))

    async def _page(self, user: str | None, phase: str | None, limit: int) -> list[Job]:
        before = _read_cursor(self.get_query_argument("cursor", None))
        name, array = self.get_query_argument("name", None), self.get_query_argument("array", None)
        live = False if self.wants("ended") else None
        page = partial(self.desk.engine.store.jobs, owner=user, phase=phase, live=live, name=name, batch_id=array)
        return await anyio.to_thread.run_sync(lambda: page(limit=limit + 1, before=before))


def _read_cursor(text: str | None) -> tuple[float, str] | None:
    if text is None:
        return None
    at, _, job_id = text.partition("~")
    if not re.fullmatch(r"\d{1,18}(\.\d{1,18})?", at):
        raise BadRequest(
            "cursor: it is not one that this host gave.", field="cursor", hint="Begin again without `cursor`."
        )
    return float(at), job_id


class JobHandler(OfJob):
    """GET jobs/ID, with ``wait=final`` only when it is final or after ``timeout`` seconds; PATCH; DELETE."""

    async def patch(self, job_id: str) -> None:
        target, body = await find(job_id, self.desk.engine, self.caller.sees), await self.body()
        admission, job = self.desk.admission, target.jobs[0]
        if isinstance(body, dict) and _ORDER & body.keys():
            await admission.reorder((await self.find(job_id)).id, read_order(body), by=self.caller)
        elif target.one:
            await admission.amend(job.id, body, by=self.caller)
        else:
            self.answer(wire.JobIds(ids=await admission.amend_many(target.jobs, body, by=self.caller)))
            return
        self.answer(self.views().job(await self.find(job.id)))

    async def delete(self, job_id: str) -> None:
        await self.desk.admission.delete(await self.find(job_id), by=self.caller.user)
        self.set_status(HTTPStatus.NO_CONTENT)
        self.finish()

    async def get(self, job_id: str) -> None:
        job = await self.find(job_id)
        wait = self.get_query_argument("wait", None)
        if wait not in (None, "final"):
            raise BadRequest(f"wait: {wait!r} cannot be waited for.", field="wait", hint="Use wait=final.")
        if wait == "final":
            job = await self._when_final(job, self.number("timeout", LONGEST_WAIT_S, most=LONGEST_WAIT_S))
        elif job.phase is Phase.QUEUED:
            await self.desk.foresight.renewed(SHOW_PATIENCE_S)
        views = await self.views_now()
        if views.knows_no_more(job):
            job = await self.find(job_id)
        self.answer(views.job(job))

    async def _when_final(self, job: Job, timeout_s: float) -> Job:
        engine = self.desk.engine
        async with self.desk.stream():
            with anyio.move_on_after(timeout_s):
                while not job.phase.final and not self.desk.closing.is_set():
                    changed = engine.watch(job.id)
                    try:
                        job = await self.find(job.id)
                        if not job.phase.final:
                            await changed.wait()
                    finally:
                        engine.unwatch(job.id, changed)
        return await self.find(job.id)


class SpecHandler(OfJob):
    """GET jobs/ID/spec: what was submitted, without the captured values."""

    async def get(self, job_id: str) -> None:
        job = await self.find(job_id)
        work = await anyio.to_thread.run_sync(self.desk.engine.store.work, job.id)
        if work is None:
            raise UnknownJob(job_id)
        self.answer(spec_of(job, work))


class GpuHistoryHandler(Handler):
    """GET gpus/history: what the cards showed in the last quarter of an hour, after ``since``."""

    def get(self) -> None:
        since = float(self.number("since", 0))
        points = [
            wire.GpuPoint(at=seen.at, uuid=uuid, used_mib=seen.used_mib, utilization_pct=seen.utilization_pct)
            for uuid, seen in self.desk.history.of_cards(since)
        ]
        points.sort(key=lambda point: point.at)
        self.answer(wire.GpuHistory(items=points, next_cursor=None))


class MemoryHandler(OfJob):
    """GET jobs/ID/memory: what the job used over its life."""

    async def get(self, job_id: str) -> None:
        job = await self.find(job_id)
        points = await self.desk.history.of_job(job.id, self.read)
        items = [wire.MemoryPoint(at=at, used_mib=used) for at, used in points]
        self.answer(wire.MemoryCurve(items=items, next_cursor=None))


class TimelineHandler(OfJob):
    """GET jobs/ID/timeline: who held what before an attempt ran out of GPU memory."""

    async def get(self, job_id: str) -> None:
        job = await self.find(job_id)
        rows = await self.desk.history.timeline(job.id, self.attempt_of(job), self.read)
        try:
            items = msgspec.convert(rows, list[wire.TimelinePoint])
        except msgspec.ValidationError:  # the file lies in the user's folder and is not what was left there
            items = []
        self.answer(wire.Timeline(items=items, next_cursor=None))


class JobEventsHandler(OfJob):
    """GET jobs/ID/events: what happened to the job, oldest first."""

    async def get(self, job_id: str) -> None:
        job = await self.find(job_id)
        after, limit = int(self.number("cursor", 0)), int(self.number("limit", 1000, most=1000))
        store = self.desk.engine.store
        found = await anyio.to_thread.run_sync(lambda: store.events_of(job.id, after=after, limit=limit + 1))
        items = [wire.JobEvent(seq=one.seq, at=one.at, kind=one.kind, detail=one.detail) for one in found[:limit]]
        cursor = str(items[-1].seq) if len(found) > limit and items else None
        self.answer(wire.JobEvents(items=items, next_cursor=cursor))


class MetricsHandler(Handler):
    """GET metrics: the machine as Prometheus reads it."""

    async def get(self) -> None:
        engine, views = self.desk.engine, self.views()
        machine = Machine(
            views.state,
            views.now,
            self.desk.card_frames.of(views),
            views.alerts(),
            self.desk.counts,
            simulated=engine.gpus.simulated,
            writable=engine.store_cause is None,
        )
        text = await anyio.to_thread.run_sync(exposition, machine)
        self.set_header("Content-Type", MEDIA)
        self.finish(text)


class OpenApiHandler(Handler):
    """GET openapi.json: this interface, for programs."""

    def get(self) -> None:
        self.set_header("Content-Type", "application/json")
        self.finish(document())


class NothingHandler(Handler):
    """Every other address."""

    def admit(self) -> None:
        raise HTTPError(HTTPStatus.NOT_FOUND)


_ID = r"([^/]+)"
PATHS: list[tuple[str, type[Handler]]] = [
    ("health", HealthHandler),
    ("gpus", GpusHandler),
    ("gpus/history", GpuHistoryHandler),
    ("jobs", JobsHandler),
    *ACTIONS,
    (f"jobs/{_ID}", JobHandler),
    (f"jobs/{_ID}/log", LogHandler),
    (f"jobs/{_ID}/outputs", OutputsHandler),
    (f"jobs/{_ID}/result/{_ID}", ResultHandler),
    (f"jobs/{_ID}/spec", SpecHandler),
    (f"jobs/{_ID}/memory", MemoryHandler),
    (f"jobs/{_ID}/timeline", TimelineHandler),
    (f"jobs/{_ID}/events", JobEventsHandler),
    ("alerts", AlertsHandler),
    ("reservations", ReservationsHandler),
    (f"reservations/{_ID}", ReservationHandler),
    ("admin/quarantine", QuarantineHandler),
    ("admin/drain", DrainHandler),
    ("admin/resume", ResumeHandler),
    ("limits", LimitsHandler),
    ("admin/limits", AdminLimitsHandler),
    ("admin/report", ReportHandler),
    ("admin/events", LogOfEventsHandler),
    ("events", EventsHandler),
    ("metrics", MetricsHandler),
    ("openapi.json", OpenApiHandler),
]


def _causes(engine: Engine) -> list[str]:
    """What is wrong, one sentence each; a card that fails with all others is not named again."""
    fault = engine.gpus.fault
    drain = engine.state.operations.drain
    stopped = None if drain is None else f"{drain.by} has drained this machine: {drain.cause}."
    told = [cause for cause in (engine.store_cause, fault, stopped, policy_failed(engine.state)) if cause]
    ill = [gpu for gpu in engine.state.gpus.values() if gpu.health_cause and gpu.health_cause not in (fault or "")]
    return told + [f"GPU {gpu.index} {gpu.name} is {gpu.health}: {gpu.health_cause}." for gpu in ill]


def _say_nothing(handler: Any) -> None:
    """Requests are not logged: a line for each would bury what matters."""


def routes(desk: Desk, prefix: str = "") -> Application:
    """The host's application; the same over the unix socket and, for a Hub service, over TCP.

    prefix  what may come before its paths: a Hub's proxy leaves the service's own address in them.
    """
    named = {"desk": desk}
    base = rf"(?:{re.escape(prefix)})?{PREFIX}"
    return Application(
        [(rf"{base}/{path}", handler, named) for path, handler in PATHS],
        default_handler_class=NothingHandler,
        default_handler_args=named,
        log_function=_say_nothing,
    )
