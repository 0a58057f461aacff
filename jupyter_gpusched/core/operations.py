"""The nouns of running the machine itself: a drain, quarantined cards, early deaths on cards, alerts.

What an administrator or the scheduler decided about the machine and no job owns. Kept in the
journal, so that it outlives the host. Frozen values only; ``quarantine`` and ``alerts`` decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .model import GpuUuid, JobId
from .quantities import Mib

SCHEDULER = "gpusched"
"""Who did what nobody asked for by name."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Nothing new starts; what runs goes on, and submissions are taken and wait."""

    since: float
    by: str
    cause: str


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A card that gets no jobs until a person, or the configured check, returns it.

    kind  hand | lost | fault (the card reports it about itself) | deaths (jobs died on it at once).
    """

    kind: str
    cause: str
    since: float
    by: str


@dataclass(frozen=True, slots=True)
class Death:
    """An attempt that died on a card soon after its start, in a way that points at the card."""

    job_id: JobId
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Alert:
    """Something a person should look at; it stands from ``alert_raised`` to ``alert_resolved``.

    id           the same for one episode; the next episode of the same trouble has it again.
    since        when the trouble began, as far as is known.
    job_id       an alert about a job is shown to its owner alone.
    own_message  what ``user`` and administrators are told in place of ``message``: content that is nobody else's.
    """

    id: str
    kind: str
    message: str
    since: float
    severity: str  # info | warning | error
    hint: str | None = None
    gpu_uuid: GpuUuid | None = None
    gpu_index: int | None = None
    job_id: JobId | None = None
    user: str | None = None
    own_message: str | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """Cards that are kept for a user in a window of time.

    user   whose jobs may use them then; None = nobody's: they are kept for work outside the queue.
    cards  how many; ``gpus`` names them, or is empty where any will do.
    by     who booked it; ``zone`` is the time zone in which that was said.
    """

    id: str
    user: str | None
    cards: int
    gpus: tuple[GpuUuid, ...]
    start: float
    end: float
    by: str
    zone: str
    cause: str | None = None

    def overlaps(self, other: Reservation) -> bool:
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True, slots=True)
class Operations:
    """How the machine is run at present.

    accepted  per card the fault with which it was returned: the same words do not quarantine it again.
    deaths    per card the early deaths since an attempt last went well there.
    """

    drain: Drain | None = None
    quarantines: Mapping[GpuUuid, Quarantine] = field(default_factory=dict)
    accepted: Mapping[GpuUuid, str] = field(default_factory=dict)
    deaths: Mapping[GpuUuid, tuple[Death, ...]] = field(default_factory=dict)
    alerts: Mapping[str, Alert] = field(default_factory=dict)
    reservations: Mapping[str, Reservation] = field(default_factory=dict)


LITTLE_MIB = Mib(256)
"""Less than this without an owner is the driver's own coming and going, or a desktop: nobody is told of it."""
