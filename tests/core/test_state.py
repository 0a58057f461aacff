from dataclasses import replace

import pytest

from jupyter_gpusched.core.facts import order_of
from jupyter_gpusched.core.ledger import read_books
from jupyter_gpusched.core.messages import (
    Amended,
    CancelRequested,
    Claimed,
    Exited,
    MainEnded,
    Placed,
    Sampled,
    Started,
    Submitted,
)
from jupyter_gpusched.core.model import Claim, IllegalTransition, Phase, Priority, Request, Terms
from jupyter_gpusched.core.policies import NAMED
from jupyter_gpusched.core.schedule import schedule
from jupyter_gpusched.core.state import NotLive, State, apply, release_overdue
from tests.core.conftest import SETTINGS, G, card, grant, job, record


def run(state, *events, now=10.0):
    changes = []
    for event in events:
        step = apply(state, event, now)
        state, changes = step.state, [*changes, *step.changes]
    return state, changes


def busy(*, used=0, at=11.0, ended=False, **more):
    """A state in which one job of 4G has run on card 0, and with ``ended`` has just ended there."""
    one = job()
    events = [Submitted((one,)), Placed(one.id, (grant(one, since=10.0),)), Started(one.id, 1, 10.0)]
    if ended:
        events.append(Exited(one.id, 1, record(0)))
    state, _ = run(State.begin(SETTINGS), *events)
    return state, Sampled((card(used=used, at=at, used_by_job={one.id: used} if used else {}, **more),))


def test_jobs_are_submitted_all_or_none():
    state, changes = run(State.begin(SETTINGS), Submitted((job("a"), job("b"))))
    assert [(change.kind, change.job.id) for change in changes] == [("submitted", "a"), ("submitted", "b")]
    for wrong in ((job("c"), job("a")), (job("c"), job("c"))):
        with pytest.raises(IllegalTransition):
            apply(state, Submitted(wrong), 11.0)
    assert set(state.jobs) == {"a", "b"}


def test_the_queue_is_kept_in_the_order_of_submission_whatever_the_order_of_arrival():
    jobs = [job("d", at=4.0), job("a", at=3.0, vram=G), job("c", at=4.0), job("b", at=9.0, vram=2 * G)]
    urgent = [job("u", at=1000.0, priority=Priority.HIGH), job("l", at=0.0, priority=Priority.LOW)]
    state, _ = run(State.begin(SETTINGS), Submitted(tuple(jobs)), Submitted(tuple(urgent)))
    assert [place.job_id for place in state.queue.ages] == ["l", "a", "c", "d", "b", "u"]


def test_where_age_decides_a_priority_is_worth_an_hour_of_waiting_and_no_more():
    by_age = replace(SETTINGS, policy=NAMED["backfill"])
    state, _ = run(State.begin(by_age), Submitted((job("n", at=0.0), job("h", at=3601.0, priority=Priority.HIGH))))
    assert order_of(state, 4000.0) == ["n", "h"]


def test_a_job_leaves_when_it_is_final_and_its_memory_is_freed():
    state, sample = busy(ended=True)
    assert (state.jobs["aaaa0001"].phase, set(state.busy)) == (Phase.SUCCEEDED, {"aaaa0001"})
    state, changes = run(state, sample, now=11.0)
    assert (dict(state.jobs), state.busy) == ({}, {})
    assert [(change.kind, change.job.grants) for change in changes] == [("released", ())]


def test_a_job_without_gpus_leaves_as_soon_as_it_ends():
    one = job(gpus=0, cpus=1)
    state, _ = run(State.begin(SETTINGS), Submitted((one,)), Placed(one.id, ()), Exited(one.id, 1, record(0)))
    assert not state.jobs


def test_a_sample_from_before_the_end_frees_nothing():
    state, sample = busy(ended=True, at=10.0)
    assert run(state, sample, now=11.0)[0].jobs


