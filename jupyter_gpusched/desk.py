"""What every answer of the host shares: the caller, JSON, and errors that say what to do.

Who the caller is says the doorkeeper (``callers``), never the request itself.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, RequestHandler, stream_request_body

from . import wire
from .admission import LARGE, Admission
from .bodies import Bodies
from .callers import Caller, Doorkeeper, OwnerOnly
from .core.limits import Limits
from .core.model import (
    BadRequest,
    GpuSchedError,
    NotAllowed,
    Unauthorized,
)
from .engine import Engine
from .foresight import Foresight
from .frames import CardFrames
from .gpus import parse_simulation
from .growth import Growth
from .history import History
from .launch.means import Means
from .limits_file import read_limits
from .neighbours import Neighbours
from .pace import Pace
from .places import HostRecord
from .readers import Readers
from .refusals import STATUS, Conflict, GivesWay, MethodNotAllowed, TooLarge, TooManyRequests, TooMuchAtOnce
from .standings import Standings
from .tail import Tail
from .telemetry import Counts
from .views import Views

LARGEST_BODY = wire.LARGEST_PAYLOAD * 4 // 3 + 2**20
"""The largest payload in base64, and whatever else a submission may say."""

MOST_DROPPED = 16 * 2**20
"""Bytes that are taken in of whoever may not come in, so that the refusal is read; then the connection is closed."""
MOST_NESTED, MOST_VALUES = 2**20, 2**22
"""A request of more lists and objects, or of more values, is not decoded: all of the host would wait for it."""

KNOWN_S = 2.0
"""So old may be what is said of a job's progress, where many ask at once."""

ENDLESS = 2**50
"""No body is refused before it was read: a refusal in mid-sending reaches nobody."""


@dataclass
class Desk:
    """What the handlers work with, and when somebody last came."""

    engine: Engine
    admission: Admission
    record: HostRecord
    state: Path
    growth: Growth
    history: History
    means: Means
    doorkeeper: Doorkeeper
    foresight: Foresight
    limits_file: str = ""
    pace: Pace | None = None
    bodies: Bodies = field(default_factory=lambda: Bodies(LARGEST_BODY))
    closing: anyio.Event = field(default_factory=anyio.Event)
    gives_way: anyio.Event = field(default_factory=anyio.Event)
    last_asked: float = field(default_factory=time.monotonic)
    streams: int = 0
    tail: Tail = field(init=False)
    standings: Standings = field(default_factory=Standings)
    neighbours: Neighbours = field(default_factory=Neighbours)
    readers: Readers = field(default_factory=Readers)
    card_frames: CardFrames = field(default_factory=CardFrames)
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        self.tail = Tail(self.engine)
        self.engine.observers.append(self.counts.observe)

    @property
    def largest_body(self) -> int:
        return self.bodies.each

    def read_limits(self) -> Limits:
        """What the administrator lets users have, as the file says now. Raises ``BadLimits``."""
        return read_limits(self.limits_file)

    def unseen(self) -> str | None:
        """Whose promises on the cards this host cannot see; nobody's where it works for all, or on no real card."""
        alone = isinstance(self.doorkeeper, OwnerOnly) and not self.record.simulated and self.engine.state.gpus
        return self.neighbours.unseen() if alone else None

    def keep_pace(self, caller: Caller) -> None:
        """Raises ``TooManyRequests`` for somebody who asks faster than a service for several users answers."""
        if self.pace is not None and (after_s := self.pace.wait_s(caller.user)):
            raise TooManyRequests(caller.user, self.pace, after_s)

    def close(self) -> None:
        """Let the long answers end."""
        self.closing.set()
        self.engine.wake()

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


