"""Why a job waits: one current sentence with numbers, and its position in the queue.

The sentences are told from the same room in which ``policy`` looks for a place, so that
they never claim what the scheduler does not see. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from . import asides
from .alerts import opened
from .barred import Barred, barred
from .facts import Facts, rests, waits_since
from .kept import kept_room
from .ledger import Card, serves
from .model import Claim, GpuUuid, Grant, Job, JobId, Outcome, Phase, Request
from .operations import LITTLE_MIB
from .overuse import most_allowed
from .quantities import Mib, show_mib, show_seconds
from .queue import LineKey, line_key
from .quota import Quota
from .reservations import Gates, seen_past
from .room import Room, find, host_left, prefers, promise_on, too_busy, without_claim
from .standing import Standing
from .state import State
from .wish import count, wish

STARTS = "starts with the next pass"

Bars = tuple[frozenset[GpuUuid], tuple[str, ...], float | None] | None


def positions(state: State, now: float) -> dict[JobId, int]:
    """The place of every queued job, from 1, in the order in which jobs are looked at; then those set aside, by age."""
    return Standing(state, now).positions()


def _aside(state: State) -> Iterable[JobId]:
    return (job_id for _, job_id in state.asides.waiting)


def waiting(state: State, job: Job, now: float) -> str | None:
    """Why this job has not started; None for a job that does not wait."""
    if job.phase is not Phase.QUEUED:
        return None
    if (aside := asides.words(job, state.jobs)) is not None:
        return aside
    if (drained := _drained(state)) is not None:
        return drained
    room = kept_room(state, now, apart_from=job.id)
    return _Words(state, now, room).about(job, line_key(job, state.past.history))


def waiting_all(state: State, now: float, jobs: Iterable[Job] | None = None) -> dict[JobId, str]:
    """The sentences of many queued jobs, or of all; those that are alike are told the same."""
    if jobs is None:
        everybody = [*(rank.job_id for rank in state.queue.ages), *_aside(state)]
        jobs = (state.jobs[job_id] for job_id in everybody)
    drained = _drained(state)
    words: _Words | None = None
    told = {}
    for job in jobs:
        if (aside := asides.words(job, state.jobs) or drained) is not None:
            told[job.id] = aside
        elif job.claim is not None:
            told[job.id] = waiting(state, job, now) or ""
        else:
            words = _Words(state, now, kept_room(state, now)) if words is None else words
            told[job.id] = words.about(job, line_key(job, state.past.history))
    return told


class _Words:
    """The sentences of one moment. ``room``: as the job meets it, its own claim aside."""

    def __init__(self, state: State, now: float, room: Room) -> None:
        self.state, self.now, self.room = state, now, room
        self.free = without_claim(room)
        self.gates = Gates(state, now)
        self.history = state.past.history
        self.strict = state.settings.policy.strict
        self.quota = Quota(state)
        first = _first_claimant(state)
        self.first_owner = None if first is None else first.owner
        self._shared: dict[tuple[Request, bool, float | None, bool, Bars], str] = {}

    def about(self, job: Job, key: LineKey) -> str:
        if rests(job, self.now):
            return _rests(job, self.now)
        if (limit := self.quota.bars(job)) is not None:
            return f"{_needs(job.request)}; {limit}"
        ends_at = self.now + self.history.expected_s(key.kin(job.request))
        compute = self.history.compute(job.owner, key.name)
        own = job.owner == self.first_owner
        brief = ends_at <= self.room.brief_until
        alike = (job.request, brief, compute, own, self._bars(job))
        if job.claim is not None or alike not in self._shared:
            said = self._cause(job, ends_at, compute)
            if job.claim is not None:
                return said if said == STARTS else said + _own_claim(job.claim, self.room)
            self._shared[alike] = said
        return self._shared[alike]

    def _bars(self, job: Job) -> Bars:
        """What of reservations a sentence rests on: the cards, whose windows shut them, and the job's own limit."""
        shut = self.gates.shut(job)
        return (shut, tuple(one.id for one, _ in self.gates.causes(job)), job.time_limit_s) if shut else None

    def _cause(self, job: Job, ends_at: float, compute: float | None) -> str:
        request, shut = job.request, self.gates.shut(job)
        if find(seen_past(self.room, shut), request, ends_at=ends_at, compute=compute) is not None:
            return f"{_needs(request)}; jobs before it come first, whatever fits" if self.strict else STARTS
        if find(seen_past(self.free, shut), request, compute=compute) is not None:
            return self._kept(job, ends_at)
        busy = self._busy(request, compute, shut)
        if (host := _host_cause(self.free, request)) is not None:
            return (busy or host) + _ran_out(job, self.free)
        reserved = barred(self.gates, self.free, self.room, job, compute=compute) if shut else Barred()
        cause = busy or _cards_cause(self.free, self.state, request, reserved)
        return "; ".join([cause, *reserved.said]) + _ran_out(job, self.free)

    def _kept(self, job: Job, ends_at: float) -> str:
        """What it needs is there, but others that have waited longer or are more urgent come first."""
        request = job.request
        other = _first_claimant(self.state)
        if other is None or other.claim is None:
            return _needs(request)
        said = _kept_for(other, self.free, job, self.now)
        if other.claim.firm or self.room.brief_until < self.now:
            return said
        until = show_seconds(max(0.0, self.room.brief_until - self.now))
        return f"{said}, probably for {until} more; it would run for about {show_seconds(ends_at - self.now)}"

    def _busy(self, request: Request, compute: float | None, shut: frozenset[GpuUuid]) -> str | None:
        """Memory is there, but the card's jobs keep its processors busy."""
        limit = self.room.settings.compute_limit
        offers = seen_past(self.free, shut).offers.values()
        full = [offer for offer in offers if too_busy(offer, request, self.room.settings, compute)]
        with_memory = [offer for offer in full if request.vram is not None and request.vram <= offer.free]
        if not with_memory or len(with_memory) < request.gpus:
            return None
        best = min(with_memory, key=lambda offer: (offer.compute or 0.0, offer.card.gpu.index))
        return (
            f"{_needs(request)}; GPU {best.card.gpu.index} has {show_mib(best.free)} free, but its jobs want "
            f"{round(100 * (best.compute or 0.0))} % of its processors and one more would exceed {round(100 * limit)} %"
        )


