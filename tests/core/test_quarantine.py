"""Cards that get no jobs: how that begins, that it lasts, and how it ends (case 28)."""

from dataclasses import replace

import pytest

from jupyter_gpusched.core.messages import Drained, Exited, Placed, Quarantined, Resumed, Returned, Sampled, Started
from jupyter_gpusched.core.messages import Submitted as Queued
from jupyter_gpusched.core.model import Phase
from jupyter_gpusched.core.state import State, apply
from tests.core.conftest import SETTINGS, World, card, grant, job, record

LOST = {"health": "lost", "health_cause": "the card fell off the bus"}


def kinds(step):
    return [change.kind for change in step.changes]


def seen(state, now, *cards):
    return apply(state, Sampled(tuple(replace(one, sampled_at=now) for one in cards)), now)


def two_cards():
    return State.begin(SETTINGS, gpus=[card(0), card(1)])


def test_a_lost_card_that_comes_back_by_itself_stays_quarantined_with_its_cause():
    step = seen(two_cards(), 1.0, card(0), card(1, **LOST))
    assert kinds(step) == ["quarantined"]
    assert step.changes[0].detail == {
        "gpu": "GPU-1", "index": 1, "cause": "the card fell off the bus", "by": "gpusched", "because": "lost",
    }  # fmt: skip
    assert step.state.gpus["GPU-1"].health == "lost"
    step = seen(step.state, 100.0, card(0), card(1))
    assert (kinds(step), step.state.gpus["GPU-1"].health) == ([], "quarantined")
    assert step.state.gpus["GPU-1"].health_cause == "it was lost (the card fell off the bus) and can be read again"
    assert step.state.gpus["GPU-1"].health_since == 1.0


def test_a_host_that_is_restarted_goes_on_with_the_quarantine():
    ill = seen(two_cards(), 1.0, card(0), card(1, **LOST)).state
    again = State.begin(SETTINGS, gpus=[card(0), card(1)], operations=ill.operations)
    assert again.gpus["GPU-1"].health == "quarantined"


def test_a_card_that_is_lost_cannot_be_returned_and_one_that_is_back_can():
    ill = seen(two_cards(), 1.0, card(0), card(1, **LOST)).state
    assert apply(ill, Returned("GPU-1", "ann", "looks well"), 2.0).changes == ()
    back = seen(ill, 3.0, card(0), card(1)).state
    step = apply(back, Returned("GPU-1", "ann", "reseated"), 4.0)
    assert step.state.gpus["GPU-1"].health == "ok"
    assert step.changes[0].detail == {
        "gpu": "GPU-1", "index": 1, "by": "ann", "cause": "reseated", "was": "the card fell off the bus",
    }  # fmt: skip


def test_a_card_that_reports_a_fault_is_quarantined_once():
    step = seen(two_cards(), 1.0, card(0, fault="row remapping failed"), card(1))
    assert (kinds(step), step.state.gpus["GPU-0"].health) == (["quarantined"], "quarantined")
    assert kinds(seen(step.state, 2.0, card(0, fault="row remapping failed"), card(1))) == []
    assert seen(step.state, 3.0, card(0), card(1)).state.gpus["GPU-0"].health == "quarantined"


def test_a_card_that_was_returned_with_its_fault_is_quarantined_again_only_for_another():
    ill = seen(two_cards(), 1.0, card(0, fault="a reset is due"), card(1)).state
    back = apply(ill, Returned("GPU-0", "ann", "it will do"), 2.0).state
    again = seen(back, 3.0, card(0, fault="a reset is due"), card(1))
    assert (kinds(again), again.state.gpus["GPU-0"].health) == ([], "ok")
    assert kinds(seen(again.state, 4.0, card(0, fault="row remapping failed"), card(1))) == ["quarantined"]
    healed = seen(again.state, 4.0, card(0), card(1)).state
    assert kinds(seen(healed, 5.0, card(0, fault="a reset is due"), card(1))) == ["quarantined"]


def test_an_unreadable_card_is_no_quarantined_one_and_keeps_being_unreadable():
    step = seen(two_cards(), 1.0, card(0, health="unknown", health_cause="no answer"), card(1))
    assert kinds(step) == []
    ill = apply(step.state, Quarantined("GPU-0", "ann", "look at it"), 2.0).state
    assert ill.gpus["GPU-0"].health == "unknown"


def test_by_hand_goes_before_what_the_scheduler_found_and_twice_is_once():
    ill = seen(two_cards(), 1.0, card(0, fault="a reset is due"), card(1)).state
    step = apply(ill, Quarantined("GPU-0", "ann", "I look at it"), 2.0)
    assert step.state.operations.quarantines["GPU-0"].by == "ann"
    assert apply(step.state, Quarantined("GPU-0", "bob", "me too"), 3.0).changes == ()
    assert apply(two_cards(), Returned("GPU-0", "ann", "why not"), 3.0).changes == ()