@pytest.mark.parametrize("health", ["lost", "unknown"])
def test_a_card_that_cannot_be_read_frees_nothing_until_the_time_is_up(health):
    state, sample = busy(ended=True, health=health)
    assert run(state, sample, now=11.0)[0].jobs
    assert not run(state, sample, now=10.0 + SETTINGS.release_timeout_s)[0].jobs


def test_a_missing_card_keeps_its_grants_until_the_time_is_up():
    state, _ = busy(ended=True)
    state, _ = run(state, Sampled(()), now=20.0)
    assert state.jobs
    step = release_overdue(state, 70.0)
    assert (dict(step.state.jobs), [change.kind for change in step.changes]) == ({}, ["released"])


def test_memory_that_is_still_measured_for_the_job_keeps_its_grant():
    state, sample = busy(ended=True, used=G)
    assert run(state, sample, now=11.0)[0].jobs


def test_a_live_job_keeps_its_grants_however_little_it_uses():
    state, sample = busy()
    assert run(state, sample, now=500.0)[0].jobs["aaaa0001"].grants


def test_use_and_peak_are_kept_and_the_peak_is_journaled_in_steps():
    state, _ = busy()
    kinds, peaks = [], []
    for used in (1000, 1010, 1100, 500):
        state, changes = run(state, Sampled((card(used=used, at=12.0, used_by_job={"aaaa0001": used}),)), now=12.0)
        kinds.append([change.kind for change in changes])
        one = state.jobs["aaaa0001"]
        peaks.append((one.used_vram_mib, one.peak_vram_mib, one.attempts[-1].peak_vram_mib))
    assert kinds == [["measured"], [], ["measured"], []]
    assert peaks == [(1000, 1000, 1000), (1010, 1010, 1010), (1100, 1100, 1100), (500, 1100, 1100)]


def test_use_is_unknown_when_the_card_cannot_be_read():
    state, sample = busy(used=G)
    state, _ = run(state, sample)
    assert state.jobs["aaaa0001"].used_vram_mib == G
    state, _ = run(state, Sampled((card(health="lost", at=12.0),)))
    assert (state.jobs["aaaa0001"].used_vram_mib, state.jobs["aaaa0001"].peak_vram_mib) == (None, G)


def test_a_promise_that_was_overrun_is_raised_to_what_was_used():
    state, sample = busy(used=6 * G)
    state, _ = run(state, sample)
    state, _ = run(state, Sampled((card(used=0, at=12.0),)))
    assert state.jobs["aaaa0001"].grants[0].promised == 6 * G
    assert state.jobs["aaaa0001"].attempts[0].gpus[0].promised == 4 * G


def test_an_event_that_changes_nothing_is_not_journaled():
    state, _ = busy()
    state, _ = run(state, MainEnded("aaaa0001", 1, 10.0))
    assert run(state, MainEnded("aaaa0001", 1, 10.0), CancelRequested("aaaa0001", "bob"))[1] == []


def test_a_cancel_of_a_job_that_has_left_changes_nothing():
    step = apply(State.begin(SETTINGS), CancelRequested("gone0001", "bob"), 1.0)
    assert (step.changes, step.instructions) == ((), ())


def test_a_fact_about_a_job_that_has_left_is_refused():
    with pytest.raises(NotLive, match="gone0001"):
        apply(State.begin(SETTINGS), Started("gone0001", 1, 1.0), 1.0)


def test_only_one_job_at_a_time_has_a_claim():
    state, _ = run(State.begin(SETTINGS), Submitted((job("a"), job("b"))), Claimed("a", Claim(("GPU-0",), 1.0)))
    assert state.claimant.id == "a"
    with pytest.raises(IllegalTransition):
        apply(state, Claimed("b", Claim(("GPU-0",), 1.0)), 2.0)
    assert run(state, Claimed("a", None))[0].claimant is None
    assert run(state, CancelRequested("a", "bob"))[0].claimant is None


