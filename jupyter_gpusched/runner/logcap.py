"""Keeps the log of an attempt within its limit while the job writes on, by taking out its middle.

The log is the job's own standard output: it can be neither rotated nor copied. Instead the disk
space between its head and its tail is given back (a hole is punched), so that byte offsets stay
what they were and the job notices nothing. ``log.cut`` says what is gone, and is written first:
a reader never takes the zeros of a hole for output. Used by the supervisor alone, so that it
works without a host; it wakes up only while a log grows.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import os

from .native import call
from .records import to_json, write_file

GROWN = int(signal.SIGIO)
"""The signal by which the kernel says that something was written."""

SOONEST_S = 0.5
LATEST_S = 10.0
FASTEST_BYTES_S = 512 << 20
"""A log is looked at again before it can have grown by what is left to its limit, written so fast."""

_SEAM = 64 << 10
_LARGEST_BLOCK = 1 << 20
"""File systems give back whole blocks only."""

_KEEP_SIZE, _PUNCH_HOLE = 1, 2


class LogCap:
    """The limit of one log. ``look_at`` is when it must be looked at, by the monotonic clock; None = once it grows.

    log    its descriptor, open for reading too.
    limit  bytes on disk; a quarter is kept as the head, between a half and three quarters as the tail.
    """

    def __init__(self, folder: str, log: int, limit: int | None, now: float) -> None:
        self._folder = folder
        self._log = log
        self._limit = limit
        self._cut: tuple[int, int] | None = None
        self._size = 0
        self._pause_s = SOONEST_S
        self._bell: int | None = None  # the folder, held open for the kernel's word that something was written there
        self.look_at: float | None = None
        if limit is not None:
            self._rest(now)

    def noticed(self, now: float) -> None:
        """Something was written; more will come before we look."""
        if self.look_at is None and self._limit is not None:
            self.look_at = now + self._pause(self._size)

    def look(self, now: float) -> None:
        """Take out what is too much, if anything; then see whether the log still grows."""
        if self._limit is None or self.look_at is None or now < self.look_at:
            return
        size = os.fstat(self._log).st_size
        try:
            self._shorten(size)
        except OSError:  # the marker does not fit on a full disk: next time, perhaps
            self._pause_s = LATEST_S
        if size == self._size:
            self._rest(now)
        elif self._limit is not None:
            self._size = size
            self.look_at = now + self._pause(size)

    def finish(self) -> None:
        """The last look, once nothing writes any more."""
        if self._limit is not None:
            try:
                self._shorten(os.fstat(self._log).st_size)
            except OSError:
                return

    def _pause(self, size: int) -> float:
        room = (self._limit or 0) - size + self._missing
        self._pause_s = max(SOONEST_S, min(LATEST_S, room / FASTEST_BYTES_S))
        return self._pause_s

    @property
    def _missing(self) -> int:
        return self._cut[1] - self._cut[0] if self._cut else 0

    def _rest(self, now: float) -> None:
        """Sleep until something is written; where the kernel cannot tell, look now and then."""
        if self._listen() and os.fstat(self._log).st_size == self._size:
            self.look_at = None
        else:
            self._pause_s = min(LATEST_S, 2 * self._pause_s)
            self.look_at = now + self._pause_s

    def _listen(self) -> bool:
        """Ask for one signal at the next write into our folder; it costs the job nothing."""
        try:
            import fcntl  # 0.5 ms that no job need wait for

            if self._bell is None:
                self._bell = os.open(self._folder, os.O_RDONLY)
            fcntl.fcntl(self._bell, fcntl.F_NOTIFY, fcntl.DN_MODIFY)
        except (OSError, ImportError):
            return False
        return True

    def _shorten(self, size: int) -> None:
        limit = self._limit or 0
        if size - self._missing <= limit:
            return
        if self._cut is None and not can_punch(self._log):
            self._limit = self.look_at = None  # as ``doctor`` says of such file systems: the log stays whole
            return
        begin = self._cut[0] if self._cut else self._seam(limit // 4, last=True)
        end = self._seam(size - limit // 2, last=False)
        if end <= (self._cut[1] if self._cut else begin):
            return
        cut = to_json({"from": begin, "to": end}).encode()
        write_file(f"{self._folder}/.log.cut", cut)
        os.rename(f"{self._folder}/.log.cut", f"{self._folder}/log.cut")
        # The block in which the cut before ended had to stay: again from before it, or each cut leaves one.
        punched_from = max(begin, self._cut[1] - _LARGEST_BLOCK) if self._cut else begin
        self._cut = (begin, end)
        punch(self._log, punched_from, end)

    def _seam(self, near: int, *, last: bool) -> int:
        """A place to cut between two lines, or at least between two characters.

        last  the last such place before ``near``, else the first one after it.
        """
        start = max(0, near - _SEAM) if last else near
        text = os.pread(self._log, _SEAM, start)
        place = text.rfind(b"\n") if last else text.find(b"\n")
        if place >= 0:
            return start + place + 1
        return near - _into_character(os.pread(self._log, 4, near), os.pread(self._log, 3, near - 3))


def _into_character(after: bytes, before: bytes) -> int:
    """How many bytes of a UTF-8 character lie before a place in it; 0 between two characters."""
    if not after or after[0] & 0xC0 != 0x80:
        return 0
    for back in range(1, len(before) + 1):
        if before[-back] & 0xC0 != 0x80:
            return back
    return 0


def punch(descriptor: int, begin: int, end: int) -> None:
    """Give back the disk space of these bytes; they read as zeros from now on, and no other byte moves."""
    call("fallocate", descriptor, _KEEP_SIZE | _PUNCH_HOLE, begin, end - begin)


def can_punch(descriptor: int) -> bool:
    """Whether this file's file system can give back space; tried where there is none to give."""
    try:
        punch(descriptor, 1 << 40, (1 << 40) + 4096)
    except OSError:
        return False
    return True
