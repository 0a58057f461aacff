"""How far a running job is, read from what it prints: the last progress bar at the end of its log.

Understands the bars of tqdm, with and without a known total, however a job names them. Pure
text in, figures out; whoever looks at files is ``growth``. Nothing is guessed: without a bar
at the end of the log there is no progress.
"""

from __future__ import annotations

import re

from .wire import Progress

TAIL_BYTES = 4096
"""How much of a log's end is read: a bar that is followed by more than this is an old one."""

_LONGEST_TEXT = 80
_LONGEST_LINE = 500
_AMOUNT = r"\d+(?:\.\d+)?(?:[kKMGTP](?=i?B\b|it\b|[\s/\[]))?"  # of "45Models" the M is no factor
_CLOCK = r"(?:\d+:)?\d{1,3}:\d\d(?::\d\d)?|\?"
_BAR = re.compile(
    rf"(?P<percent>\d{{1,3}})%\|[^|\r\n]*\|\s*(?P<done>{_AMOUNT})i?B?/(?P<total>{_AMOUNT})i?B?"
    rf"\s*\[(?:{_CLOCK})<(?P<left>(?:\d+ days?, )?(?:{_CLOCK}))"
)
_COUNT = re.compile(rf"(?P<done>{_AMOUNT})\s?[^\W\d_]*\s*\[(?:{_CLOCK}),\s")
_CODES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_FACTORS = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


def read_progress(tail: str) -> Progress | None:
    """The last bar that stands in this end of a log, or None when there is none."""
    for whole in reversed(_CODES.sub("", tail).replace("\r", "\n").split("\n")):
        line = whole[-_LONGEST_LINE:]
        if (bar := _BAR.search(line)) is not None:
            return _of_bar(line, bar)
        if "[" in line and (count := _COUNT.search(line)) is not None:
            done = _amount(count["done"])
            return Progress(
                fraction=None,
                done=done,
                total=None,
                text=_words(line[: count.start()], count["done"]),
                remaining_s=None,
            )
    return None


def of_cells(done: int, total: int) -> Progress:
    """The progress of a notebook: its code cells that have run."""
    return Progress(
        fraction=done / total if total else None,
        done=done,
        total=total,
        text=f"{done} of {total} cells",
        remaining_s=None,
    )


def _of_bar(line: str, bar: re.Match[str]) -> Progress:
    done, total = _amount(bar["done"]), _amount(bar["total"])
    exact = done / total if total else int(bar["percent"]) / 100
    return Progress(
        fraction=min(1.0, exact),
        done=done,
        total=total,
        text=_words(line[: bar.start()], f"{bar['done']}/{bar['total']}"),
        remaining_s=_seconds(bar["left"]),
    )


def _words(description: str, figures: str) -> str:
    """What a person reads beside the bar: the job's own name for it, and its figures as printed."""
    named = " ".join(description.split())
    return f"{named} {figures}"[-_LONGEST_TEXT:] if named else figures


def _amount(text: str) -> float:
    factor = _FACTORS.get(text[-1])
    value = float(text[:-1]) * factor if factor else float(text)
    return int(value) if value.is_integer() else value


def _seconds(clock: str) -> float | None:
    """``1:02:03``, ``00:12`` or ``2 days, 1:02:03`` in seconds; None for ``?``."""
    days, _, rest = clock.rpartition("day")
    rest = rest.lstrip("s, ")
    if "?" in rest:
        return None
    span = 0
    for part in rest.split(":"):
        span = 60 * span + int(part)
    return float(span + 86400 * int(days or 0))
