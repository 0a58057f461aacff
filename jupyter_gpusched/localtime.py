"""Times of day as people write them, in a time zone by name, as moments.

A time that a change of clocks leaves out, or that it brings twice, is refused with the two things
that may have been meant; one with an offset (``2026-10-25T02:30+01:00``) leaves no doubt.
"""

from __future__ import annotations

import os
import re
import time
from datetime import date, datetime, timezone
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from .core.model import BadRequest

FORMS = "2026-12-04 13:00, 13:00 (of the same day), 2026-12-04T13:00+01:00"
_LAST_YEAR = 9000
_TIME_ONLY = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")
_LOCALTIME = Path("/etc/localtime")


def names_day(text: str) -> bool:
    """Whether a moment is written with its day."""
    return _TIME_ONLY.fullmatch(text.strip()) is None


def zone_of(name: str, *, field: str = "zone") -> ZoneInfo:
    """The time zone of this name, such as ``Europe/Berlin``. Raises ``BadRequest``."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadRequest(
            f"{field}: there is no time zone {name!r} here.",
            field=field,
            hint="Write it as Europe/Berlin or UTC; a machine without zones at all has them by `pip install tzdata`.",
        ) from None


def own_zone() -> str | None:
    """The name of this machine's time zone; None where it has none that could be told to others."""
    named = os.environ.get("TZ", "").removeprefix(":")
    if not named:
        _, found, named = os.path.realpath(_LOCALTIME).partition("zoneinfo/")
        named = named if found else ("UTC" if time.tzname[0] == "UTC" else "")
    try:
        ZoneInfo(named)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
    return named or None


def moment(text: str, zone: ZoneInfo, *, today: date, field: str) -> float:
    """Seconds since the epoch of what somebody wrote; a time without a day is of ``today``.

    Raises ``BadRequest`` for what cannot be read, does not exist in that zone or exists there twice.
    """
    words = text.strip()
    try:
        if _TIME_ONLY.fullmatch(words):
            words = f"{today.isoformat()}T{words.zfill(5) if words.count(':') == 1 else words.zfill(8)}"
        told = datetime.fromisoformat(words.replace("Z", "+00:00") if words.endswith("Z") else words)
        if len(words) <= len("2026-12-04"):
            raise ValueError("no time of day")
        if not 1970 <= told.year <= _LAST_YEAR:  # some zone could not say it
            raise ValueError("no time of ours")
        return told.timestamp() if told.tzinfo is not None else _local(told, zone, field)
    except (ValueError, OverflowError, OSError):
        raise BadRequest(f"{field}: {text!r} is not a time.", field=field, hint=f"Write it as {FORMS}.") from None


def _local(told: datetime, zone: ZoneInfo, field: str) -> float:
    first, second = told.replace(tzinfo=zone, fold=0), told.replace(tzinfo=zone, fold=1)
    if first.utcoffset() == second.utcoffset():
        return first.timestamp()
    shown = told.isoformat(" ", "minutes")
    if _exists(first):
        raise BadRequest(
            f"{field}: {shown} comes twice in {zone.key}, since clocks are put back.",
            field=field,
            hint=f"Write {_exactly(first)} for the first or {_exactly(second)} for the second.",
        )
    later, earlier = (_settled(one) for one in (first, second))
    raise BadRequest(
        f"{field}: {shown} does not exist in {zone.key}, since clocks are put forward.",
        field=field,
        hint=f"Write {_exactly(earlier)} or {_exactly(later)}.",
    )


def _settled(local: datetime) -> datetime:
    """The same moment as clocks really show it."""
    return local.astimezone(timezone.utc).astimezone(local.tzinfo)


def _exists(local: datetime) -> bool:
    return _settled(local).replace(tzinfo=None, fold=0) == local.replace(tzinfo=None, fold=0)


def _exactly(local: datetime) -> str:
    return local.isoformat(timespec="minutes")


def day_of(at: float, zone: ZoneInfo) -> date:
    return datetime.fromtimestamp(at, zone).date()
