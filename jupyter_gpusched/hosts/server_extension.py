"""The Jupyter server extension: hosts on a thread of its own when nobody else does, and relays.

The thread keeps an event loop apart from the server's, so that a busy server never delays
the queue and a scheduling pass never delays a notebook. The handlers check login,
authorisation and XSRF, then pass requests on to whoever hosts; they never schedule.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import anyio
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.extension.application import ExtensionApp
from tornado import web
from tornado.httpclient import AsyncHTTPClient, HTTPRequest, HTTPResponse
from tornado.iostream import StreamClosedError

from jupyter_gpusched.find_host import start_daemon
from jupyter_gpusched.places import state_folder
from jupyter_gpusched.settings import GpuSched
from jupyter_gpusched.wire import PREFIX

from .activity import ActivityReport
from .host_thread import HostThread
from .owner import refuse_others
from .socket import Feed, StreamHandler
from .upstream import HostLost, OwnHost, Upstream, answer, upstream_of

log = logging.getLogger(__name__)

_STREAM_BYTES = 64 * 1024
"""What the server takes in of a stream before the browser has taken it: a slow browser slows the host's sending."""

_HINTS = {403: "Send `Authorization: token ...` with this server's token; browsers need its login and XSRF cookie."}


class RelayHandler(APIHandler):
    """Passes a request on to the host, as the owner of this server."""

    auth_resource = "gpusched"

    def initialize(self, client: AsyncHTTPClient, host: Upstream) -> None:
        self._client = client
        self._host = host
        self._stream: asyncio.Task[None] | None = None
        self._begun = False
        self._gone = False

    @web.authenticated
    @authorized
    async def get(self, path: str) -> None:
        if path == "events" and (self.get_query_argument("after", None) or "0").isdecimal():
            await self._relay_events()
        else:
            await self._relay()

    @web.authenticated
    @authorized
    async def post(self, _path: str) -> None:
        await self._relay()

    @web.authenticated
    @authorized
    async def patch(self, _path: str) -> None:
        await self._relay()

    @web.authenticated
    @authorized
    async def delete(self, _path: str) -> None:
        await self._relay()

    @web.authenticated
    @authorized
    async def put(self, _path: str) -> None:
        await self._relay()

    async def _relay_events(self) -> None:
        """An endless answer: no faster than the browser takes it, and ended at both ends when it leaves."""
        refuse_others(self)
        query = f"?{self.request.query}" if self.request.query else ""
        self._stream = asyncio.create_task(self._pass_on(f"events{query}"))
        with suppress(asyncio.CancelledError):
            await self._stream

    async def _pass_on(self, target: str) -> None:
        try:
            async with answer(self._host, target, limit=_STREAM_BYTES) as body:
                self.set_header("Content-Type", "application/x-ndjson")
                self._begun = True
                await self.flush()
                while data := await body.read(_STREAM_BYTES):
                    self.write(data)
                    await self.flush()
        except HostLost:
            if not self._gone:
                self._no_host()

    async def _relay(self) -> None:
        refuse_others(self)
        has_body = self.request.method in ("POST", "PATCH", "PUT")
        query = f"?{self.request.query}" if self.request.query else ""
        as_sent = self.request.path.partition(f"{PREFIX}/")[2]  # ``path`` is decoded: a %2F in it would be a slash
        request = HTTPRequest(
            f"{self._host.url}{PREFIX}/{as_sent}{query}",
            method=self.request.method,
            body=self.request.body if has_body else None,
            headers={"Content-Type": "application/json", **self._host.headers},
            header_callback=self._header,
            streaming_callback=self._chunk,
            request_timeout=0,
            follow_redirects=False,  # the token is for this host alone
            decompress_response=False,
        )
        try:
            response: HTTPResponse | None = await self._client.fetch(request, raise_error=False)
        except (OSError, StreamClosedError):
            response = None
        if self._gone:
            return
        if response is None or response.code == 599:
            self._no_host()
        else:
            self.set_status(response.code)
            # Jupyter's handlers would say JSON of an answer without a body.
            self.finish(set_content_type=self._headers.get("Content-Type", "application/json"))

    def _header(self, line: str) -> None:
        if line.startswith("HTTP/"):
            self.set_status(int(line.split()[1]))
        name, found, value = line.partition(":")
        if found and name.lower() in (
            "content-type",
            "x-gpusched-log-size",
            "x-gpusched-log-next",
            "allow",
            "retry-after",
        ):
            self.set_header(name, value.strip())

    def _chunk(self, data: bytes) -> None:
        if self._gone:
            return  # the host has its answer in memory anyway: what is left of it is dropped without a word
        self._begun = True
        self.write(data)
        self.flush()

    def on_connection_close(self) -> None:
        self._gone = True
        if self._stream is not None:
            self._stream.cancel()
        super().on_connection_close()

    def _no_host(self) -> None:
        if self._begun:
            return
        self.set_status(HTTPStatus.SERVICE_UNAVAILABLE)
        self.set_header("Content-Type", "application/json")
        message, hint = self._host.absence
        detail = {"code": "no_host", "message": message, "field": None, "hint": hint}
        self.finish(json.dumps({"error": detail}))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """The server's own refusals, in the form of the host's, with what Jupyter's clients look for beside it."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        phrase = HTTPStatus(status_code).phrase
        message = getattr(error, "log_message", None) or f"{phrase}."
        code = "not_allowed" if status_code == HTTPStatus.FORBIDDEN else phrase.lower().replace(" ", "_")
        detail = {"code": code, "message": message, "field": None, "hint": _HINTS.get(status_code)}
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps({"error": detail, "message": message, "reason": getattr(error, "reason", None)}))


class GpuSchedExtension(ExtensionApp):
    """jupyter-gpusched in a Jupyter server."""

    name = "jupyter_gpusched"
    classes = [GpuSched]  # noqa: RUF012  (traitlets' way)
    load_other_extensions = True

    def initialize_settings(self) -> None:
        self._state = state_folder()
        self._config = GpuSched(parent=self)
        self._say_where_files_lie()
        self._upstream = upstream_of(self._state)
        self._host = HostThread(self._state, self._config) if isinstance(self._upstream, OwnHost) else None
        if self._host is not None:
            self._host.start()

    def initialize_handlers(self) -> None:
        host = self._upstream
        self._feed = Feed(host)
        self._activity: ActivityReport | None = None
        if self._config.report_activity and self._host is not None:
            assert self.serverapp is not None
            times = self.serverapp.web_app.settings["last_activity_times"]
            self._activity = ActivityReport(host, times, interval_s=self._config.activity_interval_s)
            self._activity.start()
        self.handlers.append((rf"{PREFIX}/stream", StreamHandler, {"feed": self._feed}))
        self.handlers.append((rf"{PREFIX}/(.*)", RelayHandler, {"client": host.http(), "host": host}))

    def _say_where_files_lie(self) -> None:
        """To the page, which names files from the server's root: a job needs their place on this machine.

        A server whose files lie in no folder (in a database, say) says nothing.
        """
        root = getattr(self.serverapp.contents_manager, "root_dir", None) if self.serverapp else None
        if root and Path(root).is_absolute() and self.serverapp is not None:
            page = self.serverapp.web_app.settings.setdefault("page_config_data", {})
            page["gpuschedRoot"] = str(Path(root))

    async def stop_extension(self) -> None:
        """Stop hosting; unfinished jobs are left in the care of the daemon."""
        self._feed.stop()
        if self._activity is not None:
            self._activity.stop()
        if self._host is None:
            return
        await anyio.to_thread.run_sync(self._host.stop)
        if self._host.left_jobs and os.environ.get("GPUSCHED_AUTOSTART") != "0":
            simulate = self._config.simulation()
            start_daemon(os.environ | ({"GPUSCHED_SIMULATE": simulate} if simulate else {}))