@stream_request_body
class Handler(RequestHandler):
    """What all answers share: the caller, JSON in and out, errors with what to do."""

    desk: Desk
    caller: Caller

    def initialize(self, desk: Desk) -> None:
        self.desk = desk
        self._body = bytearray()
        self._body_size = 0
        self._refused = self._stranger = self._crowded = self._read = self._hung_up = False

    @classmethod
    def methods(cls) -> list[str]:
        return [name.upper() for name in ("get", "post", "patch", "delete") if name in vars(cls)]

    async def prepare(self) -> None:
        """Comes before any of the body. Who is refused is told so once the body was taken in, and dropped.

        Until then nobody would listen. But of whoever may not come in, no large one is taken in.
        """
        if wire.LOOKS_ON not in self.request.headers:
            self.desk.last_asked = time.monotonic()
        try:
            self.caller = await self.desk.doorkeeper.caller(self.request)
            self.desk.keep_pace(self.caller)
            self.admit()
        except (GpuSchedError, HTTPError) as error:
            self._refused, refusal = True, error
            self._stranger = isinstance(error, (Unauthorized, NotAllowed))
            if self._stranger and self._announced() > MOST_DROPPED:
                raise

            def refuse(*_path: str) -> None:
                raise refusal

            setattr(self, str(self.request.method).lower(), refuse)

    def admit(self) -> None:
        """Raises for a request that is not to be answered, whatever it says."""
        if self.request.method not in self.methods():
            self._refuse_method()
        _check_simulation(self.request.headers.get("X-Gpusched-Simulate"), self.desk)

    def of_everybody(self) -> bool:
        """Whether a list or a stream is of everybody's jobs, as an administrator may ask for, not of the caller's."""
        asked = self.wants("all_users")
        if asked and not self.caller.admin:
            raise NotAllowed(
                "Only administrators see everybody's jobs.", field="all_users", hint="Leave it out to see your own."
            )
        return asked

    def wants(self, name: str) -> bool:
        """Whether this is asked for with a 1. Raises ``BadRequest`` for what is neither that nor a 0."""
        asked = self.get_query_argument(name, "0")
        if asked not in ("0", "1"):
            raise BadRequest(f"{name}: {asked!r} is neither 1 nor 0.", field=name)
        return asked == "1"

    def views(self) -> Views:
        engine = self.desk.engine
        return Views.of(
            engine.state,
            caller=self.caller,
            simulated=engine.gpus.simulated,
            now=engine.clock(),
            cause=engine.gpus.cause,
            halted=engine.store_cause,
            progress=self.desk.growth.progress(),
            starts=self.desk.foresight.start,
            standings=self.desk.standings.at,
        )

    async def views_now(self) -> Views:
        """As ``views``, knowing how far the running jobs are: open streams look all the time, else this one does."""
        active = [job for job in self.desk.engine.state.busy.values() if job.phase.active]
        if active and not self.desk.growth.seen_within(KNOWN_S):
            await self.desk.growth.look(active)
        return self.views()

    def answer(self, body: object, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(msgspec.json.encode(body))

    def _refuse_method(self) -> None:
        allowed = ", ".join(self.methods())
        raise MethodNotAllowed(f"{self.request.method} cannot be asked of this address.", hint=f"It answers {allowed}.")

    def data_received(self, chunk: bytes) -> None:
        """What is too large is taken in and dropped, so that whoever sends it gets to read the answer."""
        self._body_size += len(chunk)
        if self._stranger and self._body_size > MOST_DROPPED:
            self._hang_up()
        elif self._refused or self._crowded or max(self._body_size, self._announced()) > self.desk.largest_body:
            self._drop_body()
        elif self.desk.bodies.take(self.caller.user, len(chunk), of=self._body_size):
            self._body += chunk
        else:
            self._crowded = True
            self._drop_body()

    def _drop_body(self) -> None:
        if self._body:
            self.desk.bodies.give_back(self.caller.user, len(self._body))
            self._body = bytearray()

    def on_connection_close(self) -> None:
        if not self._read:
            self._hung_up = True
            self._drop_body()
        super().on_connection_close()

    def on_finish(self) -> None:
        self._drop_body()
        if self._stranger and self._announced() > MOST_DROPPED:
            self._hang_up()

    def _hang_up(self) -> None:
        self.request.connection.stream.close()  # type: ignore[union-attr]

    def _announced(self) -> float:
        """How many bytes are to come; 0 where that is not said."""
        announced = self.request.headers.get("Content-Length", "")
        return int(announced[:16]) if announced.isdecimal() else 0

    async def body(self) -> Any:
        """What was sent, as JSON; an empty object when nothing was. What is large is decoded beside the loop."""
        if self._hung_up:  # nobody waits for what half a request would mean
            raise HTTPError(HTTPStatus.BAD_REQUEST)
        self._read = True
        return await anyio.to_thread.run_sync(self._decoded) if len(self._body) > LARGE else self._decoded()

    def _decoded(self) -> Any:
        if self._body_size > self.desk.largest_body:
            most = self.desk.largest_body / 2**20
            raise TooLarge(
                f"The request has {self._body_size / 2**20:.1f} MiB; at most {most:.1f} MiB are read.",
                hint="Save large data to a file and read it in the job.",
            )
        if self._crowded:
            raise TooMuchAtOnce
        nested = self._body.count(b"[") + self._body.count(b"{")  # a payload, in base64, has none of these
        if nested > MOST_NESTED or self._body.count(b",") > MOST_VALUES:
            raise TooLarge(
                "The request has too many parts to be read.",
                hint="Submit fewer jobs at a time, and save large data to a file that the job reads.",
            )
        try:
            return msgspec.json.decode(self._body or b"{}")
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise BadRequest(f"The request is not JSON: {error}.") from None
        except RecursionError:
            raise BadRequest("The request is nested too deeply.") from None

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
            detail = wire.ErrorDetail(
                code=error.code, message=_text(error.message), field=_text(error.field), hint=_text(error.hint)
            )
        else:
            status = HTTPStatus(status_code)
            detail = wire.ErrorDetail(code=_code_of(status), message=_message_of(status, error))
        self.set_status(status)
        if isinstance(error, TooManyRequests):
            self.set_header("Retry-After", str(math.ceil(error.after_s)))
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.set_header("Allow", ", ".join(self.methods()))
        self.finish(msgspec.json.encode(wire.ErrorBody(error=detail)))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        if not isinstance(value, (GpuSchedError, StreamClosedError)):
            super().log_exception(typ, value, tb)


def _check_simulation(asked: str | None, desk: Desk) -> None:
    """Simulation is fixed for the life of a host; one that started by itself and has nothing to do ends instead."""
    record = desk.record
    if asked is None or (record.simulated and parse_simulation(asked) == parse_simulation(record.simulated)):
        return
    if record.kind == "daemon" and not desk.engine.state.jobs:
        desk.gives_way.set()
    has = f"simulates {record.simulated}" if record.simulated else "does not simulate"
    kind = GivesWay if desk.gives_way.is_set() else Conflict
    raise kind(
        f"GPUSCHED_SIMULATE asks for {asked}, but the host (pid {record.pid}) {has}.",
        hint=f"Simulation is fixed when a host starts: end that host (`kill {record.pid}`; its jobs go on), "
        "or use another GPUSCHED_HOME.",
    )


def _text(words: Any) -> Any:
    """Words of an error may quote what was sent, and that need not be text."""
    return words.encode(errors="replace").decode() if isinstance(words, str) else None


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
