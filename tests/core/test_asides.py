"""Dependencies, arrays with a throttle, holds, and what a batch meets that fails at once."""

from dataclasses import replace

import pytest

from jupyter_gpusched.core.asides import UnknownParent
from jupyter_gpusched.core.asked import After, Hold, Member
from jupyter_gpusched.core.explain import positions, waiting
from jupyter_gpusched.core.messages import (
    CancelRequested,
    Claimed,
    HoldRequested,
    Placed,
    ReleaseRequested,
    Reordered,
    Submitted,
)
from jupyter_gpusched.core.model import Claim, IllegalTransition, Phase
from jupyter_gpusched.core.state import State, apply
from tests.core.conftest import SETTINGS, G, World, card, grant, job


def child(job_id, *parents, when="succeeded", **more):
    return replace(job(job_id, **more), after=After(parents, when))


def array(count, *, throttle=None, name="array001", **more):
    elements = [replace(job(f"elem{n:04d}", **more), member=Member(name, n, throttle)) for n in range(count)]
    return [replace(one, name="sweep") for one in elements]


def why(world, job_id):
    return waiting(world.state, world.state.jobs[job_id], world.now)


@pytest.fixture
def world():
    return World(card(0), card(1))


# --- dependencies -------------------------------------------------------------------------


def test_a_dependent_starts_in_the_pass_in_which_its_parent_succeeds(world):
    world.submit(job("parent01"), child("child001", "parent01"))
    assert world.running() == {"parent01"}
    assert why(world, "child001") == "waits for job parent01 (running)"
    world.end("parent01")
    assert world.running() == {"child001"}


def test_a_dependent_of_a_job_that_failed_ends_with_a_sentence_about_it(world):
    world.submit(job("parent01"), child("child001", "parent01"))
    world.end("parent01", code=3)
    ended = world.final["child001"]
    assert (ended.phase, ended.reason, ended.attempts) == (Phase.CANCELLED, "dependency_failed", ())
    assert ended.message == "not started: it was to start after job parent01 (parent01), which failed: said why"
    assert world.state.jobs.get("child001") is None


def test_chains_end_together_however_long_they_are(world):
    chain = [child(f"link{n:04d}", f"link{n - 1:04d}") for n in range(1, 2000)]
    world.submit(job("link0000"), *chain)
    world.tell(CancelRequested("link0000", "ann"))
    world.end("link0000")
    assert {one.phase for one in world.final.values()} == {Phase.CANCELLED}
    assert len(world.final) == 2000
    assert "job link1998 (link1998), which was cancelled" in world.final["link1999"].message
    assert not world.state.asides.dependents


def test_a_dependent_waits_for_all_of_its_parents(world):
    world.submit(job("parent01"), job("parent02"), child("child001", "parent01", "parent02"))
    world.end("parent02")
    assert why(world, "child001") == "waits for job parent01 (running)"
    world.end("parent01")
    assert world.phase("child001") is Phase.RUNNING


def test_who_waits_for_the_end_however_it_was_starts_after_a_failure(world):
    world.submit(job("parent01"), child("child001", "parent01", when="finished"))
    world.end("parent01", code=1)
    assert world.phase("child001") is Phase.RUNNING


def test_a_retry_of_the_parent_is_waited_for(world):
    world.submit(job("parent01", retries=1), child("child001", "parent01"))
    world.end("parent01", code=1)
    assert why(world, "child001") == "waits for job parent01 (queued)"
    world.sleep(10)
    world.end("parent01")
    assert world.phase("child001") is Phase.RUNNING


@pytest.mark.parametrize(
    ("phase", "when", "then"),
    [
        (Phase.SUCCEEDED, "succeeded", Phase.RUNNING),
        (Phase.FAILED, "succeeded", Phase.CANCELLED),
        (Phase.LOST, "succeeded", Phase.CANCELLED),
        (Phase.TIMEOUT, "finished", Phase.RUNNING),
    ],
)
def test_a_parent_that_has_ended_before_decides_at_once(world, phase, when, then):
    past = replace(job("parent01"), phase=phase, message="so it was")
    step = apply(world.state, Submitted((child("child001", "parent01", when=when),), (past,)), world.now)
    world.take(step)
    world.schedule()
    assert world.phase("child001") is then


def test_a_job_of_which_nothing_is_known_cannot_be_waited_for(world):
    with pytest.raises(UnknownParent):
        apply(world.state, Submitted((child("child001", "nobody01"),)), world.now)


def test_a_dependent_that_is_cancelled_leaves_its_parent_alone(world):
    world.submit(job("parent01"), child("child001", "parent01"))
    world.tell(CancelRequested("child001", "ann"))
    assert not world.state.asides.dependents
    assert not world.state.asides.waiting
    world.end("parent01")
    assert world.phase("parent01") is Phase.SUCCEEDED


