"""Requests of a page that a test answers itself.

Playwright's own ``page.route`` switches off the browser's cache, and with it what V8 keeps of compiled scripts: every
load of JupyterLab would take half as long again. This asks the browser for the requests of our API alone.
"""

from __future__ import annotations

import base64
import json as _json
import re
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

OURS = "*/gpusched/api/v1/*"


class Request:
    """What the page asks for."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.url: str = told["url"]
        self.method: str = told["method"]
        self.headers: dict[str, str] = {name.lower(): value for name, value in told["headers"].items()}
        self.post_data: str | None = told.get("postData")


class Route:
    """A request that waits for its answer."""

    def __init__(self, session: Any, told: dict[str, Any], handlers: list[Handler]) -> None:
        self.request = Request(told["request"])
        self._session, self._id, self._handlers = session, told["requestId"], handlers

    def fulfill(self, *, status: int = 200, json: Any = None, body: str = "") -> None:  # named as Playwright names them
        text, kind = (body, "text/plain") if json is None else (_json.dumps(json), "application/json")
        headers = [{"name": "Content-Type", "value": kind}]
        encoded = base64.b64encode(text.encode()).decode()
        self._send("fulfillRequest", responseCode=status, responseHeaders=headers, body=encoded)

    def continue_(self, headers: dict[str, str]) -> None:
        """Let the server answer, with these headers instead of the page's."""
        self._send("continueRequest", headers=[{"name": name, "value": value} for name, value in headers.items()])

    def fallback(self) -> None:
        """Leave the answer to the next handler, and in the end to the server."""
        while self._handlers:
            pattern, handler = self._handlers.pop(0)
            if pattern.search(self.request.url):
                handler(self)
                return
        self._send("continueRequest")

    def _send(self, act: str, **more: Any) -> None:
        self._session.send(f"Fetch.{act}", {"requestId": self._id, **more})


Handler = tuple[re.Pattern[str], Callable[[Route], Any]]


class Routes:
    """The handlers of one page; the last that was added is asked first."""

    def __init__(self, page: Any) -> None:
        self._handlers: list[Handler] = []
        self._session = page.context.new_cdp_session(page)
        self._session.on("Fetch.requestPaused", self._ask)
        self._session.send("Fetch.enable", {"patterns": [{"urlPattern": OURS}]})

    def end(self) -> None:
        self._session.detach()

    def add(self, pattern: re.Pattern[str], handler: Callable[[Route], Any]) -> None:
        self._handlers.insert(0, (pattern, handler))

    def _ask(self, told: dict[str, Any]) -> None:
        Route(self._session, told, list(self._handlers)).fallback()


_ROUTES: WeakKeyDictionary[Any, Routes] = WeakKeyDictionary()


def routes(page: Any) -> Routes:
    """Those of a page of Playwright's."""
    if page not in _ROUTES:
        _ROUTES[page] = Routes(page)
    return _ROUTES[page]


def forget_routes(page: Any) -> None:
    """From now on, servers answer this page."""
    if page in _ROUTES:
        _ROUTES[page].end()
        del _ROUTES[page]