# --- three quick deaths -------------------------------------------------------------------


def attempt(state, job_id, at, *, lasted=5.0, reason="signal_11", code=None, index=0, owner="ann", **request):
    """A job that runs on a card and ends."""
    one = replace(job(job_id, at=at, **request), owner=owner)
    number = 1
    state = apply(state, Queued((one,)), at).state
    places = tuple(grant(one, index + offset, since=at) for offset in range(one.request.gpus))
    state = apply(state, Placed(job_id, places), at).state
    state = apply(state, Started(job_id, number, at), at).state
    ended = record(code, None if code is not None else 11, at=at + lasted, started_at=at, reason=reason)
    return apply(state, Exited(job_id, number, ended), at + lasted)


def died(state, *deaths):
    """Steps of several attempts, each (how it was, more)."""
    step = None
    for number, more in enumerate(deaths):
        step = attempt(state, f"job{number:05d}", 10.0 * number, **more)
        state = step.state
    return step


def test_three_jobs_that_crash_at_once_one_after_the_other_quarantine_their_card():
    step = died(two_cards(), {}, {"reason": "gpu_error", "code": 1}, {})
    assert kinds(step) == ["exited", "quick_death", "quarantined"]
    order = step.state.operations.quarantines["GPU-0"]
    assert (order.kind, order.by) == ("deaths", "gpusched")
    assert order.cause == "3 attempts in a row died on it within 30s of their start (the last: signal 11)"
    assert "job0" not in order.cause, "others read it"
    assert step.state.gpus["GPU-0"].health == "quarantined"
    assert step.state.gpus["GPU-1"].health == "ok"


@pytest.mark.parametrize(
    ("second", "why"),
    [
        ({"reason": "exit", "code": 1}, "an exit code is the job's own"),
        ({"reason": "signal_9"}, "host memory or a person"),
        ({"reason": "cuda_oom", "code": 1}, "it asked for too little"),
        ({"lasted": 31.0}, "it ran for a while"),
        ({"code": 0, "reason": "exit"}, "it went well"),
        ({"index": 1}, "another card"),
        ({"gpus": 2}, "nobody can say which of its cards"),
    ],
)
def test_a_healthy_card_is_not_taken_away(second, why):
    assert not died(two_cards(), {}, second, {}).state.operations.quarantines, why


def test_a_restart_of_the_host_neither_forgets_a_row_of_deaths_nor_brings_back_one_that_ended():
    step = died(two_cards(), {}, {}, {"code": 0, "reason": "exit"})
    assert kinds(step) == ["exited", "went_well"]
    journal = [*died(two_cards(), {}, {}).changes, *step.changes]
    twice, ended = journal[1].operations, journal[-1].operations
    for kept, quarantined in ((twice, True), (ended, False)):
        again = State.begin(SETTINGS, gpus=[card(0), card(1)], operations=kept)
        last = attempt(again, "job00009", 100.0).state
        assert bool(last.operations.quarantines) is quarantined


def test_an_end_that_says_nothing_of_the_card_neither_counts_nor_begins_anew():
    mistake = {"reason": "exit", "code": 1}
    assert died(two_cards(), {}, mistake, {}, mistake, {}).state.operations.quarantines


def test_one_job_alone_takes_no_card_away_however_often_it_crashes():
    world = World(card(0))
    world.submit(job("crashes", retries=5))
    for _ in range(6):
        one = world.state.jobs["crashes"]
        ended = record(None, 11, at=world.now + 1, started_at=world.now, reason="signal_11")
        world.tell(Exited("crashes", one.attempt, ended))
        while world.phase("crashes") is Phase.QUEUED:
            world.sleep(1.0)
    assert world.phase("crashes") is Phase.FAILED
    assert [change.kind for change in world.of_machine] == ["quick_death"] * 6
    assert not world.state.operations.quarantines


# --- drain -------------------------------------------------------------------------------


def test_a_drained_machine_starts_nothing_and_goes_on_where_it_stopped():
    world = World(card(0))
    world.submit(job("a"))
    world.tell(Drained("ann", "new disks"))
    world.submit(job("b"))
    world.sleep(400.0, tick=50.0)
    assert (world.running(), world.phase("b")) == ({"a"}, Phase.QUEUED)
    world.tell(Drained("bob", "me too"))
    assert world.state.operations.drain.by == "ann"
    world.tell(Resumed("ann", "done"))
    assert world.running() == {"a", "b"}
    assert [change.kind for change in world.of_machine] == ["drained", "resumed"]