def _first_claimant(state: State) -> Job | None:
    """Who is named to those that wait for what is kept."""
    claimants = sorted((state.jobs[job_id] for job_id in state.claimants), key=lambda job: job.id)
    return state.claimant or (claimants[0] if claimants else None)


def explanation(state: State, job: Job, now: float, standing: Standing | None = None) -> list[str]:
    """Why a queued job stands where it stands: one sentence with numbers each.

    standing  of this moment, or a little older.
    """
    if job.phase is not Phase.QUEUED:
        return []
    if job.set_aside:
        return ["until it may start it grows no older in the queue: the time that it is set aside does not count"]
    facts = Facts(state, now)
    known, kin = facts.waiting(job), line_key(job, facts.history).kin(job.request)
    told = [
        (standing or Standing(state, now)).words(job),
        f"expected to run for about {show_seconds(known.expected_s)}, by {_basis(state, job, kin.name)}",
        f"{job.owner} has had {_percent(known.share)} of the machine of late; it asks for {_percent(known.part)}",
    ]
    if (drained := _drained(state)) is not None:
        told.append(drained)
    if job.place_at is not None:
        told.append(
            f"{job.owner} put it in an order with other jobs: the places that they have together are dealt out in it"
        )
    patience, waited = facts.patience_s(job), now - waits_since(job)
    if state.settings.policy.strict:
        told.append("the policy is strict: nothing passes a job before it")
    elif job.claim is None and (job.claim_rests_until or now) > now:
        rest = show_seconds((job.claim_rests_until or now) - now)
        told.append(f"cards were kept for it until too much lay idle; they are again in {rest}")
    elif job.claim is None:
        after = f"in {show_seconds(patience - waited)}" if patience > waited else "as soon as its turn comes"
        told.append(f"others that fit may pass it; cards are kept for it {after} if it still waits then")
    elif not job.claim.evicting:
        passed = (
            "nobody may pass it there" if job.claim.firm else "others may pass it only if they end before it can start"
        )
        told.append(f"cards have been kept for it for {show_seconds(now - job.claim.since)}: {passed}")
    return told


def _percent(part: float) -> str:
    return f"{round(100 * part)} %"


def _basis(state: State, job: Job, name: str) -> str:
    kin = line_key(job, state.past.history).kin(job.request)
    told = state.past.history.basis(kin)
    if job.time_limit_s is None:
        return told
    limit = f"its time limit of {show_seconds(job.time_limit_s)}"
    return f"{limit} and {told}" if name else f"{limit}, corrected by how earlier limits turned out"


