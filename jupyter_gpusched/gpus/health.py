"""How a card is, from one reading to the next: ok, unknown, lost, or quarantined after a loss.

Pure. A card that was lost and can be read again is watched for a while before it is given
jobs, since a card that fell off the bus once does so again.
"""

from __future__ import annotations

from dataclasses import dataclass

from .causes import LOST, Trouble, card_cause

WATCH_S = 60.0
"""So long a card that was lost must be readable without a fault before it is used again."""

WATCHED = "the card was lost and can be read again; it gets jobs when it has been well for {seconds:.0f} seconds"


@dataclass(frozen=True, slots=True)
class Health:
    """``since`` is when the status began; ``lost`` whether a loss is not forgiven yet, ``well_since`` from when."""

    status: str = "ok"
    cause: str | None = None
    since: float | None = None
    lost: bool = False
    well_since: float | None = None


def judge(before: Health, trouble: Trouble | None, now: float, *, watch_s: float = WATCH_S) -> Health:
    """The health after one more reading, or after none came in time (``trouble`` SILENT)."""
    if trouble is None:
        return _well(before, now, watch_s)
    if trouble.name == "NO_INSTANCES":
        return _as(before, "quarantined", card_cause(trouble), now, lost=before.lost)
    if trouble.name in LOST or trouble.name == "GONE":
        return _as(before, "lost", card_cause(trouble), now, lost=True)
    return _as(before, "unknown", card_cause(trouble), now, lost=before.lost)


def _well(before: Health, now: float, watch_s: float) -> Health:
    if not before.lost:
        return before if before.status == "ok" else Health(since=now)
    well_since = now if before.well_since is None else before.well_since
    if now - well_since >= watch_s:
        return Health(since=now)
    return _as(before, "quarantined", WATCHED.format(seconds=watch_s), now, lost=True, well_since=well_since)


def _as(before: Health, status: str, cause: str, now: float, *, lost: bool, well_since: float | None = None) -> Health:
    """The time stays as long as the status does; the cause is always the latest."""
    since = before.since if before.status == status else now
    return Health(status, cause, since, lost, well_since)
