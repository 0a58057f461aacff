"""The whole core under random events: nothing is over-committed, split, lost or done twice."""

from collections import Counter
from dataclasses import replace

import pytest
from exploring import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, precondition, rule

from jupyter_gpusched.core.alerts import settle
from jupyter_gpusched.core.asked import After, Member
from jupyter_gpusched.core.booking import Clash, assigned
from jupyter_gpusched.core.explain import positions, waiting_all
from jupyter_gpusched.core.ledger import read_books
from jupyter_gpusched.core.messages import (
    Amended,
    CancelRequested,
    Drained,
    Exited,
    HoldRequested,
    Launch,
    LaunchFailed,
    MachineChange,
    MainEnded,
    Quarantined,
    ReleaseRequested,
    Reordered,
    Reserved,
    Resumed,
    Returned,
    Sampled,
    Started,
    StopAttempt,
    Submitted,
    Together,
    Unreserved,
    Vanished,
    Voided,
)
from jupyter_gpusched.core.model import FINAL, GrantState, IllegalTransition, Phase, Priority, Request, Terms
from jupyter_gpusched.core.operations import Operations, Reservation
from jupyter_gpusched.core.reservations import Gates
from jupyter_gpusched.core.schedule import next_wakeup, schedule
from jupyter_gpusched.core.state import State, apply
from tests.core.conftest import SETTINGS, G, card, job, record

WHILE_DRAINED = {"released", "evicted", "unreserved", "reservation_settled"}
"""What is decided on a drained machine too: memory is let go of, and reservations begin and end."""