def _drained(state: State) -> str | None:
    drain = state.operations.drain
    return (
        None
        if drain is None
        else f"{drain.by} has drained this machine: {drain.cause}; nothing starts until it is resumed"
    )


def _rests(job: Job, now: float) -> str:
    failures = sum(attempt.outcome is Outcome.FAILED for attempt in job.attempts)
    left = show_seconds((job.not_before or now) - now)
    last = job.attempts[-1] if job.attempts else None
    if last is not None and last.reason == "cuda_oom":
        of = f" of {job.retries + 1}" if job.on_oom == "fail" else ""
        had = max((grant.promised for grant in last.gpus), default=None)
        more = job.request.vram is not None and had is not None and job.request.vram > had
        how = f" with {show_mib(job.request.vram)} instead of {show_mib(had)}" if more else ""
        return f"attempt {failures}{of} ran out of GPU memory; it is tried again in {left} at the earliest{how}"
    return f"attempt {failures} of {job.retries + 1} failed; it is tried again in {left}"


def _ran_out(job: Job, room: Room) -> str:
    """Where it ran out of memory, and what it therefore waits for beside the amount."""
    cards = [(room.cards[floor.gpu].gpu.index, floor) for floor in job.request.floors if floor.gpu in room.cards]
    if not cards:
        return ""
    where = ", ".join(f"GPU {index} with {show_mib(max(0, floor.had))} available" for index, floor in sorted(cards))
    return f"; it ran out of memory on {where}, so it waits for another GPU or for more there"


def _kept_for(other: Job, room: Room, job: Job, now: float) -> str:
    """What it needs is there, but others that have waited longer come first. Which job of another, is not told."""
    request = job.request
    which = f"job {other.id}" if other.owner == job.owner else f"a job of {other.owner}"
    waited = show_seconds(now - min(other.since, now))
    cpus, memory = host_left(room)
    if (request.cpus or 0) > cpus or (request.memory or 0) > memory:
        what = "CPUs and host memory are"
    else:
        what = _listed(other.claim, room) + (" is" if other.claim and len(other.claim.gpus) == 1 else " are")
    return f"{_needs(request)}; {what} kept for {which}, which has waited {waited} for {wish(other.request)}"


def _own_claim(claim: Claim, room: Room) -> str:
    if claim.evicting:
        return f"; {_listed(claim, room)} {'is' if len(claim.gpus) == 1 else 'are'} being cleared for it"
    if not claim.gpus:
        return "; what is freed is kept for it"
    return f"; {_listed(claim, room)} {'is' if len(claim.gpus) == 1 else 'are'} kept for it"


def _listed(claim: Claim | None, room: Room) -> str:
    cards = [room.cards[uuid] for uuid in (claim.gpus if claim else ()) if uuid in room.cards]
    numbers = ", ".join(str(card.gpu.index) for card in sorted(cards, key=lambda card: card.gpu.index))
    return f"GPU {numbers}" if len(cards) == 1 else f"GPUs {numbers}"


# --- CPUs and host memory -----------------------------------------------------------------


def _host_cause(room: Room, request: Request) -> str | None:
    cpus, memory = host_left(room)
    if request.cpus is not None and request.cpus > cpus:
        return f"needs {count(request.cpus, 'CPU')}; {max(0, cpus)} of {room.settings.cpus} are not taken by other jobs"
    if request.memory is not None and request.memory > memory:
        left, all_of_it = show_mib(max(0, memory)), show_mib(room.settings.memory)
        return f"needs {show_mib(request.memory)} of host memory; {left} of {all_of_it} is not taken by other jobs"
    return None


# --- cards ----------------------------------------------------------------------------------


