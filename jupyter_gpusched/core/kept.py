"""The room that the places kept for waiting jobs leave to others.

As a pass meets it once those jobs have been served; views and explanations ask for it.
"""

from __future__ import annotations

from .evict import keep_cleared
from .model import Job, JobId
from .reservations import Gates, seen_past
from .room import Room, keep, open_room, started_since
from .shadow import kept_softly, shadow
from .state import State


def kept_room(state: State, now: float, *, apart_from: JobId | None = None) -> Room:
    """The room as a job meets it that no card is kept for, or for ``apart_from`` that one's own claim aside."""
    room = open_room(state, now)
    claimants = sorted((state.jobs[job_id] for job_id in state.claimants), key=claim_order)
    for job in claimants:
        if job.id != apart_from:
            room = _kept_for(state, room, job, now)
    return room


def claim_order(job: Job) -> tuple[bool, float, str]:
    """In which order claims are looked after: those first for which cards are being cleared."""
    return job.claim is not None and not job.claim.evicting, job.submitted_at, job.id


def _kept_for(state: State, room: Room, job: Job, now: float) -> Room:
    claim = job.claim
    if claim is None:
        return room
    if claim.evicting:
        return keep_cleared(state, room, job.request, claim, ())
    if claim.firm:
        return keep(room, job.request, claim, started_since(state, claim))
    seen = seen_past(room, Gates(state, now).shut(job))
    found = shadow(state, seen, job.request, now, preferred=claim.gpus)
    return room if found is None else kept_softly(room, job.request, found, claim.due)
