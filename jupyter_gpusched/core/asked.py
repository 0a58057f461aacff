"""What one can ask for beside room: to start after others, to be held, to be one of an array, to be warned.

Small frozen values that a ``Job`` carries. Nothing here decides anything.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .quantities import parse_seconds

SIGNALS = ("USR1", "USR2", "INT", "TERM", "HUP", "QUIT", "ALRM", "CONT", "WINCH")
"""What a job may be warned with. KILL and STOP can be waited for by nobody."""

NOTICE_FORM = f"For example USR1@60s. Known signals: {' '.join(SIGNALS)}."


class After(NamedTuple):
    """The jobs that must have ended before another may start; ``when``: succeeded | finished (however they ended)."""

    jobs: tuple[str, ...]
    when: str = "succeeded"


class Hold(NamedTuple):
    """A waiting job does not start until it is released. ``by`` is its owner, an administrator or the scheduler."""

    by: str
    cause: str | None
    since: float


class Member(NamedTuple):
    """Which jobs it was submitted together with.

    number    its number in an array, from 0; None in a batch that is none.
    throttle  how many of its array may run at a time; None = all.
    """

    batch_id: str
    number: int | None = None
    throttle: int | None = None


class Notice(NamedTuple):
    """A signal to those processes of a job that wait for it, so long before its time limit."""

    signal: str  # USR1
    before_s: float


def read_notice(text: str) -> Notice:
    """``USR1@60s``. Raises ``ValueError`` with what is wrong."""
    found = re.fullmatch(r"(?:SIG)?([A-Z0-9]+)@(.+)", text)
    if found is None:
        raise ValueError(f"{text!r} is not SIGNAL@SPAN")
    if found[1] not in SIGNALS:
        raise ValueError(f"{found[1]} is no signal that a job can wait for")
    return Notice(found[1], parse_seconds(found[2]))


Swept = str | int | float | bool | None
"""A value that an element of a sweep has for one of its variables."""