def test_the_time_in_which_a_job_waits_for_others_makes_it_no_older(world):
    world.submit(job("parent01"), child("child001", "parent01", gpus=2, vram=20 * G))
    world.sleep(100)
    blocker = job("blocker1", vram=20 * G)
    world.submit(blocker, replace(blocker, id="blocker2"))
    world.end("parent01")
    assert world.phase("child001") is Phase.QUEUED
    assert world.state.jobs["child001"].ages_from == pytest.approx(world.now)


# --- holds --------------------------------------------------------------------------------


def test_a_held_job_does_not_start_until_it_is_released(world):
    world.submit(job("blocker1", gpus=2, vram=20 * G))
    world.submit(job("waiting1", vram=20 * G))
    world.sleep(50)
    world.tell(HoldRequested("waiting1", "ann", "the data are not there yet"))
    world.end("blocker1")
    world.sleep(500)
    assert why(world, "waiting1") == (
        "held by ann: the data are not there yet; "
        "`jupyter gpusched release waiting1`, in a notebook `%gpurelease waiting1`, lets it go on"
    )
    world.tell(ReleaseRequested("waiting1", "ann"))
    assert world.phase("waiting1") is Phase.RUNNING
    assert world.state.jobs["waiting1"].ages_from == pytest.approx(500)


def test_a_second_hold_and_a_second_release_change_nothing(world):
    world.submit(job("blocker1", gpus=2, vram=20 * G))
    world.submit(job("waiting1", vram=20 * G))
    world.tell(HoldRequested("waiting1", "ann"))
    assert not apply(world.state, HoldRequested("waiting1", "bob"), world.now).changes
    world.tell(ReleaseRequested("waiting1", "ann"))
    assert not apply(world.state, ReleaseRequested("waiting1", "ann"), world.now).changes


def test_a_cause_that_a_person_gives_later_stands_and_the_hold_is_as_old_as_it_is(world):
    world.submit(job("blocker1", gpus=2, vram=20 * G))
    world.submit(job("waiting1", vram=20 * G))
    world.tell(HoldRequested("waiting1", "ann"))
    since = world.state.jobs["waiting1"].held.since
    world.sleep(50)
    world.tell(HoldRequested("waiting1", "ann", "later"))
    world.tell(HoldRequested("waiting1", "gpusched", "three have failed"))
    assert world.state.jobs["waiting1"].held == Hold("ann", "later", since)


def test_no_cards_are_kept_for_a_held_job(world):
    world.submit(job("blocker1", gpus=2, vram=20 * G))
    world.submit(job("waiting1", vram=20 * G))
    world.tell(Claimed("waiting1", Claim(("GPU-0",), 0.0)))
    world.tell(HoldRequested("waiting1", "ann"))
    assert world.state.jobs["waiting1"].claim is None
    with pytest.raises(IllegalTransition):
        apply(world.state, Claimed("waiting1", Claim(("GPU-0",), 0.0)), world.now)


def test_a_held_job_cannot_be_placed_and_a_running_one_not_held(world):
    world.submit(job("running1"), job("blocker1", gpus=2, vram=20 * G))
    world.submit(job("waiting1", vram=20 * G))
    world.tell(HoldRequested("waiting1", "ann"))
    with pytest.raises(IllegalTransition):
        apply(world.state, Placed("waiting1", (grant(world.state.jobs["waiting1"]),)), world.now)
    with pytest.raises(IllegalTransition):
        apply(world.state, HoldRequested("running1", "ann"), world.now)


def test_those_set_aside_stand_behind_all_others_and_can_be_put_in_an_order(world):
    world.submit(job("blocker1", gpus=2, vram=20 * G))
    world.submit(*[job(f"waiting{n}", vram=20 * G) for n in range(3)])
    world.tell(HoldRequested("waiting0", "ann"))
    assert positions(world.state, world.now) == {"waiting1": 1, "waiting2": 2, "waiting0": 3}
    world.tell(Reordered("waiting0", "ann", "waiting1", before=True))
    world.tell(ReleaseRequested("waiting0", "ann"))
    assert positions(world.state, world.now) == {"waiting0": 1, "waiting1": 2, "waiting2": 3}


# --- arrays -------------------------------------------------------------------------------


def test_no_more_of_an_array_run_than_its_throttle_says(world):
    world.submit(*array(10, throttle=2, vram=1 * G))
    assert world.running() == {"elem0000", "elem0001"}
    assert why(world, "elem0002") == "waits for its turn: 2 of array array001 may run at a time"
    world.end("elem0001")
    assert world.running() == {"elem0000", "elem0002"}
    for number in (0, 2, 3, 4, 5, 6, 7, 8, 9):
        assert len(world.running()) <= 2
        world.end(f"elem{number:04d}")
    world.sleep(1)
    assert not world.state.jobs
    assert not world.state.asides.batches


