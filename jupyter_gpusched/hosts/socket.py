"""The browser's WebSocket: what happens on the host, read once per server, for every open tab.

A tab gets a snapshot and then every event after it; of GPU and queue figures only the newest,
so that a slow tab has no backlog. One that comes back names the last event it has seen, and
gets what it missed. It reads and never acts: a tab acts by REST.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from jupyter_gpusched.core.model import FINAL

from .owner import refuse_others
from .upstream import HostLost, Upstream, answer

log = logging.getLogger(__name__)

MOST_PENDING = 1000
"""Job frames that may wait for a tab; one further behind is given a snapshot instead."""

ENDED_KEPT = 50
PAGE = 1000

HEARTBEAT_S = 15.0
"""After so long without a frame a tab is told that nothing is new, so that it notices a dead connection."""

_SILENCE_S = 30.0
_PAUSES_S = (0.05, 0.2, 0.5)
_LONGEST_PAUSE_S = 1.0
_QUEUE_EVERY_S = 1.0
_TRIES_AT_QUEUE = 3
_QUEUE_SHARE = 0.05
"""Most of the time that asking after the queue may take: a long queue is asked after less often."""

_FINAL = frozenset(phase.value for phase in FINAL)

Frame = dict[str, Any]


@dataclass
class Picture:
    """What a tab that comes now is shown: kept up to date by the frames that pass."""

    seq: int | None = None
    connected: bool = False
    cause: str | None = None  # why not, where there is more to say than that it will come back
    jobs: dict[str, Frame] = field(default_factory=dict)
    gpus: list[Frame] = field(default_factory=list)
    alerts: dict[str, Frame] = field(default_factory=dict)

    def take(self, frame: Frame) -> None:
        self.seq = frame.get("seq", self.seq)
        if frame["type"] == "snapshot":
            self.jobs = {job["id"]: job for job in frame["jobs"]}
            self.gpus = frame["gpus"]
            self.alerts = {alert["id"]: alert for alert in frame.get("alerts", [])}
        elif frame["type"] == "alert":
            self.alerts.pop(frame["alert"]["id"], None)
            if frame["event"] != "resolved":
                self.alerts[frame["alert"]["id"]] = frame["alert"]
        elif frame["type"] == "gpus":
            self.gpus = frame["gpus"]
        elif frame["type"] == "job":
            self._take_job(frame["job"], deleted=frame.get("event") == "deleted")

    def _take_job(self, job: Frame, *, deleted: bool) -> None:
        self.jobs.pop(job["id"], None)  # the newest comes last
        if deleted:
            return
        self.jobs[job["id"]] = job
        ended = [known for known, view in self.jobs.items() if view["phase"] in _FINAL]
        for known in ended[:-ENDED_KEPT]:
            del self.jobs[known]

    def queued(self) -> bool:
        return any(view["phase"] == "queued" for view in self.jobs.values())

    def take_queue(self, views: list[Frame]) -> None:
        """Fresh words on waiting jobs; a job that has moved on since keeps its newer view."""
        for view in views:
            if self.jobs.get(view["id"], view)["phase"] == "queued":
                self.jobs[view["id"]] = view

    def status(self) -> str:
        return json.dumps({"type": "status", "connected": self.connected, "cause": self.cause})

    def snapshot(self) -> str:
        shown = {"seq": self.seq, "type": "snapshot", "jobs": list(self.jobs.values()), "gpus": self.gpus}
        return json.dumps(
            shown | {"alerts": list(self.alerts.values()), "connected": self.connected, "cause": self.cause}
        )


class Recent:
    """The events of late, for a tab that comes back: complete after ``since``."""

    def __init__(self, since: int) -> None:
        self._since = since
        self._frames: deque[tuple[int, str]] = deque()

    def add(self, seq: int, text: str) -> None:
        self._frames.append((seq, text))
        if len(self._frames) > MOST_PENDING:
            self._since = self._frames.popleft()[0]

    def after(self, seq: int) -> list[str] | None:
        """What came after this event; None when that is not known any more."""
        return [text for at, text in self._frames if at > seq] if seq >= self._since else None


_IN_ORDER = frozenset({"job", "alert"})
_NEWEST_ONLY = frozenset({"gpus", "queue", "status"})


class Tab:
    """What one browser tab has yet to be sent."""

    def __init__(self, send: Callable[[str], Awaitable[None]], picture: Picture) -> None:
        self._send = send
        self._picture = picture
        self._in_order: deque[str] = deque()
        self._newest: dict[str, str] = {}
        self._more = asyncio.Event()

    def put(self, kind: str, text: str) -> None:
        if kind in _NEWEST_ONLY or kind.startswith("outputs"):
            self._newest[kind] = text
        elif len(self._in_order) < MOST_PENDING:
            self._in_order.append(text)
        else:
            self.start_over()
        self._more.set()

    def start_over(self) -> None:
        """Forget what is pending; a snapshot says it all."""
        self._newest.clear()
        self._in_order.clear()
        self._in_order.append(self._picture.snapshot())
        self._more.set()

    async def run(self) -> None:
        """Send until the tab is gone, each frame when the one before has left."""
        with suppress(WebSocketClosedError):
            while True:
                try:
                    await asyncio.wait_for(self._more.wait(), HEARTBEAT_S)
                except asyncio.TimeoutError:
                    await self._send(self._picture.status())
                self._more.clear()
                while text := self._next():
                    await self._send(text)

    def _next(self) -> str | None:
        if self._in_order:
            return self._in_order.popleft()
        kind = next(iter(self._newest), None)
        return None if kind is None else self._newest.pop(kind)


class Feed:
    """Reads the host's events while any tab is open, and hands them to all of them."""

    def __init__(self, host: Upstream) -> None:
        self._host = host
        self._picture = Picture()
        self._tabs: set[Tab] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._queue_is_old = asyncio.Event()
        self._recent: Recent | None = None
        self._queue: str | None = None

    def join(self, send: Callable[[str], Awaitable[None]], after: int | None = None) -> Tab:
        """Take in a tab; ``after`` is the last event that it has seen, if it comes back."""
        if not self._tabs:
            self._begin()
        tab = Tab(send, self._picture)
        self._tabs.add(tab)
        seen = after is not None and self._picture.seq is not None and after <= self._picture.seq
        missed = self._recent.after(after) if seen and self._recent and after is not None else None
        if missed is not None:
            self._catch_up(tab, missed)
        elif self._picture.seq is not None:
            tab.start_over()
        return tab

    def _catch_up(self, tab: Tab, missed: list[str]) -> None:
        for text in missed:
            tab.put("job", text)
        tab.put("gpus", json.dumps({"type": "gpus", "gpus": self._picture.gpus}))
        if self._queue:
            tab.put("queue", self._queue)
        tab.put("status", self._picture.status())

    def leave(self, tab: Tab) -> None:
        self._tabs.discard(tab)
        if not self._tabs:
            self.stop()

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    def _begin(self) -> None:
        self._picture = Picture()
        self._recent = self._queue = None
        self._queue_is_old = asyncio.Event()
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._refresh_queue())]

    async def _read(self) -> None:
        """Follow the host, whoever it is, for as long as somebody looks."""
        tries = 0
        while True:
            try:
                async for line in self._lines():
                    tries = 0
                    self._pass_on(line)
            except HostLost as error:
                if self._picture.connected or not tries:
                    log.info("jupyter-gpusched: the host is lost (%s)", error)
                self._say_connected(False, error.told)
            await asyncio.sleep(_PAUSES_S[tries] if tries < len(_PAUSES_S) else _LONGEST_PAUSE_S)
            tries += 1

    async def _lines(self) -> Any:
        """The lines of one connection; ends by itself after a long silence, which is no loss."""
        after = "" if self._picture.seq is None else f"?after={self._picture.seq}"
        async with answer(self._host, f"events{after}") as body:
            self._say_connected(True)
            while True:
                try:
                    line = await asyncio.wait_for(body.readline(), _SILENCE_S)
                except asyncio.TimeoutError:
                    return
                if not line.endswith(b"\n"):
                    raise HostLost("it closed the stream of events")
                yield line

    def _pass_on(self, line: bytes) -> None:
        if not line.strip():  # it only says that the host is there
            return
        frame = json.loads(line)
        self._picture.take(frame)
        self._queue_is_old.set()
        if frame["type"] == "snapshot" or frame.get("event") == "deleted":
            self._recent = Recent(frame["seq"])
            for tab in self._tabs:
                tab.start_over()
        else:
            if frame["type"] in _IN_ORDER and self._recent:
                self._recent.add(frame["seq"], line.decode().rstrip("\n"))
            of_one_job = f" {frame['job_id']}" if frame["type"] == "outputs" else ""
            self._send_all(frame["type"] + of_one_job, line.decode().rstrip("\n"))

    def _say_connected(self, connected: bool, cause: str | None = None) -> None:
        picture = self._picture
        if (connected, cause) != (picture.connected, picture.cause) or picture.seq is None:
            picture.connected, picture.cause = connected, cause
            self._send_all("status", self._picture.status())

    def _send_all(self, kind: str, text: str) -> None:
        for tab in self._tabs:
            tab.put(kind, text)

    async def _refresh_queue(self) -> None:
        """What waiting jobs wait for changes without an event of their own: ask, at most once a second."""
        while True:
            await self._queue_is_old.wait()
            self._queue_is_old.clear()
            began = time.monotonic()
            if self._picture.queued():
                with suppress(HostLost, ValueError):
                    queued = await self._fresh_queue()
                    self._picture.take_queue(queued)
                    text = _queue_frame(queued)
                    if text != self._queue:
                        self._queue = text
                        self._send_all("queue", text)
            await asyncio.sleep(max(_QUEUE_EVERY_S, (time.monotonic() - began) / _QUEUE_SHARE))

    async def _fresh_queue(self) -> list[Frame]:
        """As it is after the last event that was passed on: an older one would put jobs back where they were."""
        for _ in range(_TRIES_AT_QUEUE):
            before = self._picture.seq
            queued = await self._queued()
            if self._picture.seq == before:
                break
        return queued

    async def _queued(self) -> list[Frame]:
        found: list[Frame] = []
        cursor = ""
        while True:
            async with answer(self._host, f"jobs?phase=queued&limit={PAGE}{cursor}") as body:
                page = json.loads(await body.read())
            found += page["items"]
            if page["next_cursor"] is None:
                return found
            cursor = f"&cursor={quote(page['next_cursor'])}"


