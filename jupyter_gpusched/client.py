"""The one client: what notebooks, terminals and the relay say to a host, and its errors as ours.

Finds the host again when it was restarted. Every request may be repeated safely: a submission
carries an idempotency key. Imports only what a quick command line can afford.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from .answers import ApiMismatch, decoded
from .conversation import Conversation
from .core.model import FINAL
from .find_host import HostUnreachable
from .transport import READ_TIMEOUT_S, Answer

__all__ = ["ApiMismatch", "Client", "HostUnreachable"]

_LONG_POLL_S = 30.0
_FOLLOW_S = 0.2
_LOG_CHUNK = 2**20
_PAGE = 1000
_FINAL = frozenset(phase.value for phase in FINAL)

View = dict[str, Any]


class Client:
    """Speaks to one host. Threads may share it. All calls raise ``GpuSchedError`` and its kin."""

    def __init__(self, environ: Mapping[str, str], *, start: bool) -> None:
        self._host = Conversation(environ, start=start)
        self._me: str | None = None

    @classmethod
    def connect(cls, *, start: bool = False, environ: Mapping[str, str] = os.environ) -> Client:
        """A client whose host has answered. ``start`` = start a host when there is none, now and later.

        Raises ``HostUnreachable``, ``ApiMismatch``, or what the host says.
        """
        client = cls(environ, start=start)
        client._host.begin()
        return client

    # --- the machine ------------------------------------------------------------------

    def health(self) -> dict[str, Any]:
        return self._host.get("health")

    def me(self) -> str:
        """Who we are for the host, as the owner of jobs; asked once."""
        if self._me is None:
            self._me = str(self.health()["user"])
        return self._me

    def gpus(self) -> list[View]:
        return list(self._host.get("gpus")["items"])

    def gpu_history(self, since: float | None = None) -> list[View]:
        """What the cards showed in the last quarter of an hour, or after a time."""
        return list(self._host.get("gpus/history", since=None if since is None else f"{since:.3f}")["items"])

    def alerts(self) -> list[View]:
        """What a person should look at now, the gravest first."""
        return list(self._host.get("alerts")["items"])

    def quarantine(self, gpu: str | int, cause: str | None = None) -> View:
        """Give a card (UUID or index) no jobs until it is released; those on it go on. Answers with the card."""
        return self._host.post("admin/quarantine", {"gpu": gpu, "cause": cause})

    def release(self, gpu: str | int, cause: str | None = None) -> View:
        """Give a quarantined card jobs again. Answers with the card."""
        return self._host.post("admin/quarantine", {"gpu": gpu, "cause": cause, "release": True})

    def drain(self, cause: str | None = None) -> View:
        """Start nothing new on this machine until ``resume``; what runs goes on."""
        return self._host.post("admin/drain", {"cause": cause})

    def resume(self, cause: str | None = None) -> View:
        return self._host.post("admin/resume", {"cause": cause})

    def reservations(self) -> list[View]:
        """GPUs that are kept for somebody, now or later."""
        return list(self._host.get("reservations")["items"])

    def reserve(self, asked: dict[str, Any]) -> View:
        """Keep GPUs for somebody; ``asked`` as REST has it. Answers with the reservation."""
        return self._host.post("reservations", asked)

    def unreserve(self, reservation_id: str) -> None:
        """End a reservation: its GPUs are open to all at once."""
        self._host.delete(f"reservations/{quote(reservation_id, safe='', errors='replace')}")

    def limits(self) -> View:
        """What the caller may have at a time, and has."""
        return self._host.get("limits")

    def all_limits(self) -> View:
        return self._host.get("admin/limits")

    def reread_limits(self) -> View:
        """Have the host read the limits' file again; answers with the limits in force."""
        return self._host.post("admin/limits", {})

    def report(self, since: float) -> View:
        """What each user had, of the jobs submitted after this time."""
        return self._host.get("admin/report", since=f"{since:.3f}")

    def log_of_events(self, limit: int) -> list[View]:
        """The newest of what happened, oldest first."""
        return list(self._host.get("admin/events", limit=limit)["items"])

    def events(self, after: int | None = None) -> Iterator[dict[str, Any]]:
        """What happens, frame by frame, without end; goes on after a reconnect where it stopped.

        after  the ``seq`` of the last frame already seen; without it a snapshot comes first.
        """
        return self._host.events(after)

    # --- jobs -------------------------------------------------------------------------

    def submit(self, spec: dict[str, Any]) -> str:
        """Queue one job; returns its id once it is on disk."""
        return str(self._host.post("jobs", _with_key(spec))["id"])

    def submit_many(self, specs: list[dict[str, Any]]) -> list[str]:
        """Queue all of them or none."""
        return list(self._host.post("jobs", {"jobs": [_with_key(spec) for spec in specs]})["ids"])

    def submit_array(
        self, common: dict[str, Any], elements: list[dict[str, Any]], *, throttle: int | None = None
    ) -> tuple[str, list[str]]:
        """Queue the elements of an array, all or none; returns its id and theirs.

        common    fields that all have; captured values among them travel and are stored once.
        throttle  how many of them may run at a time.
        """
        array = {"common": common} | ({} if throttle is None else {"throttle": throttle})
        answer = self._host.post("jobs", {"jobs": [_with_key(one) for one in elements], "array": array})
        return str(answer["array_id"]), list(answer["ids"])

    def array(self, array_id: str) -> View:
        """An array as a whole: how many of its elements are in which phase."""
        return self._host.get(f"arrays/{quote(array_id, safe='', errors='replace')}")

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
            page = self._host.get(
                "jobs", phase=phase, name=name, array=array, limit=size, cursor=cursor, all_users=everybody
            )
            found += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        return found

    def job(self, job_id: str) -> View:
        return self._host.get(_job(job_id))

    def spec(self, job_id: str) -> dict[str, Any]:
        """The submission as it was stored, without captured values."""
        return self._host.get(_job(job_id, "spec"))

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
        return self._host.post(_job(job_id, "cancel"), {} if grace is None else {"grace": grace})

    def hold(self, job_id: str, cause: str | None = None) -> View:
        """A waiting job, or what waits of an array, does not start until it is released. Answers as ``cancel``."""
        return self._host.post(_job(job_id, "hold"), {} if cause is None else {"cause": cause})

    def release_job(self, job_id: str) -> View:
        """Let a held job, or what is held of an array, go on. Answers as ``cancel``."""
        return self._host.post(_job(job_id, "release"), {})

    def act_by_name(self, act: str, pattern: str, **more: str | None) -> list[str]:
        """Cancel, hold or release those of your jobs whose name fits (``run-*``); returns their ids."""
        given = {name: value for name, value in more.items() if value is not None}
        return list(self._host.post(f"jobs/{act}", {"name": pattern, **given})["ids"])

    def amend(self, job_id: str, changes: dict[str, Any]) -> View:
        """Change a job that is still queued, or what waits of an array; None stands for a field's default."""
        return self._host.send("PATCH", _job(job_id), changes)

    def reorder(self, job_id: str, *, before: str | None = None, after: str | None = None) -> View:
        """Put a waiting job right before or right after another of yours; jobs of others keep their places."""
        where = {"before": before} if before is not None else {"after": after}
        return self._host.send("PATCH", _job(job_id), where)

    def delete(self, job_id: str) -> None:
        """Delete the record and the files of a job that has ended."""
        self._host.delete(_job(job_id))

    def resubmit(self, job_id: str, changes: dict[str, Any] | None = None) -> str:
        """Queue the same work again as a new job, with changes if any; returns its id."""
        return str(self.resubmit_any(job_id, changes)["id"])

    def resubmit_any(self, target: str, changes: dict[str, Any] | None = None) -> dict[str, Any]:
        """As ``resubmit``; of an array those elements that ended otherwise than succeeded, or all named by number.

        Answers with ``id``, or with ``array_id`` and ``ids`` of the new array. Raises ``WrongPhase`` where nothing of
        an array is to be repeated.
        """
        return self._host.post(_job(target, "resubmit"), _with_key(changes or {}))

    # --- what a job printed and made --------------------------------------------------

    def log(self, job_id: str, *, offset: int = 0, limit: int | None = None, attempt: int | None = None) -> bytes:
        """Bytes of the log of an attempt, by default of the latest."""
        return self._host.read(_job(job_id, "log"), attempt=attempt, offset=offset, limit=limit)

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
        page = self._host.get(_job(job_id, "outputs"), after=after)
        return page["items"], page["next"], page["final"]

    def memory(self, job_id: str) -> list[View]:
        """The VRAM that a job used over its life: ``at`` and ``used_mib``."""
        return list(self._host.get(_job(job_id, "memory"))["items"])

    def timeline(self, job_id: str, *, attempt: int | None = None) -> list[View]:
        """Who held what on the cards before an attempt ran out of GPU memory."""
        return list(self._host.get(_job(job_id, "timeline"), attempt=attempt)["items"])

    def job_events(self, job_id: str) -> list[View]:
        """What happened to a job, oldest first."""
        found: list[View] = []
        cursor: str | None = None
        while True:
            page = self._host.get(_job(job_id, "events"), cursor=cursor)
            found += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return found

    def result(self, job_id: str, name: str) -> bytes:
        """The file of one ``--out`` value, as the job wrote it."""
        return self._host.read(_job(job_id, "result", name))

    def close(self) -> None:
        self._host.close()

    # --- waiting ----------------------------------------------------------------------

    def _view_in(self, job_id: str, seconds: float) -> View:
        """The view as soon as the job is final, else after some seconds."""
        query: dict[str, object] = {"wait": "final", "timeout": f"{seconds:.3f}"} if seconds > 0 else {}
        return decoded(self._host.patient_read(_job(job_id), seconds + READ_TIMEOUT_S, **query))

    def _rest_of_log(self, job_id: str, attempt: int | None, offset: int) -> Iterator[tuple[bytes, int]]:
        """The pieces of a log from there on, each with the offset after it: part of a long log may be missing."""
        while (answer := self._ask_log(job_id, attempt=attempt, offset=offset, limit=_LOG_CHUNK)).body:
            offset = offset + len(answer.body) if answer.following is None else answer.following
            yield answer.body, offset

    def _ask_log(self, job_id: str, **query: object) -> Answer:
        return self._host.patient_ask(_job(job_id, "log"), READ_TIMEOUT_S, **query)


def _with_key(spec: dict[str, Any]) -> dict[str, Any]:
    """A submission that may be repeated: the host queues each idempotency key once."""
    return spec if spec.get("idempotency_key") else {**spec, "idempotency_key": os.urandom(16).hex()}


def _job(job_id: str, *more: str) -> str:
    return "/".join(["jobs", *(quote(part, safe="", errors="replace") for part in (job_id, *more))])