def _cards_cause(room: Room, state: State, request: Request, reserved: Barred) -> str:
    suited = [card for card in room.cards.values() if serves(card.gpu, request)]
    usable = [card for card in suited if card.gpu.uuid in room.offers]
    if not suited:
        return f"{_needs(request)}; " + _nothing_suited(state, request)
    if not usable:
        return f"{_needs(request)}; " + _unusable(suited)
    if len(suited) < request.gpus:
        return f"{_needs(request)}; only {count(len(suited), 'such GPU')} can be seen now"
    enough = [card for card in usable if _fits(room, card, request)]
    fitting = [card for card in enough if card.gpu.uuid not in reserved.cards]
    rest = [card for card in usable if card not in enough and card.gpu.uuid not in reserved.begun]
    told = [_needs(request) + "; " + _tally(request, fitting, suited)] if request.gpus > 1 else [_needs(request)]
    if rest:
        best = min(rest, key=lambda card: (*_hopeless(card, request), -(card.available or 0), card.gpu.index))
        told.append(f"{'the next' if request.gpus > 1 else 'best'} is {_state_of(best, request, room, state)}")
    return "; ".join([*told, *_obstacles(suited)])


def _fits(room: Room, card: Card, request: Request) -> bool:
    return promise_on(room.offers[card.gpu.uuid], request, room.settings) is not None


def _hopeless(card: Card, request: Request) -> tuple[bool, bool, bool]:
    """Cards of the right size first, and of these the ones that the job would take first."""
    too_small = request.vram is not None and request.vram > card.usable
    return too_small, card.exclusive, not prefers(request, card)


def _nothing_suited(state: State, request: Request) -> str:
    if not state.gpus:
        return "no GPU has been seen yet"
    if request.gpu_model is not None:
        return f"no GPU with {request.gpu_model!r} in its name can be seen now"
    return "no such GPU can be seen now"


def _unusable(cards: Sequence[Card]) -> str:
    """Every card has an obstacle, so nothing can start whatever is free."""
    return "; ".join(_obstacles(cards)) + "; nothing starts there meanwhile"


def _obstacles(cards: Sequence[Card]) -> list[str]:
    return [f"GPU {card.gpu.index} {card.obstacle}" for card in cards if card.obstacle is not None]


def _tally(request: Request, fitting: Sequence[Card], suited: Sequence[Card]) -> str:
    have = "is" if len(fitting) == 1 else "are"
    what = "free for it" if request.vram is None or request.exclusive else f"able to give {show_mib(request.vram)}"
    return f"{len(fitting)} of {count(len(suited), 'GPU')} {have} {what}"


def _state_of(card: Card, request: Request, room: Room, state: State) -> str:
    """One card in numbers: ``GPU 1: 12.1G free, 11.9G in use outside the queue``."""
    parts = [f"{show_mib(max(0, card.available or 0))} free"]
    taken = card.promised - card.releasing + room.offers[card.gpu.uuid].fresh
    if taken:
        parts.append(f"{show_mib(taken)} promised to {count(_holders(card), 'job')}" + _overruns(card, state))
    if card.releasing:
        parts.append(f"{show_mib(card.releasing)} of ended jobs not released yet")
    if card.foreign is None:
        parts.append("use outside the queue unknown")
    else:
        parts += _foreign(card)
    if card.exclusive and not request.exclusive:
        parts.append("taken whole")
    return f"GPU {card.gpu.index}: " + ", ".join(parts)


def _overruns(card: Card, state: State) -> str:
    """Who took more than was promised: that counts as promised too, since it may be taken again."""
    told = []
    for grant in card.grants:
        job = state.jobs.get(grant.job_id)
        asked = _asked_first(job, grant) if job is not None else None
        if asked is not None and grant.promised > most_allowed(asked, state.settings):
            told.append(f"one took {show_mib(grant.promised)} where it had asked for {show_mib(asked)}")
    return f" ({'; '.join(told)})" if told else ""


def _asked_first(job: Job, grant: Grant) -> Mib | None:
    attempts = [attempt for attempt in job.attempts if attempt.number == grant.attempt]
    return next((first.promised for one in attempts for first in one.gpus if first.gpu == grant.gpu), None)


def _foreign(card: Card) -> list[str]:
    """What is in use outside of the queue, and what of it no process admits to, with who has the device open."""
    nobodys = 0 if (card.gpu.unattributed or 0) <= LITTLE_MIB else min(card.foreign or 0, card.gpu.unattributed or 0)
    known = (card.foreign or 0) - nobodys
    parts = [f"{show_mib(known)} in use outside the queue"] if show_mib(known) != show_mib(0) else []
    if nobodys:
        parts.append(f"{show_mib(nobodys)} unattributed, that no process admits to{opened(card.gpu)}")
    return parts


def _holders(card: Card) -> int:
    return len({grant.job_id for grant in card.grants})


def _needs(request: Request) -> str:
    return "needs " + wish(request)