def _queue_frame(queued: list[Frame]) -> str:
    """The words of many: thousands of jobs wait for a handful of things, so that each text is sent once."""
    texts: dict[str, int] = {}
    places = [
        (
            view["id"],
            view["position"],
            view["estimated_start"],
            None if view["waiting"] is None else texts.setdefault(view["waiting"], len(texts)),
            view["estimated_start_range"],
        )
        for view in queued
    ]
    return json.dumps({"type": "queue", "places": places, "waiting": list(texts)})


class StreamHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """``stream``: one per browser tab, for whoever may use this server."""

    auth_resource = "gpusched"

    def initialize(self, feed: Feed) -> None:
        self._feed = feed
        self._tab: Tab | None = None

    @ws_authenticated
    @authorized
    async def get(self, *args: Any, **kwargs: Any) -> None:
        refuse_others(self)
        await super().get(*args, **kwargs)

    def get_compression_options(self) -> dict[str, Any]:
        """As this server is told; by itself a little, which makes a thirtieth of what thousands of jobs have to say."""
        told: dict[str, Any] | None = self.settings.get("websocket_compression_options")
        return {"compression_level": 1, "mem_level": 5} if told is None else told

    def open(self, *args: str, **kwargs: str) -> None:
        super().open(*args, **kwargs)
        after = self.get_query_argument("after", "")
        self._tab = self._feed.join(self._write, int(after) if re.fullmatch(r"\d{1,18}", after) else None)
        self._sending = asyncio.create_task(self._tab.run())

    async def _write(self, text: str) -> None:
        await self.write_message(text)

    def on_message(self, message: str | bytes) -> None:
        """A tab has nothing to say here."""

    def on_close(self) -> None:
        if self._tab is not None:
            self._sending.cancel()
            self._feed.leave(self._tab)
        super().on_close()
