"""The files of one attempt, as the host reads and writes them: the only place that knows them.

The folder belongs to the job's user, who may put anything there: every read goes through one
door that follows no link and takes only regular files of the folder's owner. Nothing is
unpickled, and no process is looked at (``launch/processes.py`` does that).
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from jupyter_gpusched.runner.records import durable_replace, leave_stop_file, make_folder, read_stop_file, take_claim
from jupyter_gpusched.runner.tree import boot_id

from .values import integer, seconds, text

Record = dict[str, Any]
Output = dict[str, Any]

LARGEST_RECORD = 1 << 20
PAGE_BYTES = 256 * 1024
"""At most so much of a log goes into one answer as output."""

COUNTED_AT_ONCE = 16 * 2**20
"""Bytes of a journal of outputs that are looked through for its new lines."""

TAIL_BYTES = 64 * 1024
"""What is shown of log text that the runner did not journal."""


def attempt_folder(folder: Path, attempt: int) -> Path:
    return folder / f"attempt-{attempt}"


# The claim and the records


def claim_void(folder: Path, attempt: int, *, at: float, why: str) -> bool:
    """Take the attempt's claim so that no user code of it ever runs; False when it was taken before."""
    make_folder(str(folder))
    make_folder(str(attempt_folder(folder, attempt)))
    record = {"by": "host", "void": True, "pid": os.getpid(), "boot_id": boot_id(), "why": why, "at": at}
    return take_claim(str(attempt_folder(folder, attempt)), record)


def read_claim(folder: Path, attempt: int) -> Record | None:
    """Who has the attempt; None when nobody has.

    A claim that is there but names no process has ``pid`` None: nobody can say who has it.
    """
    raw = _record(folder, attempt, "claim")
    if raw is None:
        return _nobody() if _is_there(folder, attempt, "claim") else None
    if raw.get("void") is True:
        return raw | {"pid": None}
    who = _process(raw)
    if who is None or who["start_time"] is None:
        return raw | _nobody()
    return {**raw, **who, **_identity(raw), "void": False}


def read_started(folder: Path, attempt: int) -> Record | None:
    """Supervisor, main process, boot, marker and time; there once the gate to user code may be open."""
    raw = _record(folder, attempt, "started") or {}
    main, at = _process(raw.get("main")), seconds(raw, "at")
    return None if main is None or at is None else {**raw, **_identity(raw), "main": main, "at": at}


def read_exit(folder: Path, attempt: int) -> Record | None:
    return _record(folder, attempt, "exit.json")


def write_stop(folder: Path, attempt: int, reason: str, grace_s: float) -> None:
    """Say why the attempt is being ended, for the supervisor and the job.

    The first reason stands; asked again for the same, a shorter grace takes the place of the longer.
    """
    place, content = str(attempt_folder(folder, attempt)), f"{reason}\ngrace {grace_s}\n"
    leave_stop_file(place, content)
    with suppress(ValueError):
        first_reason, first_grace_s = read_stop_file(place, grace_s)
        if first_reason == reason and first_grace_s > grace_s:
            durable_replace(place, "stop", content.encode())


def _record(folder: Path, attempt: int, name: str) -> Record | None:
    """One of the supervisor's records; None when it is not there, or is not one."""
    try:
        with _opened(folder, attempt, name) as descriptor:
            found = json.loads(os.read(descriptor, LARGEST_RECORD))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _is_there(folder: Path, attempt: int, name: str) -> bool:
    """Whether anything bears this name, be it a record or not."""
    try:
        os.lstat(attempt_folder(folder, attempt) / name)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def _nobody() -> Record:
    return {"pid": None, "start_time": None, "boot_id": None, "marker": None, "void": False}


def _process(raw: object) -> Record | None:
    """The pid and start time of a process; None where no process can be meant."""
    if not isinstance(raw, dict):
        return None
    pid = integer(raw, "pid", least=2, most=2**22)
    return None if pid is None else {"pid": pid, "start_time": integer(raw, "start_time", least=0, most=2**62)}