class Core(RuleBasedStateMachine):
    """Drives apply and schedule as the engine does: batch, pass, journal, and now and then a restart."""

    jobs = Bundle("jobs")

    def __init__(self):
        super().__init__()
        self.now = 1000.0
        self.count = 0
        self.submitted, self.final, self.launched = set(), {}, Counter()
        self.journal, self.operations = {}, Operations()
        self.state = State.begin(SETTINGS)
        self.cards = [card(0), card(1, total=8 * G), card(2, simulated=False)]
        self.sample()

    # --- what may happen ------------------------------------------------------------------

    @rule(
        target=jobs,
        gpus=st.integers(0, 3),
        vram=st.sampled_from([None, 2 * G, 7 * G, 20 * G]),
        cpus=st.sampled_from([None, 8]),
        retries=st.integers(0, 1),
    )
    def submit(self, gpus, vram, cpus, retries):
        self.count += 1
        job_id = f"job{self.count:05d}"
        one = job(job_id, at=self.now, gpus=gpus, vram=vram if gpus else None, cpus=cpus, retries=retries)
        self.submitted.add(job_id)
        self.happen(Submitted((one,)))
        return job_id

    @rule(
        target=jobs,
        parents=st.lists(jobs, min_size=1, max_size=3, unique=True),
        when=st.sampled_from(["succeeded", "finished"]),
    )
    def submit_a_dependent(self, parents, when):
        self.count += 1
        job_id = f"job{self.count:05d}"
        one = replace(job(job_id, at=self.now, gpus=0, cpus=1), after=After(tuple(parents), when))
        self.submitted.add(job_id)
        self.happen(Submitted((one,), tuple(self.journal[p] for p in parents if self.journal[p].phase.final)))
        return job_id

    @rule(
        target=jobs,
        count=st.integers(2, 5),
        throttle=st.sampled_from([None, 1, 2]),
        parent=st.none() | jobs,
        gpus=st.integers(0, 1),
    )
    def submit_an_array(self, count, throttle, parent, gpus):
        self.count += 1
        array = f"array{self.count:03d}"
        ended = (self.journal[parent],) if parent is not None and self.journal[parent].phase.final else ()
        elements = [
            replace(
                job(f"{array}-{number}", at=self.now, gpus=gpus),
                member=Member(array, number, throttle),
                after=None if parent is None else After((parent,)),
            )
            for number in range(count)
        ]
        self.submitted |= {one.id for one in elements}
        self.happen(Submitted(tuple(elements), ended))
        return multiple(*(one.id for one in elements))

    @rule(job_id=jobs)
    def hold(self, job_id):
        self.tell(job_id, lambda _number: HoldRequested(job_id, "ann"))

    @rule(job_ids=st.lists(jobs, max_size=5), order=st.sampled_from([HoldRequested, ReleaseRequested, CancelRequested]))
    def act_on_many(self, job_ids, order):
        self.happen(Together(tuple(order(job_id, "ann") for job_id in job_ids)))

    @rule(job_id=jobs)
    def release(self, job_id):
        self.tell(job_id, lambda _number: ReleaseRequested(job_id, "ann"))

    @rule()
    def sample(self):
        self.now += 1
        self.happen(Sampled(tuple(self.measured(gpu) for gpu in self.cards)))

    @rule(seconds=st.sampled_from([1.0, 6.0, 100.0, 400.0]))
    def sleep(self, seconds):
        self.now += seconds
        self.sample()

    @rule(index=st.integers(0, 2), health=st.sampled_from(["ok", "ok", "lost", "quarantined"]))
    def fall_ill(self, index, health):
        self.cards[index] = replace(self.cards[index], health=health)
        self.sample()

    @rule(job_id=jobs)
    def start(self, job_id):
        self.tell(job_id, lambda number: Started(job_id, number, self.now))

    @rule(job_id=jobs)
    def end_main(self, job_id):
        self.tell(job_id, lambda number: MainEnded(job_id, number, self.now))

    @rule(job_id=jobs, code=st.sampled_from([0, 0, 1]), stopped=st.sampled_from([None, None, "timeout"]))
    def exit(self, job_id, code, stopped):
        self.tell(job_id, lambda number: Exited(job_id, number, record(code, at=self.now, stopped=stopped)))

    @rule(job_id=jobs)
    def run_out_of_memory(self, job_id):
        self.tell(job_id, lambda number: Exited(job_id, number, record(1, at=self.now, reason="cuda_oom")))

    @rule(job_id=jobs)
    def fail_to_launch(self, job_id):
        self.tell(job_id, lambda number: LaunchFailed(job_id, number, "launch_failed", "no such file"))

    @rule(job_id=jobs)
    def void(self, job_id):
        self.tell(job_id, lambda number: Voided(job_id, number))

    @rule(job_id=jobs)
    def vanish(self, job_id):
        self.tell(job_id, lambda number: Vanished(job_id, number, "nobody knows"))

    @rule(job_id=jobs)
    def cancel(self, job_id):
        self.happen(CancelRequested(job_id, "ann"))

    @rule(job_id=jobs, vram=st.sampled_from([None, 2 * G, 20 * G]), priority=st.sampled_from(Priority))
    def amend(self, job_id, vram, priority):
        terms = Terms("other", Request(vram=vram), priority, None, 1.0, 0, ())
        self.tell(job_id, lambda _number: Amended(job_id, "ann", terms))

    @rule(job_id=jobs, anchor=jobs, before=st.booleans())
    def reorder(self, job_id, anchor, before):
        self.tell(job_id, lambda _number: Reordered(job_id, "ann", anchor, before))

    @precondition(lambda self: self.journal)
    @rule()
    def restart(self):
        """A new host knows what the journal has: the jobs as last written down, and no samples."""
        self.state = State.begin(SETTINGS, self.journal.values(), (), self.operations)
        self.sample()

    @rule(index=st.integers(0, 2), back=st.booleans())
    def quarantine(self, index, back):
        order = Returned if back else Quarantined
        self.happen(order(self.cards[index].uuid, "ann", "to look at it"))

    @rule(drain=st.booleans())
    def drain(self, drain):
        self.happen((Drained if drain else Resumed)("ann", "work on it"))

    @rule(
        user=st.sampled_from([None, "ann", "bob"]),
        count=st.integers(1, 3),
        ahead=st.sampled_from([0.0, 5.0, 300.0]),
        length=st.sampled_from([3.0, 500.0]),
    )
    def reserve(self, user, count, ahead, length):
        self.count += 1
        start = self.now + ahead
        wanted = Reservation(f"res{self.count:05d}", user, count, (), start, start + length, "root", "UTC")
        before = self.state
        try:
            self.happen(Reserved(wanted))
        except Clash:
            assert self.state is before
        was, now = (assigned(one.operations.reservations.values(), one.gpus.values()) for one in (before, self.state))
        begun = {one.id for one in before.operations.reservations.values() if one.start <= self.now < one.end}
        assert all(set(was[one]) == set(now[one]) for one in begun)

    @rule()
    def unreserve(self):
        for reservation_id in sorted(self.state.operations.reservations)[:1]:
            self.happen(Unreserved(reservation_id, "root"))

    # --- how it happens -------------------------------------------------------------------

    def tell(self, job_id, event):
        """A fact about the current attempt; where the phase does not admit it, it must be refused."""
        one = self.state.jobs.get(job_id)
        try:
            self.happen(event(one.attempt if one else 1))
        except IllegalTransition:
            assert self.state.jobs.get(job_id) is one

    def happen(self, event):
        first = apply(self.state, event, self.now)
        second = schedule(first.state, self.now)
        third = settle(second.state, self.now)
        for change in second.changes:
            drained = first.state.operations.drain is not None
            assert not drained or change.kind in WHILE_DRAINED, "a drained machine starts nothing"
            assert change.kind != "placed" or not self.quarantined(first.state, change.job), "a quarantined card waits"
            assert change.kind != "placed" or not first.state.jobs[change.job.id].set_aside, "who is set aside waits"
            if change.kind == "placed":
                shut = Gates(first.state, self.now).shut(change.job)
                assert shut.isdisjoint(held.gpu for held in change.job.attempts[-1].gpus), "it is reserved"
            if change.kind == "evicted":
                assert change.job.may_be_evicted
        self.state = third.state
        for change in (*first.changes, *second.changes, *third.changes):
            if isinstance(change, MachineChange):
                self.operations = change.operations
            else:
                self.write(change.job)
        for instruction in (*first.instructions, *second.instructions):
            self.obey(instruction)

    @staticmethod
    def quarantined(state, one):
        return {held.gpu for held in one.attempts[-1].gpus} & state.operations.quarantines.keys()

    def write(self, one):
        if one.phase.final:
            assert self.final.setdefault(one.id, one.phase) is one.phase, "a final phase never changes"
        else:
            assert one.id not in self.final, "a final job never comes back"
        self.journal[one.id] = one

    def obey(self, instruction):
        if isinstance(instruction, Launch):
            self.launched[instruction.job_id, instruction.attempt] += 1
        if isinstance(instruction, StopAttempt):
            assert self.state.jobs[instruction.job_id].attempt == instruction.attempt

    def measured(self, gpu):
        ours = {
            held.job_id: held.promised
            for one in self.state.jobs.values()
            for held in one.grants
            if held.gpu == gpu.uuid and held.state is GrantState.HELD and one.phase is Phase.RUNNING
        }
        used = sum(ours.values())
        return replace(gpu, used=used, free=gpu.total - used, used_by_job=ours, sampled_at=self.now)

    # --- what must hold -------------------------------------------------------------------

    @invariant()
    def nothing_is_over_committed(self):
        books = read_books(self.state, self.now)
        assert all(seen.promised <= seen.usable for seen in books.cards.values())
        assert books.cpus >= 0

    @invariant()
    def gangs_are_whole(self):
        for one in self.state.jobs.values():
            held = [grant for grant in one.grants if grant.state is GrantState.HELD]
            assert len(held) == (one.request.gpus if one.phase.active else 0)

    @invariant()
    def nothing_is_lost(self):
        live = {one.id for one in self.state.jobs.values() if not one.phase.final}
        assert live | set(self.final) == self.submitted
        assert not live & set(self.final)

    @invariant()
    def no_attempt_is_launched_twice(self):
        assert set(self.launched.values()) <= {1}

    @invariant()
    def the_state_is_what_its_jobs_say(self):
        kept = self.state
        again = State.begin(
            SETTINGS, kept.jobs.values(), kept.seen.values(), kept.operations, kept.past, streaks=kept.streaks
        )
        assert replace(again, watch=self.state.watch) == self.state

    @invariant()
    def what_was_decided_about_the_machine_is_in_the_journal(self):
        kept, written = self.state.operations, self.operations
        assert (kept.drain, kept.quarantines, set(kept.alerts)) == (
            written.drain,
            written.quarantines,
            set(written.alerts),
        )
        assert all(self.state.gpus[uuid].health != "ok" for uuid in kept.quarantines)
        assert kept.reservations == written.reservations

    @invariant()
    def what_is_over_is_not_reserved(self):
        assert all(one.end > self.now for one in self.state.operations.reservations.values())

    @invariant()
    def everybody_waits_with_a_reason(self):
        queued = {one.id for one in self.state.jobs.values() if one.phase is Phase.QUEUED}
        assert queued == set(waiting_all(self.state, self.now)) == set(positions(self.state, self.now))

    @invariant()
    def nothing_starts_before_its_parents_have_ended(self):
        for one in self.journal.values():
            parents = [self.journal[parent] for parent in one.after.jobs] if one.after is not None else []
            if one.attempts:
                assert all(parent.phase.final for parent in parents)
                assert (
                    one.after is None
                    or one.after.when == "finished"
                    or all(parent.phase is Phase.SUCCEEDED for parent in parents)
                )
            if one.phase is Phase.QUEUED and one.blocked:
                assert not all(parent.phase.final for parent in parents), "nobody waits for nothing"

    @invariant()
    def no_throttle_is_exceeded_and_no_turn_is_missed(self):
        for batch_id, batch in self.state.asides.batches.items():
            members = [one for one in self.state.jobs.values() if one.batch_id == batch_id]
            active = [one for one in members if one.phase.active]
            assert batch.throttle is None or len(active) <= batch.throttle
            assert not batch.next_in, "whoever may come in has come in"

    @invariant()
    def what_is_set_aside_is_no_older_for_it(self):
        for one in self.state.jobs.values():
            if one.phase is Phase.QUEUED:
                assert one.set_aside == (one.aside_since is not None)
                assert one.ages_from <= self.now

    @invariant()
    def the_timer_is_ahead(self):
        due = next_wakeup(self.state, self.now)
        assert due is None or due > self.now


