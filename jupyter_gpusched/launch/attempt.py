"""The files of one attempt, as the host reads and writes them: the only place that knows them.

The folder belongs to the job's user, who may put anything there: every read goes through one
door that follows no link and takes only regular files of the folder's owner. Nothing is
unpickled, and no process is looked at (``launch/processes.py`` does that).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from jupyter_gpusched.runner.records import (
    durable_replace,
    leave_stop_file,
    make_folder,
    read_stop_file,
    take_claim,
    to_json,
    write_file,
)
from jupyter_gpusched.runner.tree import boot_id

from .door import as_owner_of, attempt_folder
from .door import opened as _opened
from .door import opened_in as _opened_in
from .folders import lay_folder
from .logs import TAIL_BYTES, log_size, read_chunk, read_log
from .owners import Owner
from .pages import covered, cursor_near_end, looked_at, place_of
from .values import integer, seconds, text

Record = dict[str, Any]
Output = dict[str, Any]

CURVE, TIMELINE = "memory.json", "timeline.json"

LARGEST_RECORD = 1 << 20
PAGE_BYTES = 256 * 1024
"""At most so much of a log goes into one answer as output."""

OUTPUTS_PAGE_BYTES = 8 * 2**20
"""So much of a journal of outputs goes into one answer, and the line that goes beyond it."""

OUTPUTS_PAGE_LINES = 20_000
"""So many lines of a journal are decoded for one answer, however short they are."""

MOST_PARTS = 2**20
"""An output of more lists, objects and values is not decoded: all of the host would wait for it."""

LONGEST_LINE = 64 * 2**20
"""An output that is longer ends what is read of the journal."""

COUNTED_AT_ONCE = 16 * 2**20
"""Bytes of a journal of outputs that are looked through for its new lines."""


# The claim and the records


def claim_void(folder: Path, attempt: int, *, at: float, why: str, owner: Owner | None = None) -> bool:
    """Take the attempt's claim so that no user code of it ever runs; False when it was taken before."""
    lay_folder(folder, owner)
    record = {"by": "host", "void": True, "pid": os.getpid(), "boot_id": boot_id(), "why": why, "at": at}
    with as_owner_of(folder, attempt_folder(folder, attempt)):
        make_folder(str(attempt_folder(folder, attempt)))
        return take_claim(str(attempt_folder(folder, attempt)), record)