def _identity(raw: Record) -> Record:
    marker = text(raw, "marker", most=64)
    return {"boot_id": text(raw, "boot_id", most=64), "marker": marker if marker and marker.isalnum() else None}


# Log and outputs


def log_size(folder: Path, attempt: int) -> int:
    """Bytes in the log; 0 when there is none yet."""
    try:
        with _opened(folder, attempt, "log") as descriptor:
            return os.fstat(descriptor).st_size
    except OSError:
        return 0


def read_log(folder: Path, attempt: int, offset: int, limit: int) -> bytes:
    """At most ``limit`` bytes of the log from ``offset`` on; empty at its end or when there is none."""
    try:
        with _opened(folder, attempt, "log") as descriptor:
            return os.pread(descriptor, limit, offset)
    except OSError:
        return b""


def log_tail(folder: Path, attempt: int, limit: int = TAIL_BYTES) -> bytes:
    return read_log(folder, attempt, max(0, log_size(folder, attempt) - limit), limit)


def cells_done(folder: Path, attempt: int) -> tuple[int, int] | None:
    """The code cells of a notebook job that have run, and all there are; None for other jobs."""
    try:
        with _opened(folder, attempt, "cells") as descriptor:
            words = os.read(descriptor, 100).split()
    except OSError:
        return None
    if len(words) != 2 or not all(word.isdigit() and len(word) < 10 for word in words):
        return None  # the job may have written there, too
    return int(words[0]), int(words[1])


def journaled_since(folder: Path, attempt: int, counted: int) -> tuple[int | None, int]:
    """The end of what can be counted now of the journal of outputs, and its lines after byte ``counted``.

    None when the attempt has no such journal, and its outputs are its log.
    """
    try:
        with _opened(folder, attempt, "outputs.jsonl") as descriptor:
            new = os.pread(descriptor, COUNTED_AT_ONCE, counted)
    except OSError:
        return None, 0
    return counted + len(new), new.count(b"\n")


def outputs(folder: Path, attempt: int, after: int, *, final: bool) -> tuple[list[Output], int]:
    """Outputs from cursor ``after`` on, and the cursor to go on with; 0 is the beginning.

    A cell's outputs are the lines of its journal, and the cursor counts them. All other jobs have
    their log as one stream, and the cursor is a place in it. ``final`` adds what a cell printed
    last without its journal having it, as after SIGKILL.
    """
    items, cursor, _ = newest_outputs(folder, attempt, after, final=final)
    return items, cursor


def newest_outputs(
    folder: Path, attempt: int, after: int, *, final: bool, newest: int | None = None
) -> tuple[list[Output], int, bool]:
    """As ``outputs``, of many about the ``newest`` bytes; and whether some were left out for that."""
    try:
        with _opened(folder, attempt, "outputs.jsonl") as descriptor, os.fdopen(os.dup(descriptor), "rb") as journal:
            lines = journal.read().split(b"\n")
    except OSError:
        start = after if newest is None else _line_start(folder, attempt, log_size(folder, attempt) - newest)
        return *_as_stream(folder, attempt, max(after, start), final=final), start > after
    start = after if newest is None else _cursor_near_end(lines[:-1], after, newest)
    return *_journaled(folder, attempt, lines, start, final=final), start > after


def _cursor_near_end(whole: list[bytes], after: int, newest: int) -> int:
    """The cursor, not before ``after``, from which on these lines have about ``newest`` bytes."""
    size = 0
    for cursor in range(len(whole), after, -1):
        size += len(whole[cursor - 1])
        if size > newest and cursor < len(whole):  # the last line is served, however long it is
            return cursor
    return after


def _line_start(folder: Path, attempt: int, offset: int) -> int:
    """The first beginning of a line after this place in the log, if one is near."""
    if offset <= 0:
        return 0
    _, found, rest = (near := read_log(folder, attempt, offset, PAGE_BYTES)).partition(b"\n")
    return offset + len(near) - len(rest) if found else offset