TestCore = Core.TestCase
TestCore.settings = settings(max_examples=examples(60), stateful_step_count=40)


def run(*steps):
    """Play a fixed story: each step is the name of a rule and its arguments."""
    core = Core()
    for name, *arguments in steps:
        getattr(core, name)(*arguments)
    return core


JOB = "job00001"
STORIES = {
    Phase.QUEUED: [("submit", 2, 20 * G, None, 0), ("submit", 3, 20 * G, None, 0)],
    Phase.STARTING: [("submit", 1, 2 * G, None, 0)],
    Phase.RUNNING: [("submit", 1, 2 * G, None, 0), ("start", JOB)],
    Phase.STOPPING: [("submit", 1, 2 * G, None, 0), ("cancel", JOB)],
    Phase.SUCCEEDED: [("submit", 1, 2 * G, None, 0), ("start", JOB), ("exit", JOB, 0, None)],
    Phase.FAILED: [("submit", 1, 2 * G, None, 0), ("fail_to_launch", JOB)],
    Phase.CANCELLED: [("submit", 1, 2 * G, None, 0), ("cancel", JOB), ("void", JOB)],
    Phase.TIMEOUT: [("submit", 1, 2 * G, None, 0), ("start", JOB), ("exit", JOB, 0, "timeout")],
    Phase.LOST: [("submit", 1, 2 * G, None, 0), ("vanish", JOB)],
}


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_can_be_reached(phase):
    core = run(*STORIES[phase])
    reached = set(core.final.values()) | {one.phase for one in core.state.jobs.values()}
    assert phase in reached
    assert (phase in FINAL) == (core.final.get(JOB) is phase)
