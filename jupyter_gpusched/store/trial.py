"""Tries out what the database needs of its file system: locks that exclude, memory that is shared.

The type of a file system does not say how it is mounted, so it is asked by doing. Leaves nothing
behind: the file tried on has no name, or loses it at once.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import secrets
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_OFD_SETLK = 37  # locks of an open file rather than of a process, so that one process can try both sides


@dataclass(frozen=True, slots=True)
class Ground:
    """What works in a folder. ``locks`` and ``shared_memory`` are None, or what went wrong.

    Without locks two hosts could write at once: no database may lie there. Without shared memory
    one may, with another journal than the write-ahead log.
    """

    locks: str | None = None
    shared_memory: str | None = None


def try_out(folder: Path) -> Ground:
    """Raises ``OSError`` where not even a small file can be written."""
    first, second = _open_twice(folder)
    try:
        return Ground(_without_locks(first, second), _without_shared_memory(first, second))
    finally:
        os.close(first)
        os.close(second)


def _open_twice(folder: Path) -> tuple[int, int]:
    """Two open files on one that nobody else can see."""
    name = folder / f".trial-{secrets.token_hex(6)}"
    first = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        return first, os.open(name, os.O_RDWR | os.O_CLOEXEC)
    except BaseException:
        os.close(first)
        raise
    finally:
        with suppress(OSError):
            name.unlink()


def _without_locks(first: int, second: int) -> str | None:
    try:
        for lock in (_flock, _record_lock):
            lock(first)
            try:
                lock(second)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
            else:
                return "two programs can hold the same lock"
    except OSError as error:
        return f"locks do not work: {error.strerror}"
    return None


def _flock(descriptor: int) -> None:
    """As the host's lock."""
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _record_lock(descriptor: int) -> None:
    """As SQLite's."""
    fcntl.fcntl(descriptor, _OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))


def _without_shared_memory(first: int, second: int) -> str | None:
    """Only read through the mapping: a write to it on a full disk would be answered with SIGBUS, not with an error."""
    size = mmap.PAGESIZE
    os.pwrite(first, bytes(size), 0)
    try:
        with mmap.mmap(second, size, mmap.MAP_SHARED, mmap.PROT_READ) as seen:
            os.pwrite(first, b"there", 0)
            if seen[:5] != b"there":
                return "what one program writes another does not see"
    except (OSError, ValueError) as error:
        return f"memory cannot be shared: {getattr(error, 'strerror', None) or error}"
    return None
