"""Opens the database file: makes it, checks that it is ours, brings it to the current schema.

A file that is not ours, or newer than us, is refused and left as it is, byte for byte. The
old file is copied before a migration, and no copy is ever overwritten.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from jupyter_gpusched.ports import StoreUnavailable

from .filesystem import network_filesystem
from .trial import Ground, try_out

APPLICATION_ID = 0x67707573  # "gpus": marks the file as ours, for us and for file(1)
VERSION = 5

LOG_BYTES = 5 * 2**20
"""Of the write-ahead log that is laid out beforehand: somewhat more than SQLite lets gather before it folds it in."""

_SPARE = 20
"""How often over there must be room for it: of a disk that is nearly full nothing is taken in advance."""

_HERE = Path(__file__).parent


def migrations_on_disk() -> dict[int, str]:
    """Migration scripts by the version they lead to."""
    return {int(path.name[:4]): path.read_text() for path in (_HERE / "migrations").glob("[0-9]*.sql")}


@dataclass(frozen=True)
class Schema:
    """What a new database is made from, and how older ones get there."""

    version: int = VERSION
    script: str = field(default_factory=(_HERE / "schema.sql").read_text)
    migrations: Mapping[int, str] = field(default_factory=migrations_on_disk)


def connect(path: Path, *, timeout_s: float, read_only: bool = False) -> sqlite3.Connection:
    """A connection that never makes a file and leaves transactions to its user."""
    uri = f"file:{quote(os.fspath(path))}?mode={'ro' if read_only else 'rw'}"
    connection = sqlite3.connect(uri, uri=True, timeout=timeout_s, isolation_level=None, check_same_thread=False)
    # A temporary file elsewhere could fill another disk, or show users' data there.
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def open_database(path: Path, *, timeout_s: float, schema: Schema) -> sqlite3.Connection:
    """The writing connection to a database of the current schema. Raises ``StoreUnavailable`` or sqlite3.Error."""
    _refuse_network(path)
    ground = _tried(path)
    _make_private(path)
    connection = connect(path, timeout_s=timeout_s)
    try:
        version = version_of(connection, path, schema.version)
        _choose_journal(connection, ground)
        connection.execute("PRAGMA synchronous = FULL")  # NORMAL may forget an acknowledged job at power loss
        connection.execute("PRAGMA journal_size_limit = 67108864")
        if version < schema.version:
            _bring_up(connection, path, timeout_s, schema)
    except BaseException:
        connection.close()
        raise
    return connection


def version_of(connection: sqlite3.Connection, path: Path, newest: int = VERSION) -> int:
    """The schema version of a database of ours, 0 for an empty file. Refuses a foreign or newer one."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if application != APPLICATION_ID and not (empty and application == version == 0):
        raise StoreUnavailable(
            f"{path} is a database of another program.",
            hint="Move it away, or set GPUSCHED_HOME to another folder.",
        )
    if version > newest:
        raise StoreUnavailable(
            f"The job database {path} was written by a newer jupyter-gpusched"
            f" (schema {version}; this version knows {newest}).",
            hint="Upgrade jupyter-gpusched, or set GPUSCHED_HOME to another folder.",
        )
    return version


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of it is durable at the end, or none of it happened."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # After some errors (disk full) SQLite has rolled back by itself.
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        raise


def _refuse_network(path: Path) -> None:
    kind = network_filesystem(path.parent)
    if kind is not None:
        raise StoreUnavailable(
            f"The job database {path} would lie on a network file system ({kind}), where it cannot work safely.",
            hint="Set GPUSCHED_HOME to a folder on a local disk of this machine.",
        )


def _tried(path: Path) -> Ground:
    """What works in the folder. Raises ``StoreUnavailable`` where two hosts could write at once."""
    ground = try_out(path.parent)
    if ground.locks is not None:
        raise StoreUnavailable(
            f"The job database {path} cannot work in its folder: {ground.locks}.",
            hint="Set GPUSCHED_HOME to a folder on a local disk of this machine.",
        )
    return ground


def _choose_journal(connection: sqlite3.Connection, ground: Ground) -> None:
    """The write-ahead log lets readers go on while one writes; it needs shared memory. The other journal needs none."""
    if ground.shared_memory is None:
        mode: str = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode == "wal":
            return
    connection.execute("PRAGMA journal_mode = TRUNCATE")


def lay_out_log(path: Path) -> None:
    """Give the write-ahead log its size at once, so that a commit overwrites what is there instead of making it longer.

    A file that grows costs a commit of the file system's own journal each time: 1 to 12 ms instead of 0.1. Only in
    a transaction that writes: then nobody else appends. What we add is no frame of SQLite's, which ends its reading.
    """
    with suppress(OSError):  # no log of this kind, or no room: then it grows
        descriptor = os.open(path.with_name(f"{path.name}-wal"), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            disk = os.fstatvfs(descriptor)
            missing = max(0, LOG_BYTES - (size := os.fstat(descriptor).st_size))
            if missing and disk.f_bavail * disk.f_frsize > _SPARE * LOG_BYTES:
                os.pwrite(descriptor, bytes(missing), size)
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


def refuse_emptied(path: Path, traces: Path) -> None:
    """An empty file where jobs have been (``traces``, their folders) has lost them: no new database is made of it.

    SQLite would even delete the write-ahead log beside it. Any other truncation it notices by itself.
    """
    log = path.with_name(path.name + "-wal")
    if not path.exists() or path.stat().st_size:
        return
    if any(traces.iterdir()) or (log.exists() and log.stat().st_size):
        raise StoreUnavailable(
            f"The job database {path} is empty, although there have been jobs (see {traces}).",
            hint="Restore a copy of it, or delete the empty file (a new one is made).",
        )


def _make_private(path: Path) -> None:
    """Make an empty file that only we can read.

    An existing one is never opened here: closing a second descriptor would drop SQLite's locks on it.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)


def _bring_up(connection: sqlite3.Connection, path: Path, timeout_s: float, schema: Schema) -> None:
    """Make or migrate the tables in one transaction; whoever comes second finds it done."""
    with transaction(connection):
        version = version_of(connection, path, schema.version)
        if version == 0:
            _run(connection, schema.script)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        elif version < schema.version:
            keep_copy(path, version, timeout_s)
            for step in range(version + 1, schema.version + 1):
                _run(connection, schema.migrations[step])
        connection.execute(f"PRAGMA user_version = {schema.version}")


def keep_copy(path: Path, version: int, timeout_s: float) -> Path:
    """Copy the database beside itself, as ``NAME.vN.bak`` or with a number after it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.bak")
    with suppress(FileNotFoundError):
        temporary.unlink()
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    try:
        with closing(connect(path, timeout_s=timeout_s)) as old, closing(sqlite3.connect(temporary)) as copy:
            old.backup(copy)
        return _link_free_name(temporary, path.with_name(f"{path.name}.v{version}.bak"))
    finally:
        temporary.unlink()


def _link_free_name(temporary: Path, wanted: Path) -> Path:
    """Give a file the first free name; linking fails on a taken one, so nothing is overwritten."""
    number = 1
    while True:
        name = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            name.hardlink_to(temporary)
        except FileExistsError:
            number += 1
        else:
            return name


def _run(connection: sqlite3.Connection, script: str) -> None:
    """Run a script statement by statement; ``executescript`` would commit the transaction around it."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""
    if statement.strip():
        connection.execute(statement)
