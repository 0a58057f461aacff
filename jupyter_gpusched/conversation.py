"""A conversation with a host, whichever hosts: found again when it was restarted, borne with while it is replaced.

Every request may be repeated safely. Knows nothing of jobs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from .answers import LATER, accepted, check_api, decoded, good
from .core.model import BadRequest, GpuSchedError, Unavailable
from .find_host import HostUnreachable, find_host
from .hub_address import HubAddress
from .places import API
from .transport import Answer, ConnectionLost, ForeignSocket, Transport
from .wire import GIVES_WAY, PREFIX

PATIENCE_S = 45.0
"""How long a waiting call bears having no host: another one takes over within 30 s."""

_REACH_PAUSES_S = (0.02, 0.1, 0.3)
TAKEOVER_S = 8.0
"""So long a server that is ready to take over goes before us; it looks every 5 s, and at once when it can."""

Got = TypeVar("Got")


class Conversation:
    """Threads may share it. All calls raise ``GpuSchedError`` and its kin.

    start  whether a host is started where there is none.
    """

    def __init__(self, environ: Mapping[str, str], *, start: bool) -> None:
        simulate = environ.get("GPUSCHED_SIMULATE")
        self._environ = environ
        self._start = start
        self._headers = {"X-Gpusched-Api": str(API)} | ({"X-Gpusched-Simulate": simulate} if simulate else {})
        self._transport: Transport | None = None

    def begin(self) -> None:
        """Find the host. Raises ``HostUnreachable``, ``ApiMismatch``, or what the host says."""
        self._reach(start=self._start)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def get(self, path: str, **query: object) -> dict[str, Any]:
        return decoded(self.read(path, **query))

    def read(self, path: str, **query: object) -> bytes:
        target = _target(path, query)
        return self._twice(lambda host: accepted(host.request("GET", target)), start=self._start)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self.send("POST", path, body)

    def send(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        target, data = _target(path, {}), _encoded(body)
        return decoded(self._twice(lambda host: accepted(host.request(method, target, body=data)), start=self._start))

    def delete(self, path: str) -> None:
        target = _target(path, {})
        self._twice(lambda host: accepted(host.request("DELETE", target)), start=self._start)

    def events(self, after: int | None) -> Iterator[dict[str, Any]]:
        """Frames without end; goes on after a reconnect where it stopped. ``after``: the last ``seq`` already seen."""
        patience = _Patience()
        while True:
            try:
                for frame in self._frames(after):
                    patience = _Patience()
                    after = frame.get("seq", after)
                    yield frame
                patience.bear(_gone("it closed the stream of events"))
            except (HostUnreachable, Unavailable) as error:  # noqa: PERF203  each try is a try of its own
                patience.bear(error)

    def patient_read(self, path: str, silence_s: float, **query: object) -> bytes:
        return self.patient_ask(path, silence_s, **query).body

    def patient_ask(self, path: str, silence_s: float, **query: object) -> Answer:
        """Bears a host that is being replaced. Whoever takes over goes first; then one is started, if we may."""
        target, patience = _target(path, query), _Patience()
        while True:
            try:
                return self._twice(
                    lambda host: good(host.request("GET", target, timeout_s=silence_s)),
                    start=self._start and patience.tried_for() > TAKEOVER_S,
                )
            except (HostUnreachable, Unavailable) as error:  # noqa: PERF203  each try is a try of its own
                patience.bear(error)

    def _frames(self, after: int | None) -> Iterator[dict[str, Any]]:
        """The frames of one connection; ends with it."""
        host = self._transport or self._reach(start=False)
        try:
            for line in host.lines(_target("events", {"after": after})):
                if text := accepted(line).strip():
                    yield decoded(text)
        except (ConnectionLost, ForeignSocket, TimeoutError) as error:
            self._forget(host)
            raise _gone(str(error)) from error

    def _twice(self, ask: Callable[[Transport], Got], *, start: bool) -> Got:
        """Ask, and once more when the host was restarted since we last spoke to it."""
        with suppress(ConnectionLost):
            return self._once(ask, start=start)
        try:
            return self._once(ask, start=start)
        except ConnectionLost as error:
            raise _gone(str(error)) from error

    def _once(self, ask: Callable[[Transport], Got], *, start: bool) -> Got:
        host = self._transport or self._reach(start=start)
        try:
            return ask(host)
        except TimeoutError as error:
            raise Unavailable("The host does not answer.", hint=LATER) from error
        except (ConnectionLost, ForeignSocket) as error:
            self._forget(host)
            if isinstance(error, ForeignSocket):
                raise HostUnreachable(f"The host's socket is not to be trusted: {error}.", hint=LATER) from error
            raise

    def _reach(self, *, start: bool) -> Transport:
        """Find the host, and check once that we understand each other.

        An idle daemon that simulates other cards than we ask for ends when it is told so: then ours is started.
        """
        try:
            return self._find(start=start)
        except GpuSchedError as error:
            if error.code != GIVES_WAY or not start:
                raise
        patience = _Patience()
        while True:
            try:
                return self._find(start=start)
            except GpuSchedError as error:  # noqa: PERF203  each try is a try of its own
                if error.code != GIVES_WAY:
                    raise
                patience.bear(error)

    def _find(self, *, start: bool) -> Transport:
        """A host that is just dying still lives and listens for a moment: then look again."""
        for pause in _REACH_PAUSES_S:
            with suppress(ConnectionLost):
                return self._greet(find_host(self._environ, start=start))
            time.sleep(pause)
        try:
            return self._greet(find_host(self._environ, start=start))
        except ConnectionLost as error:
            raise HostUnreachable(f"The host does not answer ({error}).", hint=LATER) from error

    def _greet(self, where: str | HubAddress) -> Transport:
        host = Transport(where, self._headers)
        try:
            health = decoded(accepted(host.request("GET", f"{PREFIX}/health")))
        except (TimeoutError, ForeignSocket) as error:
            raise HostUnreachable(f"The host at {where} does not answer ({error}).", hint=LATER) from error
        check_api(health)
        self._transport = host
        return host

    def _forget(self, host: Transport) -> None:
        """Look for the host anew at the next request; other threads end their own conversation with the old one."""
        if self._transport is host:
            self._transport = None


class _Patience:
    """Bears failures for a while, pausing longer each time."""

    def __init__(self) -> None:
        self._deadline: float | None = None
        self._pause = 0.05

    def tried_for(self) -> float:
        """Seconds since the first failure; 0 before it."""
        return 0.0 if self._deadline is None else PATIENCE_S - (self._deadline - time.monotonic())

    def bear(self, error: GpuSchedError) -> None:
        now = time.monotonic()
        self._deadline = self._deadline or now + PATIENCE_S
        if now + self._pause > self._deadline:
            raise error
        time.sleep(self._pause)
        self._pause = min(1.0, self._pause * 2)


def _target(path: str, query: Mapping[str, object]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"{PREFIX}/{path}" + (f"?{urlencode(given, errors='replace')}" if given else "")


def _encoded(body: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError as error:
        raise BadRequest(f"{error.object[:60]!a} is not text in UTF-8.", hint="Rename it, or leave it out.") from None


def _gone(why: str) -> HostUnreachable:
    return HostUnreachable(f"The host went away ({why}).", hint=f"Jobs that were queued go on. {LATER}")
