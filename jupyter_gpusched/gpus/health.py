"""How a card is, from one reading to the next: ok, unknown, lost, or without instances to give out.

Pure. Says how the card is now and nothing more: that a card which was lost must not be used again
at once is decided in the core (``core.quarantine``), which outlives the host.
"""

from __future__ import annotations

from dataclasses import dataclass

from .causes import LOST, Trouble, card_cause


@dataclass(frozen=True, slots=True)
class Health:
    """``since`` is when the status began."""

    status: str = "ok"
    cause: str | None = None
    since: float | None = None


def judge(before: Health, trouble: Trouble | None, now: float) -> Health:
    """The health after one more reading, or after none came in time (``trouble`` SILENT).

    The time stays as long as the status does; the cause is always the latest.
    """
    status = _status(trouble)
    if trouble is None:
        return before if before.status == "ok" else Health(since=now)
    return Health(status, card_cause(trouble), before.since if before.status == status else now)


def _status(trouble: Trouble | None) -> str:
    if trouble is None:
        return "ok"
    if trouble.name == "NO_INSTANCES":
        return "quarantined"
    return "lost" if trouble.name in LOST or trouble.name == "GONE" else "unknown"
