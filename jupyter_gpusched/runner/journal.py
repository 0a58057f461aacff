"""What a cell puts out, in order and at once: text into the log, everything into the journal.

The log is the truth for text; the journal (``outputs.jsonl``) holds the same text as stream
records between the rich outputs. Text that reaches the log past Python (subprocesses, C code,
workers) is found by its place in the log and journaled too. Each record says how far into the
log it reaches, so that a reader can add what a crash left out. Bounded; safe across fork.
"""

from __future__ import annotations

import io
import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MOST_TEXT = 8 << 20
"""Bytes of stream text that one attempt journals; the log goes on."""

MOST_RICH = 64 << 20
"""Bytes of rich outputs that one attempt journals."""

RECORD_BYTES = 64 << 10
FLUSH_S = 0.2
_LARGEST_MIX = 4 << 20

_HALVES = re.compile("[\ud800-\udfff]")


class Journal:
    """The two files of one attempt. In a forked child it only passes text on to the log."""

    def __init__(self, folder: str, most_text: int | None = None) -> None:
        self._log = os.open(f"{folder}/log", os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._records = os.open(f"{folder}/outputs.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._aside = os.open(f"{folder}/log", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._lock = threading.RLock()
        self._busy = False  # guards against a signal handler that prints while its own thread is in here
        self._covered = 0  # the log up to here is journaled, or pending
        self._own: list[bytes] = []  # in the log, but not looked for there yet
        self._own_name = "stdout"
        self._own_bytes = 0
        self._pending: list[str] = []
        self._pending_name = "stdout"
        self._pending_bytes = 0
        self._most_text = MOST_TEXT if most_text is None else min(MOST_TEXT, most_text)
        self._text_left = self._most_text
        self._rich_left = MOST_RICH
        self._dropped = [0, 0]  # rich outputs that were left out, and their bytes
        self._told_dropped = 0
        self._mark: dict[str, Any] = {}
        self.owner = True
        os.register_at_fork(
            before=self._lock.acquire, after_in_parent=self._lock.release, after_in_child=self._become_passive
        )

    def start(self) -> None:
        threading.Thread(target=self._keep_flushing, name="gpusched-journal", daemon=True).start()

    def mark(self, words: dict[str, Any]) -> None:
        """From here on, records bear these words: where in the work they belong."""
        self.catch_up()
        self._mark = words

    def text(self, name: str, text: str) -> None:
        """Write to the log at once; journal soon. ``name`` is stdout or stderr."""
        content = text.encode("utf-8", "backslashreplace")
        if not self.owner:
            _write_all(1 if name == "stdout" else 2, content)
            return
        with self._lock:  # as _turn, which costs more: programs print a lot
            if self._busy:
                _write_all(self._aside, content)  # found again in the log
                return
            self._busy = True
            try:
                if name != self._own_name or self._own_bytes >= RECORD_BYTES:
                    self._settle()
                    self._own_name = name
                _write_all(self._log, content)
                self._own.append(content)
                self._own_bytes += len(content)
            finally:
                self._busy = False

    def rich(self, output: dict[str, Any], text: str = "") -> None:
        """Journal an output that is not a stream; ``text`` stands for it in the log."""
        if not self.owner:
            self.text("stdout", text)
            return
        with self._turn() as mine:
            if mine:
                self._settle()
                begin, end = self._append(text.encode("utf-8", "backslashreplace"))
                self._take_foreign(begin)
                self._covered = end
                self._flush()
            self._record_rich(output)

    def catch_up(self, *, whole: bool = False) -> None:
        """Journal what is in the log by now; ``whole`` also a character that is not complete yet."""
        with self._turn() as mine:
            if mine and self.owner:
                self._settle()
                self._take_foreign(os.fstat(self._log).st_size, whole=whole)
                self._flush()
                if whole:
                    self._tell_dropped()

    @contextmanager
    def _turn(self) -> Iterator[bool]:
        """One thread at a time; False for a signal handler within its own thread's turn."""
        with self._lock:
            mine = not self._busy
            self._busy = True
            try:
                yield mine
            finally:
                self._busy = not mine

    def _settle(self) -> None:
        """Find in the log what we have printed, and what others wrote in between."""
        if not self._own:
            return
        own, self._own, self._own_bytes = self._own, [], 0
        begin, end = self._covered, os.lseek(self._log, 0, os.SEEK_CUR)
        text = b"".join(own)
        if end - begin == len(text):
            self._pend(self._own_name, text.decode(), end)
        elif end - begin <= _LARGEST_MIX:
            mixed = os.pread(self._log, end - begin, begin)
            for content in own:
                place = mixed.find(content, self._covered - begin)
                if place >= 0:
                    self._take_foreign(begin + place)
                    self._pend(self._own_name, content.decode(), begin + place + len(content))
        self._take_foreign(end)

    def _flush(self) -> None:
        if self._pending:
            text = "".join(self._pending)
            self._pending, self._pending_bytes = [], 0
            self._record({"output_type": "stream", "name": self._pending_name, "text": text})

    def _append(self, content: bytes) -> tuple[int, int]:
        """Add to the log; return where it stands. Others may append too, so only the offset afterwards is sure."""
        if not content:
            size = os.fstat(self._log).st_size
            return size, size
        _write_all(self._log, content)
        end = os.lseek(self._log, 0, os.SEEK_CUR)
        return end - len(content), end

    def _take_foreign(self, until: int, *, whole: bool = True) -> None:
        """Take the log's bytes from where we know it up to ``until``: somebody else wrote them."""
        while self._covered < until and self._text_left > 0:
            raw = os.pread(self._log, min(RECORD_BYTES, until - self._covered), self._covered)
            at_end = self._covered + len(raw) >= until
            raw = raw if whole and at_end else raw[: whole_characters(raw)]
            if not raw:
                return
            self._pend("stdout", raw.decode("utf-8", "replace"), self._covered + len(raw))
        if self._text_left <= 0:
            self._covered = max(self._covered, until)

    def _pend(self, name: str, text: str, end: int) -> None:
        if self._text_left <= 0:
            self._covered = end
            return
        if name != self._pending_name:
            self._flush()
            self._pending_name = name
        self._pending.append(text)
        self._pending_bytes += end - self._covered
        self._text_left -= end - self._covered
        self._covered = end
        if self._pending_bytes >= RECORD_BYTES:
            self._flush()
        if self._text_left <= 0:
            self._flush()
            self._record(_notice(f"more than {self._most_text / 2**20:.1f} MiB were printed; the rest is in the log"))

    def _record_rich(self, output: dict[str, Any]) -> None:
        line = self._line(output)
        if self._rich_left >= len(line):
            self._rich_left -= len(line)
            _write_all(self._records, line)
            return
        self._rich_left = 0
        self._dropped[0] += 1
        self._dropped[1] += len(line)
        if not self._told_dropped:
            self._tell_dropped()

    def _tell_dropped(self) -> None:
        """One output in place of all that were left out; its figures are brought up to date at the end."""
        count, size = self._dropped
        if count == self._told_dropped:
            return
        text = (
            f"[gpusched: rich outputs beyond {MOST_RICH >> 20} MiB are left out: "
            f"{count:,} of {size / 2**20:,.1f} MiB so far]"
        )
        kind = "update_display_data" if self._told_dropped else "display_data"
        self._told_dropped = count
        shown = {"data": {"text/plain": text}, "metadata": {}, "transient": {"display_id": "gpusched-left-out"}}
        self._record({"output_type": kind, **shown})

    def _record(self, output: dict[str, Any]) -> None:
        _write_all(self._records, self._line(output))

    def _line(self, output: dict[str, Any]) -> bytes:
        covered = self._covered if self._text_left > 0 or output["output_type"] == "stream" else None
        place = {} if covered is None else {"log_end": covered}
        return _utf8(json.dumps({**output, **self._mark, **place}, default=str, ensure_ascii=False)) + b"\n"

    def _keep_flushing(self) -> None:
        pause = threading.Event()
        while not pause.wait(FLUSH_S):
            self.catch_up()

    def _become_passive(self) -> None:
        self.owner = False
        self._lock = threading.RLock()
        self._busy = False
        self._pending = []
        self._own, self._own_bytes = [], 0


class JobStream(io.TextIOBase):
    """``sys.stdout`` or ``sys.stderr`` of a cell job: text, never a terminal, shown as it is written."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, journal: Journal, name: str) -> None:
        super().__init__()
        self._journal = journal
        self._stream = name
        self.name = f"<{name}>"
        self.mode = "w"
        self.buffer = _Bytes(self)

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if text:
            self._journal.text(self._stream, text)
        return len(text)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1 if self._stream == "stdout" else 2

    def reconfigure(self, **_: object) -> None:
        """It is UTF-8 and unbuffered already."""


class _Bytes(io.RawIOBase):
    """The bytes under a text stream, for code that writes to ``sys.stdout.buffer``."""

    def __init__(self, stream: JobStream) -> None:
        super().__init__()
        self._stream = stream

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, content: Any) -> int:
        raw = bytes(content)
        _write_all(self.fileno(), raw)  # it is found again in the log
        return len(raw)


def whole_characters(raw: bytes) -> int:
    """Length without a UTF-8 character of which only the beginning is there."""
    for back in range(1, min(4, len(raw)) + 1):
        lead = raw[-back]
        if lead & 0xC0 != 0x80:
            needs = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
            return len(raw) - back if needs > back else len(raw)
    return len(raw)


def _notice(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stderr", "text": f"\n[gpusched: {text}]\n"}


def _utf8(json_text: str) -> bytes:
    """JSON as UTF-8; half a character (a lone surrogate) is shown by its number, as in the log."""
    try:
        return json_text.encode()
    except UnicodeEncodeError:
        return _HALVES.sub(lambda half: f"\\\\u{ord(half[0]):x}", json_text).encode()


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
