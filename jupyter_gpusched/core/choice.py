"""Why an attempt got the cards it got, and for what another was ended: noted when it is decided, told later.

Small frozen values that a job keeps, and their sentences. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Sequence

from .model import Choice, Grant, Job, Priority, Request
from .quantities import show_mib, show_seconds
from .room import Fit, Room, prefers, promise_on
from .wish import count, wish


def noted(room: Room, request: Request, fit: Fit, *, brief: bool, compute: float | None) -> Choice | None:
    """What there was to choose from when these cards were found; None for a job without GPUs."""
    if not fit:
        return None
    chosen = {offer.card.gpu.uuid for offer, _ in fit}
    others = [
        (offer.free, -offer.card.gpu.index)
        for uuid, offer in room.offers.items()
        if uuid not in chosen and promise_on(offer, request, room.settings, brief=brief, compute=compute) is not None
    ]
    roomiest = max(others, default=None)
    return Choice(
        cards=len(room.cards),
        fitting=len(others) + len(fit),
        free=tuple(offer.free for offer, _ in fit),
        preferred=any(prefers(request, offer.card) for offer, _ in fit),
        other=None if roomiest is None else (-roomiest[1], roomiest[0]),
    )


def told(choice: Choice, gpus: Sequence[Grant]) -> str:
    """The sentence: ``placed on GPU 1: it fitted on 2 of 4 GPUs, and this one had least to spare (6.0G free; ...)``."""
    named = "GPU " + str(gpus[0].index) if len(gpus) == 1 else "GPUs " + ", ".join(str(one.index) for one in gpus)
    free = ", ".join(show_mib(mib) for mib in choice.free)
    where = f"placed on {named} with {free} free: "
    if choice.fitting == len(gpus):
        return where + f"no other of {count(choice.cards, 'GPU')} had room for it then"
    fitted = f"it fitted on {choice.fitting} of {count(choice.cards, 'GPU')}"
    if choice.preferred:
        return where + f"{fitted}, and it had asked for {'this one' if len(gpus) == 1 else 'these'}"
    if choice.other is None or choice.other[1] <= max(choice.free):
        return where + f"{fitted}, and the first of those that are alike is taken"
    index, mib = choice.other
    return where + f"{fitted}; the fullest is taken, so that GPU {index} keeps its {show_mib(mib)} for larger jobs"


def beneficiary(job: Job, victim: Job, now: float) -> str:
    """For whom another is ended: whose job, never which one unless it is the same owner's, and what it needs."""
    own = job.owner == victim.owner
    need = f", which needs {wish(job.request)}"
    if job.priority is Priority.HIGH:
        return (f"the more urgent job {job.id}" if own else f"a more urgent job of {job.owner}") + need
    waited = show_seconds(max(0.0, now - job.submitted_at))
    return (f"job {job.id}" if own else f"a job of {job.owner}") + f" that has waited {waited}{need}"
