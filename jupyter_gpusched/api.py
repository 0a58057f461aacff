"""The host's HTTP interface: Tornado handlers over the unix socket.

Owns who the caller is (the kernel's word on the peer of the socket, never the request's),
how errors become statuses, and the paths. It asks engine and admission and decides nothing.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from tornado.iostream import StreamClosedError
from tornado.web import Application, HTTPError, RequestHandler

from . import wire
from .admission import Admission
from .core.model import (
    BadRequest,
    GpuSchedError,
    IllegalTransition,
    Job,
    NotAllowed,
    Phase,
    Unavailable,
    UnknownJob,
)
from .core.quantities import parse_seconds
from .engine import Engine
from .gpus import parse_simulation
from .launch import attempt as files
from .places import API, HostRecord
from .ports import DuplicateKey, Recorded
from .views import Views
from .wire import PREFIX

LONGEST_WAIT_S = 30.0
LARGEST_CHUNK = 8 * 2**20


class Conflict(GpuSchedError):
    """The client's idea of this host is wrong (other simulation, other API)."""

    code = "simulation_mismatch"


STATUS: dict[type[GpuSchedError], HTTPStatus] = {
    BadRequest: HTTPStatus.UNPROCESSABLE_ENTITY,
    DuplicateKey: HTTPStatus.CONFLICT,
    UnknownJob: HTTPStatus.NOT_FOUND,
    NotAllowed: HTTPStatus.FORBIDDEN,
    Conflict: HTTPStatus.CONFLICT,
    IllegalTransition: HTTPStatus.CONFLICT,
    Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""The only place where an error becomes an HTTP status."""


@dataclass(frozen=True)
class Caller:
    """Who asks, as the kernel says."""

    user: str
    uid: int
    home: str


@dataclass
class Desk:
    """What the handlers work with, and when somebody last came."""

    engine: Engine
    admission: Admission
    record: HostRecord
    state: Path
    closing: anyio.Event = field(default_factory=anyio.Event)
    last_asked: float = field(default_factory=time.monotonic)
    streams: int = 0

    def idle_for(self) -> float:
        """Seconds without a live job, a request or an open stream."""
        if self.streams or self.engine.state.jobs:
            self.last_asked = time.monotonic()
        return time.monotonic() - self.last_asked

    @asynccontextmanager
    async def stream(self) -> AsyncIterator[None]:
        """A long answer; the host counts as used while it lasts."""
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1
            self.last_asked = time.monotonic()


class Handler(RequestHandler):
    """What all answers share: the caller, JSON in and out, errors with what to do."""

    desk: Desk

    def initialize(self, desk: Desk) -> None:
        self.desk = desk

    def prepare(self) -> None:
        self.desk.last_asked = time.monotonic()
        if self.caller.uid != os.geteuid():
            raise NotAllowed(
                "This host works for another user.", hint="Start your own, or ask the administrator for a system service."
            )
        _check_simulation(self.request.headers.get("X-Gpusched-Simulate"), self.desk.record)

    @cached_property
    def caller(self) -> Caller:
        """The process at the other end of the socket, by its credentials at connect time."""
        peer: socket.socket = self.request.connection.stream.socket  # type: ignore[union-attr]
        _pid, uid, _gid = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return caller_of(uid)

    def views(self) -> Views:
        engine = self.desk.engine
        return Views.of(
            engine.state, user=self.caller.user, simulated=engine.gpus.simulated, now=engine.clock()
        )

    def answer(self, body: object, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(msgspec.json.encode(body))

    def body(self) -> Any:
        try:
            return json.loads(self.request.body or b"{}")
        except ValueError as error:
            raise BadRequest(f"The request is not JSON: {error}.") from None

    def number(self, name: str, default: float | None = None, *, most: float = 2**62) -> Any:
        """A query argument that is a count; refused by name when it is not."""
        text = self.get_query_argument(name, None)
        if text is None:
            return default
        if not re.fullmatch(r"\d{1,18}(\.\d{1,9})?", text):
            raise BadRequest(f"{name}: {text!r} is not a number.", field=name)
        value = float(text) if "." in text else int(text)
        return min(value, most)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs.get("exc_info", (None, None, None))[1]
        self.set_header("Content-Type", "application/json")
        if isinstance(error, GpuSchedError):
            status = next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), HTTPStatus.BAD_REQUEST)
            detail = wire.ErrorDetail(code=error.code, message=error.message, field=error.field, hint=error.hint)
        else:
            status = HTTPStatus(status_code)
            detail = wire.ErrorDetail(code=_code_of(status), message=_message_of(status, error))
        self.set_status(status)
        self.finish(msgspec.json.encode(wire.ErrorBody(error=detail)))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        if not isinstance(value, (GpuSchedError, StreamClosedError)):
            super().log_exception(typ, value, tb)


def caller_of(uid: int) -> Caller:
    try:
        entry = pwd.getpwuid(uid)
        return Caller(entry.pw_name, uid, entry.pw_dir)
    except KeyError:  # a container without a passwd entry
        return Caller(str(uid), uid, "/")


def _check_simulation(asked: str | None, record: HostRecord) -> None:
    if asked is None or (record.simulated and parse_simulation(asked) == parse_simulation(record.simulated)):
        return
    has = f"simulates {record.simulated}" if record.simulated else "does not simulate"
    raise Conflict(
        f"GPUSCHED_SIMULATE asks for {asked}, but the host (pid {record.pid}) {has}.",
        hint="Simulation is fixed when a host starts: stop that host, or use another GPUSCHED_HOME.",
    )


def _code_of(status: HTTPStatus) -> str:
    return "internal" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else status.phrase.lower().replace(" ", "_")


def _message_of(status: HTTPStatus, error: BaseException | None) -> str:
    if isinstance(error, HTTPError) and error.log_message:
        return str(error.log_message)
    if status is HTTPStatus.NOT_FOUND:
        return "There is nothing at this address."
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "The host failed to answer; its log has the details."
    return f"{status.phrase}."


class HealthHandler(Handler):
    """GET health: is there a host, which one, and is anything wrong."""

    def get(self) -> None:
        desk, record = self.desk, self.desk.record
        causes = [cause for cause in (desk.engine.store_cause,) if cause]
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
            )
        )


class GpusHandler(Handler):
    """GET gpus: every card with its figures and holders."""

    def get(self) -> None:
        self.answer({"items": self.views().gpus(), "next_cursor": None})


class JobsHandler(Handler):
    """POST jobs: queue one or a batch. GET jobs: the caller's, newest first."""

    async def post(self) -> None:
        body = self.body()
        batch = isinstance(body, dict) and "jobs" in body
        raws = body["jobs"] if batch else [body]
        if batch and (not isinstance(raws, list) or len(body) != 1):
            raise BadRequest('A batch is {"jobs": [...]} and nothing else.', field="jobs")
        caller = self.caller
        ids = await self.desk.admission.submit(raws, owner=caller.user, home=caller.home)
        self.answer({"ids": ids} if batch else {"id": ids[0]}, HTTPStatus.CREATED)

    async def get(self) -> None:
        phase = self.get_query_argument("phase", None)
        if phase is not None and phase not in {known.value for known in Phase}:
            raise BadRequest(
                f"phase: there is no phase {phase!r}.",
                field="phase",
                hint="Known: " + ", ".join(known.value for known in Phase) + ".",
            )
        limit = int(self.number("limit", 100, most=1000))
        user = self.get_query_argument("user", self.caller.user)
        jobs = await self._page(user, phase, limit) if user == self.caller.user and limit else []
        views = self.views()
        more = len(jobs) > limit
        self.answer(
            {
                "items": [views.job(job) for job in jobs[:limit]],
                "next_cursor": f"{jobs[limit - 1].submitted_at!r}~{jobs[limit - 1].id}" if more else None,
            }
        )

    async def _page(self, user: str, phase: str | None, limit: int) -> list[Job]:
        before = _read_cursor(self.get_query_argument("cursor", None))
        name = self.get_query_argument("name", None)
        return await anyio.to_thread.run_sync(
            lambda: self.desk.engine.store.jobs(owner=user, phase=phase, name=name, limit=limit + 1, before=before)
        )


def _read_cursor(text: str | None) -> tuple[float, str] | None:
    if text is None:
        return None
    at, _, job_id = text.partition("~")
    try:
        return float(at), job_id
    except ValueError:
        raise BadRequest("cursor: it is not one that this host gave.", field="cursor") from None


class OfJob(Handler):
    """Requests about one job of the caller's."""

    async def find(self, job_id: str) -> Job:
        return await self.desk.engine.job(job_id, self.caller.user)

    def attempt_of(self, job: Job) -> int:
        number = self.number("attempt", job.attempt)
        if number != job.attempt and number not in {attempt.number for attempt in job.attempts}:
            raise BadRequest(f"attempt: job {job.id} has no attempt {number}.", field="attempt")
        return int(number)


class JobHandler(OfJob):
    """GET jobs/ID, with ``wait=final`` only when it is final or after ``timeout`` seconds."""

    async def get(self, job_id: str) -> None:
        job = await self.find(job_id)
        if self.get_query_argument("wait", None) == "final":
            job = await self._when_final(job, self.number("timeout", LONGEST_WAIT_S, most=LONGEST_WAIT_S))
        self.answer(self.views().job(job))

    async def _when_final(self, job: Job, timeout_s: float) -> Job:
        engine = self.desk.engine
        async with self.desk.stream():
            with anyio.move_on_after(timeout_s):
                while not job.phase.final and not self.desk.closing.is_set():
                    changed = engine.watch(job.id)
                    try:
                        job = await self.find(job.id)
                        if not job.phase.final:
                            await _first_of(changed.wait(), self.desk.closing.wait())
                    finally:
                        engine.unwatch(job.id, changed)
        return await self.find(job.id)


async def _first_of(*waits: Awaitable[None]) -> None:
    async with anyio.create_task_group() as tasks:

        async def one(wait: Awaitable[None]) -> None:
            await wait
            tasks.cancel_scope.cancel()

        for wait in waits:
            tasks.start_soon(one, wait)


class CancelHandler(OfJob):
    """POST jobs/ID/cancel: answers with the job's view as soon as the wish is on disk."""

    async def post(self, job_id: str) -> None:
        job = await self.find(job_id)
        body = self.body()
        if not isinstance(body, dict) or set(body) - {"grace"}:
            raise BadRequest('Cancel takes {"grace": "2s"} or nothing.', field="grace")
        grace_s = None
        if body.get("grace") is not None:
            try:
                grace_s = parse_seconds(body["grace"], zero=True)
            except ValueError as error:
                raise BadRequest(f"grace: {error}.", field="grace") from None
        await self.desk.engine.cancel(job, by=self.caller.user, grace_s=grace_s)
        self.answer(self.views().job(await self.find(job_id)))


class LogHandler(OfJob):
    """GET jobs/ID/log: the bytes that an attempt wrote, from ``offset``."""

    async def get(self, job_id: str) -> None:
        job = await self.find(job_id)
        number, folder = self.attempt_of(job), self.desk.engine.folder(job_id)
        offset, limit = int(self.number("offset", 0)), int(self.number("limit", LARGEST_CHUNK, most=LARGEST_CHUNK))
        data = await anyio.to_thread.run_sync(files.read_log, folder, number, offset, limit)
        self.set_header("Content-Type", "application/octet-stream")
        self.set_header("X-Gpusched-Log-Size", str(files.log_size(folder, number)))
        self.finish(data)


class OutputsHandler(OfJob):
    """GET jobs/ID/outputs: nbformat outputs from number ``after`` on."""

    async def get(self, job_id: str) -> None:
        job = await self.find(job_id)
        number, folder = self.attempt_of(job), self.desk.engine.folder(job_id)
        after = int(self.number("after", 0))
        final = job.phase.final or number != job.attempt
        items, following = await anyio.to_thread.run_sync(
            lambda: files.outputs(folder, number, after, final=final)
        )
        self.answer({"items": items, "next": following, "final": final})


class ResultHandler(OfJob):
    """GET jobs/ID/result/NAME: the pickled value that the job left under this name."""

    async def get(self, job_id: str, name: str) -> None:
        job = await self.find(job_id)
        data = await anyio.to_thread.run_sync(files.read_result, self.desk.engine.folder(job.id), name)
        if data is None:
            raise UnknownResult(job.id, name)
        self.set_header("Content-Type", "application/octet-stream")
        self.finish(data)


class UnknownResult(UnknownJob):
    code = "unknown_result"

    def __init__(self, job_id: str, name: str) -> None:
        GpuSchedError.__init__(
            self, f"Job {job_id} left no result {name!r}.", field="name", hint="Ask for results with `--out NAME`."
        )


class SpecHandler(OfJob):
    """GET jobs/ID/spec: what was submitted, without the captured values."""

    async def get(self, job_id: str) -> None:
        job = await self.find(job_id)
        work = await anyio.to_thread.run_sync(self.desk.engine.store.work, job_id)
        self.answer(wire.spec_of(job, work) if work is not None else None)


class EventsHandler(Handler):
    """GET events: NDJSON. Job events come from the journal, so a slow reader costs nothing and
    a reconnect with ``after`` misses nothing; of GPU frames only the newest is ever sent."""

    async def get(self) -> None:
        self.set_header("Content-Type", "application/x-ndjson")
        engine = self.desk.engine
        after = self.number("after")
        async with self.desk.stream():
            if after is None:
                after = engine.last_seq
                jobs = [job for job in engine.state.jobs.values() if job.owner == self.caller.user]
                views = self.views()
                await self._send(
                    {"seq": after, "type": "snapshot", "jobs": [views.job(job) for job in jobs], "gpus": views.gpus()}
                )
            await self._follow(int(after))

    async def _follow(self, after: int) -> None:
        engine, gpus = self.desk.engine, b""
        while not self.desk.closing.is_set():
            changed = engine.watch(None)
            try:
                after = await self._send_after(after)
                frame = msgspec.json.encode(self.views().gpus())
                if frame != gpus:
                    gpus = frame
                    await self._send({"seq": after, "type": "gpus", "gpus": msgspec.Raw(frame)})
                await _first_of(changed.wait(), self.desk.closing.wait())
            except StreamClosedError:
                return
            finally:
                engine.unwatch(None, changed)

    async def _send_after(self, after: int) -> int:
        while records := await anyio.to_thread.run_sync(
            lambda cursor: self.desk.engine.store.events(after=cursor, limit=500), after
        ):
            views = self.views()
            for record in records:
                if record.job.owner == self.caller.user:
                    await self._send(_job_frame(record, views))
            after = records[-1].seq
        return after

    async def _send(self, frame: dict[str, Any]) -> None:
        self.write(msgspec.json.encode(frame) + b"\n")
        await self.flush()


def _job_frame(record: Recorded, views: Views) -> dict[str, Any]:
    return {"seq": record.seq, "type": "job", "event": record.kind, "at": record.at, "job": views.past(record.job)}


class NothingHandler(Handler):
    """Every other address."""

    def prepare(self) -> None:
        super().prepare()
        raise HTTPError(HTTPStatus.NOT_FOUND)


_ID = r"([^/]+)"
PATHS: list[tuple[str, type[Handler]]] = [
    ("health", HealthHandler),
    ("gpus", GpusHandler),
    ("jobs", JobsHandler),
    (f"jobs/{_ID}", JobHandler),
    (f"jobs/{_ID}/cancel", CancelHandler),
    (f"jobs/{_ID}/log", LogHandler),
    (f"jobs/{_ID}/outputs", OutputsHandler),
    (f"jobs/{_ID}/result/{_ID}", ResultHandler),
    (f"jobs/{_ID}/spec", SpecHandler),
    ("events", EventsHandler),
]


def routes(desk: Desk) -> Application:
    """The host's application; the same over the unix socket and, later, for a Hub service over TCP."""
    named = {"desk": desk}
    return Application(
        [(rf"{PREFIX}/{path}", handler, named) for path, handler in PATHS],
        default_handler_class=NothingHandler,
        default_handler_args=named,
        log_function=lambda handler: None,
    )