def read_claim(folder: Path, attempt: int) -> Record | None:
    """Who has the attempt; None when nobody has.

    A claim that is there but names no process has ``pid`` None: nobody can say who has it.
    """
    raw = _record(folder, attempt, "claim")
    if raw is None and _is_there(folder, attempt, "claim"):
        raw = _record(folder, attempt, "claim")  # taken between the two looks: whole from its first moment
        if raw is None:
            return _nobody()
    if raw is None:
        return None
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

    The first reason stands, whoever gave it; a shorter grace takes the place of a longer one.
    """
    place, content = str(attempt_folder(folder, attempt)), f"{reason}\ngrace {grace_s}\n"
    with as_owner_of(folder, attempt_folder(folder, attempt)), suppress(ValueError):
        leave_stop_file(place, content)
        first_reason, first_grace_s = read_stop_file(place, grace_s)
        if first_grace_s > grace_s:
            durable_replace(place, "stop", f"{first_reason}\ngrace {grace_s}\n".encode())


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
        with as_owner_of(folder, attempt_folder(folder, attempt)):
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
            new = os.pread(descriptor, min(COUNTED_AT_ONCE, max(0, looked_at(descriptor) - counted)), counted)
    except OSError:
        return None, 0
    return counted + len(new), new.count(b"\n")


def outputs(folder: Path, attempt: int, after: int, *, final: bool) -> tuple[list[Output], int]:
    """Outputs from cursor ``after`` on, and the cursor to go on with; 0 is the beginning.

    A cell's outputs are the lines of its journal, and the cursor counts them. All other jobs have
    their log as one stream, and the cursor is a place in it. At most a page of them is returned;
    what is asked for again with the same cursor and brings nothing is the end. ``final`` adds what
    a cell printed last without its journal having it, as after SIGKILL.
    """
    items, cursor, _ = newest_outputs(folder, attempt, after, final=final)
    return items, cursor


def newest_outputs(
    folder: Path, attempt: int, after: int, *, final: bool, newest: int | None = None
) -> tuple[list[Output], int, bool]:
    """As ``outputs``, of many about the ``newest`` bytes; and whether some were left out for that."""
    try:
        with _opened(folder, attempt, "outputs.jsonl") as descriptor:
            start = after if newest is None else max(after, cursor_near_end(descriptor, newest))
            return *_journaled(folder, attempt, descriptor, start, final=final), start > after
    except OSError:
        start = after if newest is None else _line_start(folder, attempt, log_size(folder, attempt) - newest)
        return *_as_stream(folder, attempt, max(after, start), final=final), start > after


def _journaled(folder: Path, attempt: int, descriptor: int, after: int, *, final: bool) -> tuple[list[Output], int]:
    items: list[Output] = []
    place, whole = place_of(descriptor, after)
    if whole < after:
        return items, after
    end, page_end, last_line = looked_at(descriptor), place + OUTPUTS_PAGE_BYTES, after + OUTPUTS_PAGE_LINES
    with os.fdopen(os.dup(descriptor), "rb") as journal:
        journal.seek(place)
        while line := journal.readline(min(LONGEST_LINE, end - place)):
            if not line.endswith(b"\n"):  # torn by the end of its writer
                break
            whole, place = whole + 1, place + len(line)
            items += [] if (output := _output(line)) is None else [_served(output)]
            if place > page_end or whole >= last_line:
                return items, whole
    if not final:
        return items, whole
    items += _gap(folder, attempt, covered(descriptor))
    return items, whole + 1


def _line_start(folder: Path, attempt: int, offset: int) -> int:
    """The first beginning of a line after this place in the log, if one is near."""
    if offset <= 0:
        return 0
    _, found, rest = (near := read_log(folder, attempt, offset, PAGE_BYTES)).partition(b"\n")
    return offset + len(near) - len(rest) if found else offset


def _output(line: bytes) -> Output | None:
    if sum(map(line.count, (b"[", b"{", b","))) > MOST_PARTS:
        return _stream(f"[gpusched: an output of {len(line):,} bytes is left out here: it has too many parts]\n")
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


def _gap(folder: Path, attempt: int, reached: int) -> list[Output]:
    missing = log_size(folder, attempt) - reached
    if missing <= 0:
        return []
    left_out = max(0, missing - TAIL_BYTES)
    text = read_log(folder, attempt, reached + left_out, TAIL_BYTES).decode(errors="replace")
    if left_out:
        text = f"\n[{left_out} bytes are left out here; the log has them]\n" + text.partition("\n")[2]
    return [_stream(text)]


def _as_stream(folder: Path, attempt: int, after: int, *, final: bool) -> tuple[list[Output], int]:
    raw, following = read_chunk(folder, attempt, after, PAGE_BYTES)
    if not (final and following >= log_size(folder, attempt)):
        whole = _whole_characters(raw)
        raw, following = raw[:whole], following - (len(raw) - whole)
    return ([_stream(raw.decode(errors="replace"))] if raw else []), following


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


# What the host leaves with a job of its use of memory


def keep_memory_curve(folder: Path, points: Sequence[tuple[float, int]]) -> None:
    """Put a job's use over its life into its folder. Raises ``OSError``, also where the folder is gone."""
    _replace(folder, folder, CURVE, to_json([list(point) for point in points]))


def memory_curve(folder: Path) -> list[tuple[float, int]]:
    """What was kept, without what makes no sense: the folder is the user's. Empty where nothing was kept."""
    rows = _listed(folder, folder, CURVE)
    points = [{"at": row[0], "used": row[1]} for row in rows if isinstance(row, list) and len(row) == 2]
    known = ((seconds(point, "at"), integer(point, "used", least=0)) for point in points)
    return [(at, used) for at, used in known if at is not None and used is not None]


def keep_timeline(folder: Path, attempt: int, rows: Sequence[Record]) -> None:
    """Leave with an attempt who held what before it ran out of memory. Raises ``OSError``."""
    _replace(folder, attempt_folder(folder, attempt), TIMELINE, to_json(list(rows)))


def timeline(folder: Path, attempt: int) -> list[Record]:
    """What was left with the attempt; empty where nothing was."""
    return [row for row in _listed(folder, attempt_folder(folder, attempt), TIMELINE) if isinstance(row, dict)]


def _replace(folder: Path, place: Path, name: str, text: str) -> None:
    """Whole or not at all; a loss of power may take it, which is worth no wait for the disk."""
    with as_owner_of(folder, place):
        write_file(f"{place}/.{name}", text.encode())
        (place / f".{name}").rename(place / name)


def _listed(folder: Path, place: Path, name: str) -> list[Any]:
    try:
        with _opened_in(folder, place, name) as descriptor:
            found = json.loads(os.read(descriptor, LARGEST_RECORD))
    except (OSError, ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []


# The door


@contextmanager
def opened_result(folder: Path, name: str) -> Iterator[int | None]:
    """The pickled value that the job left under ``name``, or the output notebook of this name, open to be read.

    Never unpickled here, and never read whole: it is as large as its owner likes. None when there is none.
    """
    file_name = name if name.endswith(".ipynb") and "/" not in name else f"{name}.pkl" if name.isidentifier() else None
    with ExitStack() as stack:
        descriptor = None
        if file_name is not None:
            with suppress(OSError):  # what is no file of its owner is not there
                descriptor = stack.enter_context(_opened_in(folder, folder / "results", file_name))
        yield descriptor
