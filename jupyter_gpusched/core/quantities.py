"""Amounts of memory and spans of time as people write them.

Owns the accepted forms (``4G``, ``4096M``, ``90s``, ``2h``) and the one form in which
amounts are shown. All units are binary; a bare number is refused, because ``--vram 4``
meaning 4 MiB or 4 GiB is how cards get over-committed.
"""

from __future__ import annotations

import math
import re
from typing import NewType

Mib = NewType("Mib", int)
"""An amount of memory in MiB (2**20 bytes)."""

MEMORY_FORMS = "4G, 4GB, 4GiB, 4096M or 0.5G (all binary: 1G is 1024 MiB)"
TIME_FORMS = "90s, 15m, 2h or 1d"

_MEMORY = re.compile(r"(\d+(?:\.\d+)?)([MGT])(?:i?B)?", re.IGNORECASE)
_MIB_PER = {"M": 1, "G": 1024, "T": 1024 * 1024}
_LARGEST_MIB = 1024 * 1024 * 1024  # one PiB: beyond any machine, and far from float trouble

_TIME = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)", re.IGNORECASE)
_SECONDS_PER = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST_S = 10 * 366 * 86400.0


def parse_mib(text: object) -> Mib:
    """Read an amount of memory; fractions of a MiB are rounded up.

    Raises ``ValueError`` whose text names the accepted forms.
    """
    match = _MEMORY.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r} is not an amount of memory; write it as {MEMORY_FORMS}")
    mib = float(match[1]) * _MIB_PER[match[2].upper()]
    if not 0 < mib <= _LARGEST_MIB:
        raise ValueError(f"{text!r} is out of range; write an amount above zero as {MEMORY_FORMS}")
    return Mib(math.ceil(mib))


def parse_seconds(text: object, *, zero: bool = False) -> float:
    """Read a span of time in seconds; ``zero`` allows ``0s``.

    Raises ``ValueError`` whose text names the accepted forms.
    """
    match = _TIME.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r} is not a span of time; write it as {TIME_FORMS}")
    seconds = float(match[1]) * _SECONDS_PER[match[2].lower()]
    if not (0 < seconds <= _LONGEST_S or (zero and seconds == 0)):
        raise ValueError(f"{text!r} is out of range; write a span above zero as {TIME_FORMS}")
    return seconds


def show_mib(mib: float | None) -> str:
    """The one form in which memory is shown to a person: ``6.0G``, or ``n/a``."""
    return "n/a" if mib is None else f"{mib / 1024:.1f}G"


def show_little(mib: float) -> str:
    """An amount that may be far below one GiB: ``10 MiB``, ``6.0G``."""
    return f"{mib:.0f} MiB" if mib < 1024 else show_mib(mib)


def show_seconds(seconds: float | None) -> str:
    """A span of time for a person: ``4s``, ``3m10s``, ``2h05m``, ``1d04h``."""
    if seconds is None:
        return "n/a"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"
