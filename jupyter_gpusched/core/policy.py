"""Who starts now: one pass over the waiting jobs, as a pure function of the state.

In the order of the policy whatever fits starts: a job that does not fit never blocks a
smaller one behind it. So that nobody is passed for ever, the oldest job whose patience is
over has a claim: others may pass it only if they are expected to end before its place is
complete or leave that place free. An urgent job may have preemptible ones evicted. Whether
something fits is ``room``'s, what the order is ``policies``'; nothing here changes a job.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import islice

from .choice import beneficiary, noted
from .claims import accounted, budget, due_of, is_firm, spent, worth
from .evict import being_cleared, clear_for, keep_cleared
from .facts import Facts, Place, rests, waits_since
from .kept import claim_order
from .messages import Claimed, Evicted, Placed
from .model import Claim, GpuUuid, Grant, Job, JobId, Priority, Request
from .policies import Order
from .queue import LineKey, line_key
from .quota import Quota
from .reservations import Gates, seen_past
from .rivals import Rivals
from .room import Fit, Room, choose_claim, find, grants_for, keep, open_room, started_since, still_good, take
from .shadow import kept_softly, shadow
from .singles import Head, Singles, in_order
from .state import State

Decision = Placed | Claimed | Evicted


def plan(state: State, now: float) -> tuple[Decision, ...]:
    """What starts now, what is ended for it, and for whom cards are kept, in the order to apply it.

    Never over-commits; several GPUs at once or none; the same state gives the same plan.
    """
    return Pass(state, now).run() if state.queue else ()


_From = tuple[bool, Order] | Place
"""A place, or what it is not before."""

_Alike = tuple[Request, bool, float | None, frozenset[GpuUuid]]
"""What decides whether a job fits: request, end before the claimed moment, use of processors, cards shut to it."""


_OLDEST = 128
"""So many jobs are asked in a pass whether their patience is over."""


class Pass:
    """One pass. Its fields change while it runs; the state does not."""

    def __init__(self, state: State, now: float) -> None:
        self.state, self.now = state, now
        self.facts = Facts(state, now)
        self.quota = Quota(state) if state.settings.limits else None
        self.policy = state.settings.policy
        self.gates = Gates(state, now)
        self.room = open_room(state, now)
        self.most: list[int] | None = None  # MiB free by card, the largest first; None = to be sorted anew
        self.measured = any(offer.compute is not None for offer in self.room.offers.values())
        self.decisions: list[Decision] = []
        self.placed: dict[JobId, tuple[Job, tuple[Grant, ...]]] = {}
        self.evicted: set[JobId] = set()
        self.singles = Singles(self.facts, self.measured)
        self.dropped: set[JobId] = set()  # whose claim was given up in this pass
        self.resting: set[JobId] = set()  # those of them that get none for a while
        self.failed: set[_Alike] = set()  # room only shrinks: these fit no more
        self.softly: Job | None = None  # whose soft claim is to be accounted for at the end
        self.claimed: tuple[str, ...] = ()
        self.due: float | None = None

    def run(self) -> tuple[Decision, ...]:
        self._serve_evictors()
        claimant = self._claimant()
        while claimant is not None and is_firm(claimant, self.facts):
            claimant = self._serve(claimant)
        self._gather_early()
        passed, evicted = self._try_in_turn(self.singles.urgent), len(self.evicted)
        while claimant is not None:
            claimant = self._serve(claimant)
        if len(self.evicted) > evicted:
            self._try_in_turn(passed)
        self._go_through(self._gather_late())
        self._settle()
        return tuple(self.decisions)

    # --- lines ------------------------------------------------------------------------

    def _gather_early(self) -> None:
        """The heads of lines that may go before claims: urgent ones, and what an owner's order may bring there."""
        if not self.policy.urgent_first:
            return
        by_hand = self.state.by_hand
        everything = self.policy.strict or self.policy.evicts
        for group, owners in self.state.queue.lines.items():
            if group.urgent and (everything or self._fits_at_best(group.request)):
                for own in owners.values():
                    self.singles.join(group.request, own.lines, self)
            elif by_hand and not group.urgent and (self.policy.strict or self._fits_at_best(group.request)):
                for owner in by_hand:
                    if owner in owners:
                        self.singles.join(group.request, in_order(owners[owner]), self)
        heapify(self.singles.urgent)

    def _gather_late(self) -> list[Rivals]:
        """The other lines that might start, by what they ask for."""
        strict, urgent_first, evicts = self.policy.strict, self.policy.urgent_first, self.policy.evicts
        facts, measured, by_hand = self.facts, self.measured, self.state.by_hand
        gathered = []
        for (request, urgent), owners in self.state.queue.lines.items():
            if urgent and urgent_first:
                continue
            insists = strict or (urgent and evicts)
            if not (insists or self._may_fit(request)):
                continue
            rivals = Rivals(facts, request, evicts=urgent and evicts, insists=insists, measured=measured)
            for owner, own in owners.items():
                rivals.add(owner, own)
                if owner in by_hand and not urgent_first:
                    self.singles.join(request, in_order(own), self)
            gathered.append(rivals)
        for place, number, job_id in self.singles.heads:
            line = self.singles.rows[number]
            urgent = evicts and self.state.jobs[job_id].priority is Priority.HIGH
            one = Rivals(facts, line[0], evicts=urgent, insists=strict or urgent, measured=measured)
            one.add_one(place, job_id, line, self.singles.rest[number])
            gathered.append(one)
        return gathered

    def _may_be_left_out(self, rivals: Rivals) -> bool:
        """Whether none of them can start; those that claims leave no room for are left out alone."""
        if rivals.insists:
            return False
        if not self._fits_at_best(rivals.request):
            return True
        if not self._fits_long(rivals.request):
            rivals.narrow(self.room.brief_until - self.now)
        return False

    def _fits_at_best(self, request: Request) -> bool:
        """Whether it would fit a job that ends at once and hardly computes; what is kept later is less still."""
        return self._may_fit(request) and find(self.room, request, ends_at=-math.inf, compute=0.01) is not None

    def _may_fit(self, request: Request) -> bool:
        """Whether enough cards have that much free; what else a request needs is looked at later."""
        if request.gpus == 0:
            return True
        if self.most is None:
            self.most = sorted((offer.free for offer in self.room.offers.values()), reverse=True)
        return len(self.most) >= request.gpus and self.most[request.gpus - 1] >= (request.vram or 1)

    def _fits_long(self, request: Request) -> bool:
        """Whether it would fit a job that goes on for ever; only a soft claim makes a difference."""
        return math.isinf(self.room.brief_until) or find(self.room, request, compute=0.01) is not None

    def may_be_tried(self, job: Job) -> bool:
        return self._is_free(job) and not rests(job, self.now)

    def _is_free(self, job: Job) -> bool:
        """Whether nothing has been decided about a job, in this pass or as a claim before it."""
        return (job.claim is None or job.id in self.dropped) and job.id not in self.placed

    def is_barred(self, job: Job) -> bool:
        """Whether the limits of its owner keep it from starting now."""
        return self.quota is not None and self.quota.bars(job) is not None

    def _try_in_turn(self, heads: list[Head]) -> list[Head]:
        """Start urgent ones that fit, in order, or have others evicted for them; returns those that still wait.

        Who was passed is tried again when something was evicted behind it: there may be more than that one needs.
        """
        passed: list[Head] = []
        evicted = len(self.evicted)
        while heads:
            head = heappop(heads)
            place, number, job_id = head
            later = self.singles.place_now(number, job_id)
            if later > place:  # its owner was given something meanwhile
                heappush(heads, (later, number, job_id))
            elif self._try(self.state.jobs[job_id], *self.singles.rows[number][2:]):
                following = self.singles.next(number, self)
                if following is not None and following[0][0]:
                    self.singles.heads.append(following)
                elif following is not None:
                    heappush(heads, following)
            elif self.policy.strict:
                return []
            else:
                passed.append(head)
        heapify(passed)
        return passed if len(self.evicted) == evicted else self._try_in_turn(passed)

    def _go_through(self, gathered: list[Rivals]) -> None:
        """Start what fits, in order; room only shrinks, so that with one that does not fit all that are alike fail."""
        firsts: list[tuple[_From, int, int]] = []
        for number, rivals in enumerate(gathered):
            least = rivals.ready()
            if least is not None:
                firsts.append(((True, least), -1, number))  # its first is found once it may be the first of all
        heapify(firsts)
        while firsts:
            place, row, number = heappop(firsts)
            rivals = gathered[number]
            if row < 0 or rivals.told < len(self.facts.given):
                if row < 0 and self._may_be_left_out(rivals):
                    continue
                rivals.learn()
                first = rivals.first()
                if first != (place, row):
                    if first is not None:
                        heappush(firsts, (*first, number))
                    continue
            job = self.state.jobs[rivals.job(row)]
            if self.is_barred(job):
                rivals.leave(row)
            elif not self.may_be_tried(job) or self._try(job, *rivals.expected(row)):
                rivals.advance(row, self.may_be_tried)
            elif self.policy.strict:
                return
            elif rivals.evicts:
                rivals.leave(row)
            else:
                rivals.failed(row, self.room.brief_until - self.now, self._let_onto_more(job, *rivals.expected(row)))
            first = rivals.first()
            if first is not None:
                heappush(firsts, (*first, number))

    def _try(self, job: Job, expected_s: float, compute: float | None) -> bool:
        """Whether the next of the line may be looked at: this one was decided about, starts, or evicts others."""
        return (
            job.id in self.placed
            or self.is_barred(job)
            or self._start_at(job, expected_s, compute)
            or (job.priority is Priority.HIGH and self._evict_for(job))
        )

    def _seen_by(self, job: Job) -> Room:
        """The room as this job meets it: without cards that are reserved for others."""
        return seen_past(self.room, self.gates.shut(job))

    def _let_onto_more(
        self, job: Job, expected_s: float, compute: float | None
    ) -> Callable[[LineKey, Request], bool] | None:
        """Which lines are let onto cards that are reserved for others than this job; None = that would not help."""
        shut = self.gates.shut(job)
        if not shut or find(self.room, job.request, ends_at=self.now + expected_s, compute=compute) is None:
            return None
        return lambda line, request: not self.gates.shut_to(line, request) >= shut

    def _start(self, job: Job) -> bool:
        return self._start_at(job, self.facts.expected_s(job), self._compute(job))

    def _compute(self, job: Job) -> float | None:
        """The share of a card's processors that it is expected to use, where cards show how busy they are."""
        history = self.facts.history
        return history.compute(job.owner, line_key(job, history).name) if self.measured else None

    def _start_at(self, job: Job, expected_s: float, compute: float | None) -> bool:
        ends_at = self.now + expected_s
        brief, shut = ends_at <= self.room.brief_until, self.gates.shut(job)
        alike, room = (job.request, brief, compute, shut), seen_past(self.room, shut)
        fit = None if alike in self.failed else find(room, job.request, ends_at=ends_at, compute=compute)
        if fit is None:
            self.failed.add(alike)
            return False
        self._place(job, fit, compute, brief=brief)
        return True

    def _place(self, job: Job, fit: Fit, compute: float | None, *, brief: bool = False) -> None:
        grants = grants_for(job, fit, self.now)
        choice = noted(self._seen_by(job), job.request, fit, brief=brief, compute=compute)
        self.decisions.append(Placed(job.id, grants, choice))
        self.room, self.most = take(self.room, job.request, grants, compute=compute), None
        self.placed[job.id] = (job, grants)
        self.facts.gave(job.owner, job.request)
        self._took(job)

    def _took(self, job: Job) -> None:
        if self.quota is not None:
            self.quota.took(job)

    # --- claims -----------------------------------------------------------------------

    def _claimant(self) -> Job | None:
        """Who has a claim on being waited for: who had it, else the oldest job whose patience is over."""
        job = self.state.claimant
        if job is None or job.claim is None or self.policy.strict:
            return None if self.policy.strict else self._oldest_overdue()
        if self.is_barred(job) or self._is_shut_out(job):
            self._drop(job)
            return self._oldest_overdue()
        if job.claim.firm or spent(job.claim, self.now) <= budget(job, self.facts):
            return job
        self._drop(job, rests_until=self.now + self.policy.rest_s)
        return self._oldest_overdue()

    def _drop(self, job: Job, *, rests_until: float | None = None) -> None:
        self.decisions.append(Claimed(job.id, None, rests_until=rests_until))
        self.dropped.add(job.id)
        if rests_until is not None:
            self.resting.add(job.id)

    def _oldest_overdue(self) -> Job | None:
        """The oldest ``_OLDEST`` are asked; younger ones have met much the same and are asked in their turn."""
        after_s, facts, now = self.state.settings.claim_after_s, self.facts, self.now
        youngest = now - self.policy.least_patience_s(after_s)
        for rank in islice(self.state.queue.ages, _OLDEST + len(self.placed)):
            if rank.key > youngest:
                return None
            job = self.state.jobs[rank.job_id]
            if rests(job, now) or self._claim_rests(job) or not self._is_free(job):
                continue
            if self.is_barred(job) or self._is_shut_out(job):
                continue
            if now - waits_since(job) >= facts.patience_s(job):
                return job
        return None

    def _is_shut_out(self, job: Job) -> bool:
        """Whether reservations leave it too few cards, so that to keep some for it would be in vain."""
        shut = self.gates.shut(job)
        return bool(shut) and choose_claim(seen_past(self.room, shut), job.request, self.now) is None

    def _claim_rests(self, job: Job) -> bool:
        return job.id in self.resting or (job.claim_rests_until or self.now) > self.now

    def _serve(self, job: Job) -> Job | None:
        """Start the job whose patience is over, or keep its place; returns who is next after one that started."""
        if job.id in self.placed:
            return self._oldest_overdue()
        if self.is_barred(job):
            if job.claim is not None:
                self._drop(job)
            return self._oldest_overdue()
        if self._start(job):
            return self._oldest_overdue()
        if self.policy.evicts and self._evict_for(job):
            return self._oldest_overdue()
        if is_firm(job, self.facts):
            self._keep_firmly(job)
        else:
            self._keep_softly(job)
        return None

    def _keep_firmly(self, job: Job) -> None:
        claim = job.claim
        if claim is not None and claim.firm and self._is_good(job, claim):
            self.room = keep(self.room, job.request, claim, started_since(self.state, claim))
            return
        renewed = choose_claim(self._seen_by(job), job.request, self.now)
        if renewed is not None or claim is not None:
            self.decisions.append(Claimed(job.id, renewed))
        if renewed is not None:
            self.room = keep(self.room, job.request, renewed)

    def _keep_softly(self, job: Job) -> None:
        preferred = () if job.claim is None else job.claim.gpus
        seen, placed = self._seen_by(job), self.placed.values()
        found = shadow(self.state, seen, job.request, self.now, preferred=preferred, placed=placed)
        if found is None:
            if job.claim is not None:
                self._drop(job)
            return
        due = due_of(job, self.facts) if job.claim is None else job.claim.due
        self.room = kept_softly(self.room, job.request, found, due)
        self.softly, self.claimed, self.due = job, found.cards, due

    def _is_good(self, job: Job, claim: Claim) -> bool:
        return still_good(self.room, job.request, claim) and self.gates.shut(job).isdisjoint(claim.gpus)

    def _settle(self) -> None:
        """Account for what lies free while the place of a job is kept softly."""
        if self.softly is not None:
            idle = sum(max(0, offer.free) for offer in self.room.offers.values())
            claim = accounted(self.softly.claim, self.claimed, idle, self.now, self.due)
            if claim is not None:
                self.decisions.append(Claimed(self.softly.id, claim))

    # --- evictions --------------------------------------------------------------------

    def _serve_evictors(self) -> None:
        """Jobs for which others were evicted: they start, or what they wait for is still leaving, or it was in vain."""
        claimants = sorted((self.state.jobs[job_id] for job_id in self.state.claimants), key=claim_order)
        evictors = [(job, job.claim) for job in claimants if job.claim is not None and job.claim.evicting]
        for at, (job, claim) in enumerate(evictors):
            room, compute = self.room, self._compute(job)
            for other, others in evictors[at + 1 :]:
                room = keep_cleared(self.state, room, other.request, others, self.evicted)
            fit = find(seen_past(room, self.gates.shut(job)), job.request, compute=compute)
            if fit is not None:
                self._place(job, fit, compute)
            elif being_cleared(self.state, self.room, job.request, claim, self.evicted) and self._is_good(job, claim):
                self.room = keep_cleared(self.state, self.room, job.request, claim, self.evicted)
            else:
                self._drop(job)

    def _evict_for(self, job: Job) -> bool:
        """Have preemptible jobs ended so that this one can start in a moment, if that is worth it."""
        if not self.policy.evicts:
            return False
        found = clear_for(
            self.state,
            self._seen_by(job),
            job,
            self.now,
            worth=worth(job, self.facts),
            ended=self.evicted,
            compute=self._compute(job),
        )
        if found is None:
            return False
        claim = Claim(found.cards, self.now, evicting=True)
        if not found.victims and not being_cleared(self.state, self.room, job.request, claim, self.evicted):
            return False  # memory is not what it lacks, and nothing that could be ended or awaited would help
        for victim in found.victims:
            other = self.state.jobs[victim]
            self.decisions.append(Evicted(victim, other.attempt, job.owner, beneficiary(job, other, self.now)))
        self.evicted.update(found.victims)
        self.decisions.append(Claimed(job.id, claim))
        self.room = keep_cleared(self.state, self.room, job.request, claim, self.evicted, fresh=found.victims)
        self.placed[job.id] = (job, ())
        self._took(job)
        return True
