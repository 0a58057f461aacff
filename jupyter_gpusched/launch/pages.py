"""A journal of lines as it is paged through: where a line begins, whatever its owner wrote there.

The file is as large as a user likes, and of whatever bytes. Lines are counted in blocks and never
kept, so that memory does not depend on the file, and of a file that no runner writes only a
beginning is looked at. Opens nothing itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

MOST_BYTES = 512 * 2**20
"""So much of a journal is looked at: several times what the runner writes."""

_BLOCK = 2**20
_NOTE = b'"log_end": '
_LOG_END = re.compile(_NOTE + rb"(\d{1,18})\}\n")
_LOOKS_BACK = 1000
"""So many places that look like the runner's note are tried: it is in one of the last lines."""


def place_of(descriptor: int, line: int) -> tuple[int, int]:
    """Where the line of this number (0 is the first) begins, and the number; of what is there, if there are fewer."""
    place = counted = 0
    if line == 0:
        return place, counted
    for at, block in _blocks(descriptor, 0, looked_at(descriptor)):
        there = block.count(b"\n")
        if there and counted + there >= line:
            return at + _after_line(block, line - counted), line
        counted += there
        place = at + block.rfind(b"\n") + 1 if there else place
    return place, counted


def cursor_near_end(descriptor: int, newest: int) -> int:
    """The number of the line from which on the whole lines have at most ``newest`` bytes, or of the last one."""
    end = _last_line_end(descriptor, looked_at(descriptor))
    begin = max(0, end - newest)
    if begin:
        begin = _next_line(descriptor, begin - 1, end)
    if begin >= end:  # the last line is served, however long it is
        begin = _last_line_end(descriptor, max(0, end - 1))
    return sum(block.count(b"\n") for _, block in _blocks(descriptor, 0, begin))


def covered(descriptor: int) -> int:
    """How far into the log the journal reaches, as its last line says that says so; 0 where none does."""
    tries = 0
    end = looked_at(descriptor)
    while end > 0 and tries < _LOOKS_BACK:
        begin = max(0, end - _BLOCK)
        block = os.pread(descriptor, end - begin + 64, begin)  # what begins here may end in the next
        found = end - begin
        while (found := block.rfind(_NOTE, 0, found + len(_NOTE) - 1)) >= 0 and tries < _LOOKS_BACK:
            tries += 1
            if noted := _LOG_END.match(block, found):
                return int(noted[1])
        end = begin
    return 0


def looked_at(descriptor: int) -> int:
    return min(os.fstat(descriptor).st_size, MOST_BYTES)


def _blocks(descriptor: int, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    while begin < end and (block := os.pread(descriptor, min(_BLOCK, end - begin), begin)):
        yield begin, block
        begin += len(block)


def _after_line(block: bytes, lines: int) -> int:
    """Where the block goes on after so many lines, which it has: found by halves, since it may be all line ends."""
    low, high = 0, len(block)
    while low < high:
        middle = (low + high) // 2
        if block.count(b"\n", 0, middle) < lines:
            low = middle + 1
        else:
            high = middle
    return low


def _next_line(descriptor: int, begin: int, end: int) -> int:
    """The first beginning of a line after this place; ``end`` when there is none."""
    for at, block in _blocks(descriptor, begin, end):
        if (found := block.find(b"\n")) >= 0:
            return at + found + 1
    return end


def _last_line_end(descriptor: int, end: int) -> int:
    """After the last line end before ``end``; 0 when there is none."""
    while end > 0:
        begin = max(0, end - _BLOCK)
        if (found := os.pread(descriptor, end - begin, begin).rfind(b"\n")) >= 0:
            return begin + found + 1
        end = begin
    return 0
