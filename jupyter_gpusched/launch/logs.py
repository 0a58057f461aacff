"""The log of an attempt as it is read: what was cut out of its middle is skipped, and said in one line.

Offsets are those of all that was ever written, so they never change; a reader is told where to
go on. Reads through the door of ``launch/door.py`` and writes nothing.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

from .door import opened
from .values import integer

TAIL_BYTES = 64 * 1024
"""What is shown of log text that the runner did not journal."""

_MOST_TRIES = 20


class Cut(NamedTuple):
    """The bytes from ``begin`` up to ``end`` are gone, so that the log stays within its limit."""

    begin: int
    end: int


class Chunk(NamedTuple):
    """A piece of a log, and the offset at which to go on."""

    data: bytes
    following: int


def log_size(folder: Path, attempt: int) -> int:
    """Bytes that were ever written to the log; 0 when there is none yet."""
    try:
        with opened(folder, attempt, "log") as descriptor:
            return os.fstat(descriptor).st_size
    except OSError:
        return 0


def read_log(folder: Path, attempt: int, offset: int, limit: int) -> bytes:
    """At most ``limit`` bytes of the log from ``offset`` on; empty at its end or when there is none."""
    return read_chunk(folder, attempt, offset, limit).data


def read_chunk(folder: Path, attempt: int, offset: int, limit: int) -> Chunk:
    """At most ``limit`` bytes from ``offset`` on; where some are gone, a line in their place says how many."""
    for _ in range(_MOST_TRIES):
        cut = read_cut(folder, attempt)
        chunk = _read(folder, attempt, offset, limit, cut)
        if read_cut(folder, attempt) == cut:  # else we may have read what was being taken out
            return chunk
    return Chunk(b"", offset)


def log_tail(folder: Path, attempt: int, limit: int = TAIL_BYTES) -> bytes:
    return read_log(folder, attempt, max(0, log_size(folder, attempt) - limit), limit)


def read_cut(folder: Path, attempt: int) -> Cut | None:
    """What is gone of the log; None when it is whole, or nothing sensible says otherwise."""
    try:
        with opened(folder, attempt, "log.cut") as descriptor:
            raw = json.loads(os.read(descriptor, 200))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(raw, dict):
        return None
    begin, end = integer(raw, "from", least=0, most=2**62), integer(raw, "to", least=0, most=2**62)
    return Cut(begin, end) if begin is not None and end is not None and begin < end else None


def _read(folder: Path, attempt: int, offset: int, limit: int, cut: Cut | None) -> Chunk:
    try:
        with opened(folder, attempt, "log") as descriptor:
            if cut is None or offset >= cut.end or offset + limit <= cut.begin:
                return _plain(descriptor, offset, limit)
            head = os.pread(descriptor, max(0, cut.begin - offset), offset) if offset < cut.begin else b""
            if offset + len(head) < cut.begin:  # somebody made the log shorter: the cut is of an earlier one
                return Chunk(head, offset + len(head))
            from_here = max(offset, cut.begin)
            before = os.pread(descriptor, 1, from_here - 1) if from_here == cut.begin > 0 else b""
            line = missing_line(cut.end - from_here, at_line_start=before in (b"\n", b"") and from_here == cut.begin)
            tail = _plain(descriptor, cut.end, limit - len(head))
            return Chunk(head + line + tail.data, tail.following)
    except OSError:
        return Chunk(b"", offset)


def _plain(descriptor: int, offset: int, limit: int) -> Chunk:
    data = os.pread(descriptor, limit, offset)
    return Chunk(data, offset + len(data))


def missing_line(missing: int, *, at_line_start: bool) -> bytes:
    line = f"[gpusched: {missing:,} bytes are missing here, since the log had reached its limit]\n".encode()
    return line if at_line_start else b"\n" + line