def test_an_array_of_a_thousand_does_not_keep_the_single_job_of_another_waiting(world):
    world.submit(*array(1000, vram=6 * G))
    world.sleep(60)
    world.submit(replace(job("single01", vram=6 * G), owner="bob"))
    assert world.phase("single01") is Phase.QUEUED
    world.end("elem0000")
    world.sleep(1)
    assert world.phase("single01") is Phase.RUNNING


def test_an_array_without_a_throttle_takes_what_there_is(world):
    world.submit(*array(10, vram=4 * G))
    assert len(world.running()) == 10


def test_a_held_element_gives_its_turn_to_the_next(world):
    world.submit(job("blocker1", gpus=2, vram=23 * G))
    world.submit(*array(4, throttle=1, vram=4 * G))
    world.tell(HoldRequested("elem0000", "ann"))
    world.end("blocker1")
    world.sleep(1)
    assert world.running() == {"elem0001"}
    world.tell(ReleaseRequested("elem0000", "ann"))
    assert why(world, "elem0000") == "waits for its turn: 1 of array array001 may run at a time"
    world.end("elem0001")
    assert world.running() == {"elem0000"}


def test_an_element_that_is_tried_again_keeps_its_turn(world):
    world.submit(*array(3, throttle=1, retries=1))
    world.end("elem0000", code=1)
    assert world.running() == set()
    world.sleep(10)
    assert world.running() == {"elem0000"}


def test_a_cancelled_element_lets_the_next_in(world):
    world.submit(job("blocker1", gpus=2, vram=23 * G))
    world.submit(*array(3, throttle=1))
    world.tell(CancelRequested("elem0000", "ann"))
    world.end("blocker1")
    world.sleep(1)
    assert world.running() == {"elem0001"}


def test_an_array_whose_elements_have_a_parent_keeps_to_its_throttle(world):
    elements = [replace(one, after=After(("parent01",))) for one in array(4, throttle=2)]
    world.submit(job("parent01"), *elements)
    assert why(world, "elem0003") == "waits for job parent01 (running)"
    world.end("parent01")
    assert world.running() == {"elem0000", "elem0001"}


# --- batches that fail at once --------------------------------------------------------------


def failing(world, *numbers, code=1, after=5.0):
    for number in numbers:
        job_id = f"elem{number:04d}"
        world.sleep(after)
        world.end(job_id, code)


def test_three_quick_failures_in_a_row_hold_what_of_the_batch_still_waits(world):
    world.submit(*array(10, throttle=1), job("other001", vram=1 * G))
    failing(world, 0, 1, 2)
    held = [one.held for one in world.state.jobs.values() if one.held is not None]
    assert len(held) == 7
    assert held[0].by == "gpusched"
    assert held[0].cause == (
        "3 jobs of its batch failed within 30s of their start in the same way (the last, elem0002: said why)"
    )
    assert why(world, "elem0004").endswith("`%gpurelease array001`, lets all of them go on")
    assert world.running() == {"other001"}
    for number in range(3, 10):
        world.tell(ReleaseRequested(f"elem{number:04d}", "ann"))
    assert world.running() == {"elem0003", "other001"}


def test_after_a_release_it_takes_three_more(world):
    world.submit(*array(10, throttle=1))
    failing(world, 0, 1, 2)
    for number in range(3, 10):
        world.tell(ReleaseRequested(f"elem{number:04d}", "ann"))
    failing(world, 3, 4)
    world.sleep(5)
    assert world.running() == {"elem0005"}
    failing(world, 5)
    assert sum(one.held is not None for one in world.state.jobs.values()) == 4


@pytest.mark.parametrize("between", [0, 2])
def test_an_end_of_another_kind_begins_anew(world, between):
    world.submit(*array(10, throttle=1))
    failing(world, 0, 1)
    failing(world, 2, code=between)
    failing(world, 3, 4)
    assert not [one for one in world.state.jobs.values() if one.held is not None]


def test_long_runs_that_fail_hold_nobody(world):
    world.submit(*array(6, throttle=1))
    failing(world, 0, 1, 2, 3, after=40.0)
    assert world.running() == {"elem0004"}


def test_a_new_host_goes_on_counting(world):
    from jupyter_gpusched.core.streaks import since

    world.submit(*array(10, throttle=1))
    failing(world, 0, 1)
    ended = [one for one in world.final.values() if one.member is not None]
    again = State.begin(
        SETTINGS, world.state.jobs.values(), world.state.seen.values(), past=world.state.past, streaks=since(ended)
    )
    assert again.streaks == world.state.streaks
    world.state = again
    failing(world, 2)
    assert sum(one.held is not None for one in world.state.jobs.values()) == 7


def test_one_job_that_fails_again_and_again_is_no_streak(world):
    world.submit(*array(3, throttle=1, retries=5))
    for _ in range(6):
        world.end("elem0000", 1)
        world.sleep(400)
    assert world.phase("elem0000") is Phase.FAILED
    assert world.running() == {"elem0001"}
