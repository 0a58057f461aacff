"""The one client: what notebooks, terminals and the relay say to a host, and its errors as ours.

Finds the host again when it was restarted. Every request may be repeated safely: a submission
carries an idempotency key. Imports only what a quick command line can afford.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from .core.model import (
    FINAL,
    BadRequest,
    GpuSchedError,
    NeverFits,
    NotAllowed,
    NotAvailable,
    Unavailable,
    UnknownJob,
)
from .find_host import HostUnreachable, find_host
from .places import API
from .transport import READ_TIMEOUT_S, Answer, ConnectionLost, ForeignSocket, Transport
from .wire import PREFIX

__all__ = ["ApiMismatch", "Client", "HostUnreachable"]

PATIENCE_S = 45.0
"""How long a waiting call bears having no host: another one takes over within 30 s."""

_LONG_POLL_S = 30.0
_FOLLOW_S = 0.2
_LOG_CHUNK = 2**20
_PAGE = 1000
_FINAL = frozenset(phase.value for phase in FINAL)

T = TypeVar("T")
View = dict[str, Any]


class ApiMismatch(GpuSchedError):
    """Client and host are of versions that do not understand each other."""

    code = "api_mismatch"


class Client:
    """Speaks to one host. Threads may share it. All calls raise ``GpuSchedError`` and its kin."""

    def __init__(self, find: Callable[[], str], headers: Mapping[str, str]) -> None:
        self._find = find
        self._headers = {"X-Gpusched-Api": str(API), **headers}
        self._transport: Transport | None = None

    @classmethod
    def connect(cls, *, start: bool = False, environ: Mapping[str, str] = os.environ) -> Client:
        """A client whose host has answered. ``start`` = start a host when there is none, now and later.

        Raises ``HostUnreachable``, ``ApiMismatch``, or what the host says.
        """
        simulate = environ.get("GPUSCHED_SIMULATE")
        client = cls(
            lambda: find_host(environ, start=start), {"X-Gpusched-Simulate": simulate} if simulate else {}
        )
        client._reach()
        return client

    # --- the machine ------------------------------------------------------------------

    def health(self) -> dict[str, Any]:
        return self._get("health")

    def gpus(self) -> list[View]:
        return list(self._get("gpus")["items"])

    def events(self, after: int | None = None) -> Iterator[dict[str, Any]]:
        """What happens, frame by frame, without end; goes on after a reconnect where it stopped.

        after  the ``seq`` of the last frame already seen; without it a snapshot comes first.
        """
        while True:
            for frame in self._patiently(lambda after=after: self._frames(after)):
                after = frame.get("seq", after)
                yield frame

    # --- jobs -------------------------------------------------------------------------

    def submit(self, spec: dict[str, Any]) -> str:
        """Queue one job; returns its id once it is on disk."""
        return str(self._post("jobs", _with_key(spec))["id"])

    def submit_many(self, specs: list[dict[str, Any]]) -> list[str]:
        """Queue all of them or none."""
        return list(self._post("jobs", {"jobs": [_with_key(spec) for spec in specs]})["ids"])

    def jobs(self, *, phase: str | None = None, name: str | None = None, limit: int | None = None) -> list[View]:
        """The caller's jobs, newest first; all of them unless ``limit`` is given."""
        found: list[View] = []
        cursor: str | None = None
        while limit is None or len(found) < limit:
            size = _PAGE if limit is None else min(_PAGE, limit - len(found))
            page = self._get("jobs", phase=phase, name=name, limit=size, cursor=cursor)
            found += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        return found

    def job(self, job_id: str) -> View:
        return self._get(_job(job_id))

    def spec(self, job_id: str) -> dict[str, Any]:
        """The submission as it was stored, without captured values."""
        return self._get(_job(job_id, "spec"))

    def wait(self, job_id: str, timeout: float | None = None) -> View:
        """The job's view once it is final, or after ``timeout`` seconds. Bears a host that is replaced meanwhile."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _LONG_POLL_S if deadline is None else max(0.0, deadline - time.monotonic())
            view = self._wait_once(job_id, min(left, _LONG_POLL_S))
            if view["phase"] in _FINAL or left <= _LONG_POLL_S and deadline is not None:
                return view

    def cancel(self, job_id: str, grace: str | None = None) -> View:
        """End a job; answers at once with its view. ``grace`` such as ``2s`` overrides the job's own."""
        return self._post(_job(job_id, "cancel"), {} if grace is None else {"grace": grace})

    # --- what a job printed and made --------------------------------------------------

    def log(self, job_id: str, *, offset: int = 0, limit: int | None = None, attempt: int | None = None) -> bytes:
        """Bytes of the log of an attempt, by default of the latest."""
        return self._read(_job(job_id, "log"), attempt=attempt, offset=offset, limit=limit)

    def follow(self, job_id: str) -> Iterator[bytes]:
        """The log as it grows, over all attempts; ends when the job is final and the log is drained."""
        told, offset, pause = 0, 0, 0.0
        while True:
            # The view comes first: when it says that an attempt is over, its log is complete.
            view = self._wait_once(job_id, pause)
            numbers = [attempt["number"] for attempt in view["attempts"] if attempt["number"] >= told]
            for number in numbers:
                told, offset = number, offset if number == told else 0
                for chunk in self._rest_of_log(job_id, number, offset):
                    offset += len(chunk)
                    yield chunk
            if view["phase"] in _FINAL:
                return
            pause = _FOLLOW_S

    def outputs(self, job_id: str, *, after: int = 0) -> tuple[list[dict[str, Any]], int, bool]:
        """Output lines from number ``after`` on, the number to ask for next, and whether no more will come."""
        page = self._get(_job(job_id, "outputs"), after=after)
        return page["items"], page["next"], page["final"]

    def result(self, job_id: str, name: str) -> bytes:
        """The file of one ``--out`` value, as the job wrote it."""
        return self._read(_job(job_id, "result", name))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # --- asking -----------------------------------------------------------------------

    def _get(self, path: str, **query: object) -> dict[str, Any]:
        return _decoded(self._read(path, **query))

    def _read(self, path: str, *, timeout_s: float = READ_TIMEOUT_S, **query: object) -> bytes:
        target = _target(path, query)
        return self._twice(lambda host: _accepted(host.request("GET", target, timeout_s=timeout_s)))

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        data = msgspec.json.encode(body)
        target = _target(path, {})
        return _decoded(self._twice(lambda host: _accepted(host.request("POST", target, body=data))))

    def _twice(self, ask: Callable[[Transport], bytes]) -> bytes:
        """Ask, and once more when the host was restarted since we last spoke to it."""
        try:
            return self._once(ask)
        except ConnectionLost:
            self._forget()
        try:
            return self._once(ask)
        except ConnectionLost as error:
            self._forget()
            raise HostUnreachable(
                f"The host went away in the middle of the conversation ({error}).",
                hint="Jobs that were queued go on. Try again in a moment; `jupyter gpusched doctor` says more.",
            ) from error

    def _once(self, ask: Callable[[Transport], bytes]) -> bytes:
        try:
            return ask(self._transport or self._reach())
        except TimeoutError as error:
            raise Unavailable(
                "The host does not answer.", hint="Try again later; `jupyter gpusched doctor` says more."
            ) from error
        except ForeignSocket as error:
            raise HostUnreachable(f"The socket is not to be trusted: {error}.", hint="Check GPUSCHED_SOCKET.") from error

    def _reach(self) -> Transport:
        """Find the host, and check once that we understand each other."""
        reached = Transport(self._find(), self._headers)
        try:
            health = _decoded(_accepted(reached.request("GET", f"{PREFIX}/health")))
        except (TimeoutError, ConnectionLost) as error:
            raise HostUnreachable(
                f"The host at {reached.path} does not answer.",
                hint="Try again in a moment; `jupyter gpusched doctor` says more.",
            ) from error
        _check_api(health)
        self._transport = reached
        return reached

    def _forget(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    # --- waiting ----------------------------------------------------------------------

    def _wait_once(self, job_id: str, seconds: float) -> View:
        """The view when the job is final or after some seconds, whichever comes first."""
        query: dict[str, object] = {"wait": "final", "timeout": f"{seconds:.3f}"} if seconds > 0 else {}
        return self._patiently(lambda: _decoded(self._read(_job(job_id), timeout_s=seconds + READ_TIMEOUT_S, **query)))

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Bear a host that is being replaced, for a while. Never starts one: another host takes over."""
        deadline = time.monotonic() + PATIENCE_S
        pause = 0.05
        while True:
            try:
                return ask()
            except (HostUnreachable, Unavailable):
                if time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(1.0, pause * 2)

    def _rest_of_log(self, job_id: str, attempt: int, offset: int) -> Iterator[bytes]:
        while chunk := self._patiently(
            lambda offset=offset: self.log(job_id, offset=offset, limit=_LOG_CHUNK, attempt=attempt)
        ):
            offset += len(chunk)
            yield chunk

    def _frames(self, after: int | None) -> Iterator[dict[str, Any]]:
        """Frames of one connection; ends when it breaks, raises when the host refuses or there is none."""
        host = self._transport or self._reach()
        try:
            for line in host.lines(_target("events", {"after": after})):
                if text := _accepted(line).strip():
                    yield _decoded(text)
        except (ConnectionLost, TimeoutError):
            self._forget()
