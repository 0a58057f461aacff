"""The one client: what notebooks, terminals and the relay say to a host, and its errors as ours.

Finds the host again when it was restarted. Every request may be repeated safely: a submission
carries an idempotency key. Imports only what a quick command line can afford.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from .answers import LATER, ApiMismatch, accepted, check_api, decoded, good
from .core.model import FINAL, BadRequest, GpuSchedError, Unavailable
from .find_host import HostUnreachable, find_host
from .hub_address import HubAddress
from .places import API
from .transport import READ_TIMEOUT_S, Answer, ConnectionLost, ForeignSocket, Transport
from .wire import GIVES_WAY, PREFIX

__all__ = ["ApiMismatch", "Client", "HostUnreachable"]

PATIENCE_S = 45.0
"""How long a waiting call bears having no host: another one takes over within 30 s."""

_REACH_PAUSES_S = (0.02, 0.1, 0.3)
TAKEOVER_S = 8.0
"""So long a server that is ready to take over goes before us; it looks every 5 s, and at once when it can."""

_LONG_POLL_S = 30.0
_FOLLOW_S = 0.2
_LOG_CHUNK = 2**20
_PAGE = 1000
_FINAL = frozenset(phase.value for phase in FINAL)

View = dict[str, Any]
Got = TypeVar("Got")


class Client:
    """Speaks to one host. Threads may share it. All calls raise ``GpuSchedError`` and its kin."""

    def __init__(self, environ: Mapping[str, str], *, start: bool) -> None:
        simulate = environ.get("GPUSCHED_SIMULATE")
        self._environ = environ
        self._start = start
        self._headers = {"X-Gpusched-Api": str(API)} | ({"X-Gpusched-Simulate": simulate} if simulate else {})
        self._transport: Transport | None = None

    @classmethod
    def connect(cls, *, start: bool = False, environ: Mapping[str, str] = os.environ) -> Client:
        """A client whose host has answered. ``start`` = start a host when there is none, now and later.

        Raises ``HostUnreachable``, ``ApiMismatch``, or what the host says.
        """
        client = cls(environ, start=start)
        client._reach(start=start)
        return client

    # --- the machine ------------------------------------------------------------------

    def health(self) -> dict[str, Any]:
        return self._get("health")

    def gpus(self) -> list[View]:
        return list(self._get("gpus")["items"])

    def gpu_history(self, since: float | None = None) -> list[View]:
        """What the cards showed in the last quarter of an hour, or after a time."""
        return list(self._get("gpus/history", since=None if since is None else f"{since:.3f}")["items"])

    def alerts(self) -> list[View]:
        """What a person should look at now, the gravest first."""
        return list(self._get("alerts")["items"])

    def quarantine(self, gpu: str | int, cause: str | None = None) -> View:
        """Give a card (UUID or index) no jobs until it is released; those on it go on. Answers with the card."""
        return self._post("admin/quarantine", {"gpu": gpu, "cause": cause})

    def release(self, gpu: str | int, cause: str | None = None) -> View:
        """Give a quarantined card jobs again. Answers with the card."""
        return self._post("admin/quarantine", {"gpu": gpu, "cause": cause, "release": True})

    def drain(self, cause: str | None = None) -> View:
        """Start nothing new on this machine until ``resume``; what runs goes on."""
        return self._post("admin/drain", {"cause": cause})

    def resume(self, cause: str | None = None) -> View:
        return self._post("admin/resume", {"cause": cause})

    def reservations(self) -> list[View]:
        """GPUs that are kept for somebody, now or later."""
        return list(self._get("reservations")["items"])

    def reserve(self, asked: dict[str, Any]) -> View:
        """Keep GPUs for somebody; ``asked`` as REST has it. Answers with the reservation."""
        return self._post("reservations", asked)

    def unreserve(self, reservation_id: str) -> None:
        """End a reservation: its GPUs are open to all at once."""
        target = _target(f"reservations/{quote(reservation_id, safe='', errors='replace')}", {})
        self._twice(lambda host: accepted(host.request("DELETE", target)), start=self._start)

    def limits(self) -> View:
        """What the caller may have at a time, and has."""
        return self._get("limits")

    def all_limits(self) -> View:
        return self._get("admin/limits")

    def reread_limits(self) -> View:
        """Have the host read the limits' file again; answers with the limits in force."""
        return self._post("admin/limits", {})

    def report(self, since: float) -> View:
        """What each user had, of the jobs submitted after this time."""
        return self._get("admin/report", since=f"{since:.3f}")

    def log_of_events(self, limit: int) -> list[View]:
        """The newest of what happened, oldest first."""
        return list(self._get("admin/events", limit=limit)["items"])

    def events(self, after: int | None = None) -> Iterator[dict[str, Any]]:
        """What happens, frame by frame, without end; goes on after a reconnect where it stopped.

        after  the ``seq`` of the last frame already seen; without it a snapshot comes first.
        """
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

    # --- jobs -------------------------------------------------------------------------

    def submit(self, spec: dict[str, Any]) -> str:
        """Queue one job; returns its id once it is on disk."""
        return str(self._post("jobs", _with_key(spec))["id"])

    def submit_many(self, specs: list[dict[str, Any]]) -> list[str]:
        """Queue all of them or none."""
        return list(self._post("jobs", {"jobs": [_with_key(spec) for spec in specs]})["ids"])

    def submit_array(
        self, common: dict[str, Any], elements: list[dict[str, Any]], *, throttle: int | None = None
    ) -> tuple[str, list[str]]:
        """Queue the elements of an array, all or none; returns its id and theirs.

        common    fields that all have; captured values among them travel and are stored once.
        throttle  how many of them may run at a time.
        """
        array = {"common": common} | ({} if throttle is None else {"throttle": throttle})
        answer = self._post("jobs", {"jobs": [_with_key(one) for one in elements], "array": array})
        return str(answer["array_id"]), list(answer["ids"])

    def array(self, array_id: str) -> View:
        """An array as a whole: how many of its elements are in which phase."""
        return self._get(f"arrays/{quote(array_id, safe='', errors='replace')}")

    def jobs(
        self,
        *,
        phase: str | None = None,
        name: str | None = None,
        array: str | None = None,
        limit: int | None = None,
        all_users: bool = False,
    ) -> list[View]:
        """The caller's jobs, newest first; all of them unless ``limit`` is given.

        array      only the elements of this one.
        all_users  everybody's, which is for administrators.
        """
        everybody = 1 if all_users else None
        found: list[View] = []
        cursor: str | None = None
        while limit is None or len(found) < limit:
            size = _PAGE if limit is None else min(_PAGE, limit - len(found))
            page = self._get(
                "jobs", phase=phase, name=name, array=array, limit=size, cursor=cursor, all_users=everybody
            )
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
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            left = max(0.0, deadline - time.monotonic())
            view = self._view_in(job_id, min(left, _LONG_POLL_S))
            if view["phase"] in _FINAL or time.monotonic() >= deadline:
                return view

    def cancel(self, job_id: str, grace: str | None = None) -> View:
        """End a job; answers at once with its view. ``grace`` such as ``2s`` overrides the job's own.

        Of an array (also ``ID[0-9]``) all that have not ended; then the answer has their ``ids``.
        """
        return self._post(_job(job_id, "cancel"), {} if grace is None else {"grace": grace})

    def hold(self, job_id: str, cause: str | None = None) -> View:
        """A waiting job, or what waits of an array, does not start until it is released. Answers as ``cancel``."""
        return self._post(_job(job_id, "hold"), {} if cause is None else {"cause": cause})

    def release_job(self, job_id: str) -> View:
        """Let a held job, or what is held of an array, go on. Answers as ``cancel``."""
        return self._post(_job(job_id, "release"), {})

    def act_by_name(self, act: str, pattern: str, **more: str | None) -> list[str]:
        """Cancel, hold or release those of your jobs whose name fits (``run-*``); returns their ids."""
        given = {name: value for name, value in more.items() if value is not None}
        return list(self._post(f"jobs/{act}", {"name": pattern, **given})["ids"])

    def amend(self, job_id: str, changes: dict[str, Any]) -> View:
        """Change a job that is still queued, or what waits of an array; None stands for a field's default."""
        return self._send("PATCH", _job(job_id), changes)

    def reorder(self, job_id: str, *, before: str | None = None, after: str | None = None) -> View:
        """Put a waiting job right before or right after another of yours; jobs of others keep their places."""
        where = {"before": before} if before is not None else {"after": after}
        return self._send("PATCH", _job(job_id), where)

    def delete(self, job_id: str) -> None:
        """Delete the record and the files of a job that has ended."""
        target = _target(_job(job_id), {})
        self._twice(lambda host: accepted(host.request("DELETE", target)), start=self._start)

    def resubmit(self, job_id: str, changes: dict[str, Any] | None = None) -> str:
        """Queue the same work again as a new job, with changes if any; returns its id."""
        return str(self.resubmit_any(job_id, changes)["id"])

    def resubmit_any(self, target: str, changes: dict[str, Any] | None = None) -> dict[str, Any]:
        """As ``resubmit``; of an array those elements that ended otherwise than succeeded, or all named by number.

        Answers with ``id``, or with ``array_id`` and ``ids`` of the new array. Raises ``WrongPhase`` where nothing of
        an array is to be repeated.
        """
        return self._post(_job(target, "resubmit"), _with_key(changes or {}))

    # --- what a job printed and made --------------------------------------------------

    def log(self, job_id: str, *, offset: int = 0, limit: int | None = None, attempt: int | None = None) -> bytes:
        """Bytes of the log of an attempt, by default of the latest."""
        return self._read(_job(job_id, "log"), attempt=attempt, offset=offset, limit=limit)

    def whole_log(self, job_id: str, *, attempt: int | None = None) -> Iterator[bytes]:
        """All that is kept of the log as it stands now, piece by piece."""
        yield from self._log_as_it_stands(job_id, attempt, None)

    def log_tail(self, job_id: str, most: int) -> bytes:
        """The last bytes of the log of the latest attempt; a cut in them is told in one more line."""
        return b"".join(self._log_as_it_stands(job_id, None, most))

    def _log_as_it_stands(self, job_id: str, attempt: int | None, most: int | None) -> Iterator[bytes]:
        size = self._ask_log(job_id, attempt=attempt, offset=0, limit=0).size or 0
        for piece, following in self._rest_of_log(job_id, attempt, 0 if most is None else max(0, size - most)):
            yield piece
            if following >= size:  # a job may print faster than we read
                return

    def follow(self, job_id: str) -> Iterator[bytes]:
        """The log as it grows, over all attempts; ends when the job is final and the log is drained."""
        current, offset, pause = 0, 0, 0.0
        while True:
            # The view comes first: what it says is over has a complete log.
            view = self._view_in(job_id, pause)
            for number in sorted(attempt["number"] for attempt in view["attempts"]):
                if number > current:
                    current, offset = number, 0
                if number == current:
                    for chunk, following in self._rest_of_log(job_id, number, offset):
                        offset = following
                        yield chunk
            if view["phase"] in _FINAL:
                return
            pause = _FOLLOW_S

    def outputs(self, job_id: str, *, after: int = 0) -> tuple[list[dict[str, Any]], int, bool]:
        """Output lines from number ``after`` on, the number to ask for next, and whether no more will come."""
        page = self._get(_job(job_id, "outputs"), after=after)
        return page["items"], page["next"], page["final"]

    def memory(self, job_id: str) -> list[View]:
        """The VRAM that a job used over its life: ``at`` and ``used_mib``."""
        return list(self._get(_job(job_id, "memory"))["items"])

    def timeline(self, job_id: str, *, attempt: int | None = None) -> list[View]:
        """Who held what on the cards before an attempt ran out of GPU memory."""
        return list(self._get(_job(job_id, "timeline"), attempt=attempt)["items"])

    def job_events(self, job_id: str) -> list[View]:
        """What happened to a job, oldest first."""
        found: list[View] = []
        cursor: str | None = None
        while True:
            page = self._get(_job(job_id, "events"), cursor=cursor)
            found += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return found

    def result(self, job_id: str, name: str) -> bytes:
        """The file of one ``--out`` value, as the job wrote it."""
        return self._read(_job(job_id, "result", name))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    # --- asking -----------------------------------------------------------------------

    def _get(self, path: str, **query: object) -> dict[str, Any]:
        return decoded(self._read(path, **query))

    def _read(self, path: str, **query: object) -> bytes:
        target = _target(path, query)
        return self._twice(lambda host: accepted(host.request("GET", target)), start=self._start)

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._send("POST", path, body)

    def _send(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        target, data = _target(path, {}), _encoded(body)
        return decoded(self._twice(lambda host: accepted(host.request(method, target, body=data)), start=self._start))

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

    # --- waiting ----------------------------------------------------------------------

    def _view_in(self, job_id: str, seconds: float) -> View:
        """The view as soon as the job is final, else after some seconds."""
        query: dict[str, object] = {"wait": "final", "timeout": f"{seconds:.3f}"} if seconds > 0 else {}
        return decoded(self._patient_read(_job(job_id), seconds + READ_TIMEOUT_S, **query))

    def _rest_of_log(self, job_id: str, attempt: int | None, offset: int) -> Iterator[tuple[bytes, int]]:
        """The pieces of a log from there on, each with the offset after it: part of a long log may be missing."""
        while (answer := self._ask_log(job_id, attempt=attempt, offset=offset, limit=_LOG_CHUNK)).body:
            offset = offset + len(answer.body) if answer.following is None else answer.following
            yield answer.body, offset

    def _ask_log(self, job_id: str, **query: object) -> Answer:
        return self._patient_ask(_job(job_id, "log"), READ_TIMEOUT_S, **query)

    def _patient_read(self, path: str, silence_s: float, **query: object) -> bytes:
        return self._patient_ask(path, silence_s, **query).body

    def _patient_ask(self, path: str, silence_s: float, **query: object) -> Answer:
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


# --- what is said, and what it means ------------------------------------------------------


def _with_key(spec: dict[str, Any]) -> dict[str, Any]:
    """A submission that may be repeated: the host queues each idempotency key once."""
    return spec if spec.get("idempotency_key") else {**spec, "idempotency_key": os.urandom(16).hex()}


def _job(job_id: str, *more: str) -> str:
    return "/".join(["jobs", *(quote(part, safe="", errors="replace") for part in (job_id, *more))])


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