def test_a_state_begun_from_the_journal_is_the_state_that_was_left():
    jobs = (job("a"), job("b", at=2.0, priority=Priority.HIGH), replace(job("c"), not_before=99.0))
    state, _ = run(
        State.begin(SETTINGS, gpus=[card()]),
        Submitted(jobs),
        Placed("a", (grant(jobs[0]),)),
        Claimed("b", Claim(("GPU-0",), 10.0)),
    )
    again = State.begin(SETTINGS, state.jobs.values(), state.gpus.values())
    assert again == state


def test_a_final_job_from_the_journal_is_left_out():
    assert not State.begin(SETTINGS, [replace(job(), phase=Phase.FAILED)]).jobs


def test_the_kinds_of_changes_name_their_events():
    step = schedule(run(State.begin(SETTINGS, gpus=[card(at=10.0)]), Submitted((job(),)))[0], 10.0)
    assert [(change.kind, change.detail) for change in step.changes] == [("placed", {"gpus": ["GPU-0"]})]


def test_an_amended_job_changes_lines_and_places_in_the_queue():
    state, _ = run(State.begin(SETTINGS), Submitted((job("a", at=1.0), job("b", at=2.0), job("c", at=3.0))))
    urgent = Terms("c", Request(vram=G), Priority.HIGH, None, 30.0, 0, ())
    state, changes = run(state, Amended("c", "ann", urgent))
    assert order_of(state, 10.0) == ["c", "a", "b"]
    assert [(change.kind, change.detail) for change in changes] == [("amended", {"by": "ann"})]
    assert State.begin(SETTINGS, state.jobs.values()) == state


def test_an_amendment_that_changes_nothing_is_not_written_down():
    one = job()
    same = Terms(one.name, one.request, one.priority, one.time_limit_s, one.grace_s, one.retries, one.tags)
    assert run(State.begin(SETTINGS), Submitted((one,)), Amended(one.id, "ann", same))[1][1:] == []


def test_only_a_live_job_is_amended():
    with pytest.raises(NotLive):
        apply(State.begin(SETTINGS), Amended("gone", "ann", Terms("x", Request(), Priority.LOW, None, 1.0, 0, ())), 1.0)


def retried_where_it_was(*, earlier, now_used):
    """A job whose second attempt runs on the card where the first may not have let go of everything."""
    state, _ = busy(ended=False)
    one = replace(state.jobs["aaaa0001"], retries=1)
    state = State.begin(SETTINGS, [one], [card(at=10.0)])
    state, _ = run(state, Exited(one.id, 1, record(1)), now=20.0)
    state, _ = run(state, Placed(one.id, (grant(one, attempt=2, since=26.0),)), Started(one.id, 2, 26.0), now=26.0)
    used = {one.id: now_used}, {one.id: earlier}
    seen = card(used=earlier + now_used, at=27.0, used_by_job=used[0], used_by_earlier=used[1])
    return run(state, Sampled((seen,)), now=27.0)[0]


def test_the_grant_of_an_earlier_attempt_goes_although_the_next_one_runs_on_the_same_card():
    state = retried_where_it_was(earlier=0, now_used=2 * G)
    assert [held.attempt for held in state.jobs["aaaa0001"].grants] == [2]


def test_what_an_earlier_attempt_still_holds_is_not_taken_for_the_use_of_the_next():
    state = retried_where_it_was(earlier=4 * G, now_used=2 * G)
    one = state.jobs["aaaa0001"]
    assert [(held.attempt, held.promised) for held in one.grants] == [(1, 4 * G), (2, 4 * G)]
    assert (one.used_vram_mib, one.attempts[-1].peak_vram_mib) == (2 * G, 2 * G)
    (seen,) = read_books(state, 27.0).cards.values()
    assert (seen.available, seen.foreign) == (24 * G - 6 * G - 2 * G, 0)