def _journaled(folder: Path, attempt: int, lines: list[bytes], after: int, *, final: bool) -> tuple[list[Output], int]:
    whole = lines[:-1]  # what follows the last line break is empty, or a line torn by the end of its writer
    items = [_served(output) for line in whole[after:] if (output := _output(line)) is not None]
    if not final or after > len(whole):
        return items, max(after, len(whole))
    items += _gap(folder, attempt, _covered(whole))
    return items, len(whole) + 1


def _output(line: bytes) -> Output | None:
    try:
        output = json.loads(line.decode(errors="replace"))
        if b"\\ud" in line.lower():
            output = _whole_text(output)
    except (ValueError, RecursionError):
        return None
    return output if isinstance(output, dict) else None


def _whole_text(value: Any) -> Any:
    """Without halves of characters, which JSON can name and UTF-8 cannot hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list):
        return [_whole_text(item) for item in value]
    if isinstance(value, dict):
        return {_whole_text(name): _whole_text(item) for name, item in value.items()}
    return value


def _served(output: Output) -> Output:
    """Without what the runner notes for us."""
    return {name: value for name, value in output.items() if name != "log_end"}


def _covered(lines: list[bytes]) -> int:
    """How far into the log the journal reaches."""
    for line in reversed(lines):
        if b'"log_end"' in line and (output := _output(line)) is not None and isinstance(output.get("log_end"), int):
            return int(output["log_end"])
    return 0


def _gap(folder: Path, attempt: int, covered: int) -> list[Output]:
    missing = log_size(folder, attempt) - covered
    if missing <= 0:
        return []
    left_out = max(0, missing - TAIL_BYTES)
    text = read_log(folder, attempt, covered + left_out, TAIL_BYTES).decode(errors="replace")
    if left_out:
        text = f"\n[{left_out} bytes are left out here; the log has them]\n" + text.partition("\n")[2]
    return [_stream(text)]


def _as_stream(folder: Path, attempt: int, after: int, *, final: bool) -> tuple[list[Output], int]:
    raw = read_log(folder, attempt, after, PAGE_BYTES)
    at_end = final and after + len(raw) >= log_size(folder, attempt)
    if not at_end:
        raw = raw[: _whole_characters(raw)]
    return ([_stream(raw.decode(errors="replace"))] if raw else []), after + len(raw)


def _whole_characters(raw: bytes) -> int:
    """Length without a UTF-8 character of which only the beginning is there."""
    for back in range(1, min(4, len(raw)) + 1):
        lead = raw[-back]
        if lead & 0xC0 != 0x80:
            needs = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
            return len(raw) - back if needs > back else len(raw)
    return len(raw)


def _stream(text: str) -> Output:
    return {"output_type": "stream", "name": "stdout", "text": text}


# The door


def read_result(folder: Path, name: str) -> bytes | None:
    """The pickled value that the job left under ``name``, or the output notebook of this name.

    Never unpickled here. None when there is none.
    """
    file_name = name if name.endswith(".ipynb") and "/" not in name else f"{name}.pkl" if name.isidentifier() else None
    if file_name is None:
        return None
    try:
        with _opened_in(folder / "results", file_name) as descriptor, open(descriptor, "rb", closefd=False) as file:
            return file.read()
    except FileNotFoundError:
        return None


def _opened(folder: Path, attempt: int, name: str) -> AbstractContextManager[int]:
    return _opened_in(attempt_folder(folder, attempt), name)


@contextmanager
def _opened_in(place_path: Path, name: str) -> Iterator[int]:
    """A regular file of the owner of its folder; no link is followed."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    place = os.open(place_path, flags | os.O_DIRECTORY)
    try:
        descriptor = os.open(name, flags | os.O_NONBLOCK, dir_fd=place)
        owner = os.fstat(place).st_uid
    finally:
        os.close(place)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != owner:
            raise PermissionError(f"{place_path / name} is not a regular file of its owner")
        yield descriptor
    finally:
        os.close(descriptor)
