"""Values from files that a job may have written: of the right type and of a sane size, or missing."""

from __future__ import annotations

import math
from typing import Any

LONGEST_TEXT = 4000


def integer(raw: dict[str, Any], name: str, *, least: int = -(2**31), most: int = 2**31) -> int | None:
    value = raw.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most else None


def seconds(raw: dict[str, Any], name: str, *, most: float = 1e11) -> float | None:
    """A time since the epoch."""
    value = raw.get(name)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= most:
        return None
    return float(value) if math.isfinite(value) else None


def text(raw: dict[str, Any], name: str, *, most: int = LONGEST_TEXT) -> str | None:
    value = raw.get(name)
    return as_text(value, most=most) if isinstance(value, str) else None


def as_text(value: object, *, most: int = LONGEST_TEXT) -> str:
    """Text that can be written down, and not too long to be shown."""
    words = str(value)[: most + 1].encode(errors="replace").decode().replace("\0", "?")
    return words if len(words) <= most else words[: most - 3] + "..."
