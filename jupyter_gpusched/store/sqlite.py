"""The journal and the jobs of one machine in one SQLite file: write-ahead log, one writer.

Each batch of changes is one durable transaction that first checks the host epoch. Decides
nothing about jobs; what a change means is the core's.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from jupyter_gpusched.core.messages import Change, Entry, MachineChange
from jupyter_gpusched.core.model import Job, JobId, Work
from jupyter_gpusched.core.operations import Operations
from jupyter_gpusched.core.report import Tally
from jupyter_gpusched.core.usage import Usage
from jupyter_gpusched.ports import Fenced, Recorded, StoreUnavailable

from .failures import translated
from .opening import Schema, connect, lay_out_log, open_database, transaction
from .queries import SQL

_encoder = msgspec.json.Encoder()
_jobs = msgspec.json.Decoder(Job)
_operations = msgspec.json.Decoder(Operations)
_works = msgspec.json.Decoder(Work)
_tallies = msgspec.json.Decoder(Tally)
_usages = msgspec.json.Decoder(Usage)
_details = msgspec.json.Decoder(dict[str, object])

_CONDITIONS = {
    "owner": "owner = :owner",
    "phase": "phase = :phase",
    "live": "live = :live",
    "name": "name = :name",
    "batch_id": "batch_id = :batch_id",
    "before_at": "(submitted_at, id) < (:before_at, :before_id)",
}


class SqliteStore:
    """Implements ``ports.Store``. Opening makes, checks or migrates the file, or raises ``StoreUnavailable``."""

    def __init__(self, path: Path, *, busy_timeout_s: float = 10.0, schema: Schema | None = None) -> None:
        self.path = path
        self._timeout_s = busy_timeout_s
        self._writing = threading.Lock()
        # As many readers as ever read at once; a thread that dies leaves none behind.
        self._idle_readers: deque[sqlite3.Connection] = deque()
        self._closed = False
        with translated(path):
            self._writer = open_database(path, timeout_s=busy_timeout_s, schema=schema or Schema())
            self._identity = _identity(path)

    # --- writing ----------------------------------------------------------------------

    def take_over(self, *, at: float, host: str) -> int:
        """Raise the host epoch and return it; from now on writes of older epochs raise ``Fenced``."""
        with self._write() as writer:
            lay_out_log(self.path)
            epoch: int = writer.execute(SQL["epoch"]).fetchone()[0] + 1
            facts = [("epoch", epoch), ("host", host), ("host_since", at)]
            writer.executemany(SQL["set_meta"], facts)
            state = writer.execute(SQL["operations"]).fetchone()
            row = (
                _last_seq(writer) + 1,
                at,
                None,
                "took_over",
                _encode({"host": host, "epoch": epoch}),
                *(state or (None,)),
            )
            writer.execute(SQL["append_event"], row)
        return epoch

    def record(
        self,
        changes: Sequence[Entry],
        works: dict[JobId, Work],
        *,
        epoch: int,
    ) -> list[Recorded]:
        """Write events and the jobs they led to in one durable transaction, or nothing.

        works  what newly submitted jobs run, by job id; these ids must be new.
        Raises ``Fenced``, ``StoreUnavailable``, ``DuplicateKey`` or ``Unwritable``. Source: ``schema.sql``.
        """
        with translated(self.path):
            states = [_encode(change.job if isinstance(change, Change) else change.operations) for change in changes]
        written = list(zip(changes, states, strict=True))
        rows = {one.job.id: _job_row(one.job, state) for one, state in written if isinstance(one, Change)}
        operations = [state for one, state in written if isinstance(one, MachineChange)][-1:]
        with self._write() as writer:
            self._check_epoch(writer, epoch)
            first = _last_seq(writer) + 1
            writer.executemany(SQL["insert_job"], [row for key, row in rows.items() if key in works])
            writer.executemany(SQL["update_job"], [row for key, row in rows.items() if key not in works])
            writer.executemany(SQL["insert_work"], [(key, _encode(work)) for key, work in works.items()])
            writer.executemany(SQL["set_meta"], [("operations", state) for state in operations])
            writer.executemany(
                SQL["append_event"],
                [
                    (seq, change.at, _job_id(change), change.kind, _encode(change.detail), state)
                    for seq, (change, state) in enumerate(written, first)
                ],
            )
        return [
            Recorded(seq, change.job if isinstance(change, Change) else None, change.kind, change.at, change.detail)
            for seq, change in enumerate(changes, first)
        ]

    def forget(self, tombstone: Job, *, by: str, use: Tally, share: Usage, at: float, epoch: int) -> Recorded:
        """Delete a job, what it ran and its history; one event ``deleted`` with ``tombstone`` takes their place.

        by     who wants that.
        use    what it had used, which is kept for its owner; ``share`` what of it counts for its owner's rank.
        Raises ``Fenced`` or ``StoreUnavailable``; then nothing was deleted.
        """
        detail: dict[str, object] = {"by": by}
        with self._write() as writer:
            self._check_epoch(writer, epoch)
            seq = _last_seq(writer) + 1
            for query in ("forget_work", "forget_job", "forget_events"):
                writer.execute(SQL[query], (tombstone.id,))
            hour, owner = _hour(tombstone.submitted_at), tombstone.owner
            for (earlier,) in writer.execute(SQL["tally_of_gone"], (hour, owner)).fetchall():
                use = use.plus(_tallies.decode(earlier))
            writer.execute(SQL["set_tally_of_gone"], (hour, owner, _encode(use)))
            together = _usage_of_gone(writer).joined(share)
            writer.execute(SQL["set_meta"], ("usage_of_gone", _encode(together)))
            row = (seq, at, tombstone.id, "deleted", _encode(detail), _encode(tombstone))
            writer.execute(SQL["append_event"], row)
        return Recorded(seq, tombstone, "deleted", at, detail)

    def prune(self, *, before: float, most: int, limit: int, epoch: int) -> int:
        """Delete up to ``limit`` of the oldest events that are older than ``before`` or more than ``most``.

        Those of live jobs stay. Returns how many were deleted. Raises ``Fenced`` or ``StoreUnavailable``.
        """
        with self._write() as writer:
            self._check_epoch(writer, epoch)
            last = _last_seq(writer)
            first_kept = writer.execute(SQL["first_event_since"], (before,)).fetchone()
            floor = max(last if first_kept is None else first_kept[0] - 1, last - most)
            doomed = [seq for (seq,) in writer.execute(SQL["oldest_events"], (floor, limit))]
            if doomed:
                writer.executemany(SQL["delete_event"], [(seq,) for seq in doomed])
                writer.execute(SQL["set_meta"], ("pruned_to", max(_pruned_to(writer), doomed[-1])))
        return len(doomed)

    # --- reading ----------------------------------------------------------------------

    def live(self) -> list[Job]:
        """Jobs that are not final or still hold grants, oldest first."""
        return [_jobs.decode(state) for (state,) in self._rows(SQL["live_jobs"], ())]

    def operations(self) -> Operations:
        """What was decided about the machine itself, as it stands."""
        rows = self._rows(SQL["operations"], ())
        return _operations.decode(rows[0][0]) if rows else Operations()

    def pruned_to(self) -> int:
        """The latest event that was ever pruned; 0 = none was."""
        with self._read() as reader:
            return _pruned_to(reader)

    def gone_since(self, since: float) -> list[tuple[str, Tally]]:
        """Owners and what their deleted jobs had used, of those that were submitted since then, to the hour."""
        return [(owner, _tallies.decode(tally)) for owner, tally in self._rows(SQL["gone_since"], (_hour(since),))]

    def usage_of_gone(self) -> Usage:
        """What deleted jobs had used of late."""
        with self._read() as reader:
            return _usage_of_gone(reader)

    def ended(self, limit: int) -> list[Job]:
        """The most recently submitted of the jobs that have left the scheduler."""
        return [_jobs.decode(state) for (state,) in self._rows(SQL["ended_jobs"], (limit,))]

    def oldest_ended(self, after: tuple[float, str], limit: int) -> list[Job]:
        """Those that have left the scheduler, oldest submission first, after one of (submitted_at, id)."""
        return [_jobs.decode(state) for (state,) in self._rows(SQL["oldest_ended"], (*after, limit))]

    def count_ended(self) -> int:
        """How many jobs have left the scheduler."""
        count: int = self._rows(SQL["count_ended"], ())[0][0]
        return count

    def job(self, job_id: JobId) -> Job | None:
        rows = self._rows(SQL["job"], (job_id,))
        return _jobs.decode(rows[0][0]) if rows else None

    def work(self, job_id: JobId) -> Work | None:
        rows = self._rows(SQL["work"], (job_id,))
        return _works.decode(rows[0][0]) if rows else None

    def find_key(self, owner: str, key: str) -> JobId | None:
        """The job that this owner submitted with this idempotency key."""
        rows = self._rows(SQL["job_with_key"], (owner, key))
        return rows[0][0] if rows else None

    def jobs(
        self,
        *,
        owner: str | None = None,
        phase: str | None = None,
        live: bool | None = None,
        name: str | None = None,
        batch_id: str | None = None,
        limit: int | None = None,
        before: tuple[float, str] | None = None,
    ) -> list[Job]:
        """Newest first by (submitted_at, id); ``before`` is the last job of the previous page."""
        at, job_id = before or (None, None)
        given = {"owner": owner, "phase": phase, "live": live, "name": name, "batch_id": batch_id, "before_at": at}
        conditions = [_CONDITIONS[key] for key, value in given.items() if value is not None] or ["true"]
        query = SQL["page_of_jobs"].replace("{conditions}", " AND ".join(conditions))
        rows = self._rows(query, {**given, "before_id": job_id, "limit": -1 if limit is None else limit})
        return [_jobs.decode(state) for (state,) in rows]

    def phases_of(self, batch_id: str) -> dict[str, int]:
        """How many jobs of a batch are in which phase."""
        return dict(self._rows(SQL["phases_of_batch"], (batch_id,)))

    def events(self, *, after: int, limit: int) -> list[Recorded]:
        """The journal after a sequence number, oldest first; events of jobs with the job as it was then."""
        return [
            Recorded(seq, None if job_id is None else _jobs.decode(state), kind, at, _details.decode(detail))
            for seq, at, job_id, kind, detail, state in self._rows(SQL["events_after"], (after, limit))
        ]

    def events_of(self, job_id: JobId, *, after: int, limit: int) -> list[Recorded]:
        """What happened to one job after a sequence number, oldest first."""
        return [
            Recorded(seq, _jobs.decode(state), kind, at, _details.decode(detail))
            for seq, at, kind, detail, state in self._rows(SQL["events_of_job"], (job_id, after, limit))
        ]

    def runs(self, *, owner: str, code: str | None = None, name: str | None = None, limit: int) -> list[Job]:
        """Runs that succeeded or failed, of the same ``code`` or else of this name; newest first."""
        query, value = ("runs_of_name", name) if code is None else ("runs_of_code", code)
        return [_jobs.decode(state) for (state,) in self._rows(SQL[query], (owner, value, limit))]

    def last_seq(self) -> int:
        """The sequence number of the latest event; 0 before the first."""
        with self._read() as reader:
            return _last_seq(reader)

    def close(self) -> None:
        """Close every connection; the write-ahead log is folded into the file."""
        with self._writing:
            self._closed = True
            while self._idle_readers:
                self._idle_readers.pop().close()
            self._writer.close()

    # --- small parts -----------------------------------------------------------------

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with self._writing, translated(self.path):
            self._refuse_when_gone()
            with transaction(self._writer):
                yield self._writer

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        with translated(self.path):
            reader = self._borrow_reader()
            try:
                yield reader
            finally:
                self._idle_readers.append(reader)
                if self._closed:
                    self._idle_readers.pop().close()

    def _borrow_reader(self) -> sqlite3.Connection:
        if self._closed:
            raise sqlite3.ProgrammingError("it has been closed")
        try:
            return self._idle_readers.pop()
        except IndexError:
            reader = connect(self.path, timeout_s=self._timeout_s)
            reader.execute("PRAGMA query_only = ON")
            return reader

    def _rows(self, query: str, parameters: tuple[Any, ...] | dict[str, Any]) -> list[tuple[Any, ...]]:
        with self._read() as reader:
            return reader.execute(query, parameters).fetchall()

    def _check_epoch(self, writer: sqlite3.Connection, epoch: int) -> None:
        if writer.execute(SQL["epoch"]).fetchone()[0] != epoch:
            raise Fenced(f"another host has taken over {self.path}")

    def _refuse_when_gone(self) -> None:
        """SQLite would go on writing into a deleted file, and acknowledged jobs would be lost with it."""
        if _identity(self.path) != self._identity:
            raise StoreUnavailable(
                f"The job database {self.path} was removed or replaced while it was in use.",
                hint="Put it back, or restart the host so that it opens the new one.",
            )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        info = os.stat(path)  # noqa: PTH116  the path's own stat is slower, and this runs in every write
    except FileNotFoundError:
        return None
    return info.st_dev, info.st_ino


def _hour(at: float) -> int:
    return int(at // 3600)


def _encode(value: object) -> str:
    return _encoder.encode(value).decode()


def _job_row(job: Job, state: str) -> tuple[object, ...]:
    key = job.idempotency_key
    row = (job.id, job.owner, job.phase.value, job.name, job.submitted_at, job.live, key, state)
    return (*row, job.code, job.batch_id)


def _job_id(change: Entry) -> JobId | None:
    return change.job.id if isinstance(change, Change) else None


def _pruned_to(connection: sqlite3.Connection) -> int:
    row = connection.execute(SQL["pruned_to"]).fetchone()
    return row[0] if row else 0


def _usage_of_gone(connection: sqlite3.Connection) -> Usage:
    row = connection.execute(SQL["usage_of_gone"]).fetchone()
    return _usages.decode(row[0]) if row else Usage()


def _last_seq(connection: sqlite3.Connection) -> int:
    row = connection.execute(SQL["last_seq"]).fetchone()
    return row[0] if row else 0
