"""Days in the life of a queue, on a virtual clock; the numbers are those of the case book."""

from dataclasses import replace

import pytest

from jupyter_gpusched.core.explain import positions, waiting
from jupyter_gpusched.core.messages import CancelRequested
from jupyter_gpusched.core.model import Phase, Priority
from tests.core.conftest import FIRM, G, World, card, job


def cards(number, **more):
    return [card(index, **more) for index in range(number)]


def test_twenty_jobs_of_5g_fill_two_cards_with_four_each_and_all_end_well():  # case 34
    world = World(*cards(2))
    world.submit(*[job(f"job{number:05d}", vram=5 * G) for number in range(20)])
    assert len(world.running()) == 8
    while len(world.final) < 20:
        assert max(len(world.on_card(0)), len(world.on_card(1))) <= 4
        world.end(min(world.running(), key=lambda job_id: (world.started_at[job_id], job_id)))
        world.sleep(1.0)
    assert {ended.phase for ended in world.final.values()} == {Phase.SUCCEEDED}


def test_whatever_fits_starts_and_gangs_start_whole():  # case 38
    world = World(*cards(4))
    world.submit(job("a", vram=20 * G))
    world.submit(
        job("b", gpus=4, vram=20 * G),
        job("c", vram=3 * G),
        job("d", gpus=0, cpus=1),
        job("e", gpus=3, vram=20 * G),
        job("f", gpus=3, vram=20 * G),
    )
    assert world.running() == {"a", "c", "d", "e"}
    assert world.on_card(0) == {"a", "c"}
    assert world.state.jobs["f"].grants == ()
    world.end("a")
    world.sleep(2.0)
    assert len(world.running() & {"b", "e", "f"}) == 1


def test_a_card_is_given_again_only_when_it_shows_the_memory_freed():  # case 18
    world = World(card())
    world.submit(job("a", vram=20 * G), job("b", vram=20 * G))
    world.lingering = {0: 20 * G}
    world.end("a")
    world.sleep(8.0)
    assert world.phase("b") is Phase.QUEUED
    world.lingering = {}
    world.sleep(1.0)
    assert world.phase("b") is Phase.RUNNING


def test_memory_that_never_comes_back_is_named_as_the_reason():  # case 18
    world = World(card())
    world.submit(job("a", vram=20 * G), job("b", vram=20 * G))
    world.lingering = {0: 20 * G}
    world.end("a")
    world.sleep(70.0)
    said = waiting(world.state, world.state.jobs["b"], world.now)
    assert said == "needs 20.0G on 1 GPU; best is GPU 0: 4.0G free, 20.0G in use outside the queue"


def test_a_job_waits_for_use_outside_the_queue_and_says_so():  # case 35
    world = World(*cards(2))
    world.foreign = {0: 22 * G, 1: 12 * G}
    world.sample()
    world.submit(job("a", vram=20 * G))
    said = waiting(world.state, world.state.jobs["a"], world.now)
    assert said == "needs 20.0G on 1 GPU; best is GPU 1: 12.0G free, 12.0G in use outside the queue"
    world.foreign = {0: 22 * G}
    world.sample()
    assert world.on_card(1) == {"a"}


def test_a_cancelled_job_never_starts():  # case 21
    world = World(card())
    world.submit(job("a", vram=20 * G), job("b", vram=20 * G))
    world.tell(CancelRequested("b", "ann"))
    world.tell(CancelRequested("b", "ann"))
    world.end("a")
    world.sleep(5.0)
    assert world.phase("b") is Phase.CANCELLED
    assert "b" not in world.started_at
    assert [change.kind for change in world.history if change.job.id == "b"] == ["submitted", "cancel_requested"]


def test_a_wide_job_starts_when_those_that_ran_at_its_claim_have_ended():
    world = World(*cards(2), settings=FIRM)
    world.submit(*[job(f"old{number}", vram=10 * G) for number in range(4)])
    world.submit(job("wide", gpus=2, vram=20 * G))
    fresh = iter(range(1000))
    for _ in range(40):  # a stream of small jobs that would pass it for ever
        world.submit(job(f"small{next(fresh):03d}", vram=4 * G))
        world.sleep(10.0)
        for job_id in sorted(world.running() - {"wide"})[:1]:
            world.end(job_id)
    assert "wide" in world.started_at
    assert world.started_at["wide"] < FIRM.claim_after_s + 100


def test_while_a_claim_stands_a_small_job_may_still_use_what_it_leaves():
    world = World(card(), settings=FIRM)
    world.submit(job("old", vram=10 * G))
    world.submit(job("big", vram=20 * G))
    world.sleep(FIRM.claim_after_s + 1)
    assert world.state.claimant.id == "big"
    world.submit(job("small", vram=4 * G))
    world.submit(job("wants-more", vram=4 * G))
    assert world.running() == {"old", "small"}
    said = waiting(world.state, world.state.jobs["wants-more"], world.now)
    assert said == "needs 4.0G on 1 GPU; GPU 0 is kept for job big, which has waited 5m01s for 20.0G on 1 GPU"
    world.end("old")
    world.sleep(1.0)
    assert world.running() == {"small", "big"}


def test_a_job_for_a_whole_card_is_not_passed_for_ever():
    world = World(card(), settings=FIRM)
    world.submit(job("old", vram=4 * G))
    world.submit(job("whole", vram=None))
    world.sleep(FIRM.claim_after_s + 1)
    world.submit(job("small", vram=4 * G))
    assert world.running() == {"old"}
    world.end("old")
    world.sleep(1.0)
    assert world.running() == {"whole"}
    assert world.state.jobs["whole"].grants[0].promised == 24 * G


def test_a_claim_bounds_cpus_too():
    world = World(card(), settings=FIRM)
    world.submit(job("old", gpus=0, cpus=4))
    world.submit(job("many", gpus=0, cpus=16))
    world.sleep(FIRM.claim_after_s + 1)
    world.submit(job("late", gpus=0, cpus=1))
    assert world.running() == {"old"}
    assert "kept for job many" in waiting(world.state, world.state.jobs["late"], world.now)
    world.end("old")
    assert world.running() == {"many"}


def test_a_claim_moves_when_its_card_is_lost():
    world = World(*cards(2), settings=FIRM)
    world.submit(job("a", vram=10 * G), job("b", vram=15 * G), job("big", vram=20 * G))
    world.sleep(FIRM.claim_after_s + 1)
    claimed = world.state.jobs["big"].claim.gpus[0]
    world.cards = [replace(gpu, health="lost") if gpu.uuid == claimed else gpu for gpu in world.cards]
    world.sample()
    assert world.state.jobs["big"].claim.gpus != (claimed,)
    world.cards = [replace(gpu, health="lost") for gpu in world.cards]
    world.sample()
    assert world.state.claimant is None


def test_a_retry_rests_and_then_starts_by_the_timer_alone():
    world = World(card())
    world.submit(job("a", retries=1))
    world.end("a", code=1)
    assert waiting(world.state, world.state.jobs["a"], world.now) == "attempt 1 of 2 failed; it is tried again in 5s"
    world.sleep(4.9)
    assert world.phase("a") is Phase.QUEUED
    world.sleep(0.2)
    assert world.phase("a") is Phase.RUNNING


def test_a_whole_card_job_tolerates_a_little_use_by_others_and_then_nobody_joins():
    world = World(card())
    world.foreign = {0: 513}
    world.sample()
    world.submit(job("whole", vram=None))
    assert world.running() == set()
    world.foreign = {0: 512}
    world.sample()
    world.foreign = {}
    world.sample()
    world.submit(job("small", vram=100))
    assert world.running() == {"whole"}
    assert world.state.jobs["whole"].grants[0].promised == 24 * G - 512


def test_an_exclusive_job_shares_its_card_with_nobody():
    world = World(*cards(2))
    world.submit(job("a", vram=4 * G), job("alone", vram=4 * G, exclusive=True), job("b", vram=22 * G))
    assert (world.on_card(0), world.on_card(1)) == ({"a"}, {"alone"})


def test_nobody_joins_an_exclusive_job_in_the_pass_that_starts_it():
    world = World(card())
    world.submit(job("alone", vram=4 * G, exclusive=True), job("later", vram=4 * G))
    assert world.running() == {"alone"}


def test_what_is_used_outside_the_queue_is_not_left_to_others_on_a_claimed_card():
    world = World(card(), settings=FIRM)
    world.foreign = {0: 3 * G}
    world.sample()
    world.submit(job("old", vram=10 * G))
    world.submit(job("big", vram=18 * G))
    world.sleep(FIRM.claim_after_s + 1)
    world.submit(job("small", vram=4 * G))
    assert world.running() == {"old"}


def test_a_claim_binds_the_jobs_behind_it_in_the_pass_that_makes_it():
    world = World(card(), settings=FIRM)
    world.submit(job("old", vram=10 * G))
    world.submit(job("big", vram=20 * G))
    world.now = FIRM.claim_after_s
    world.see_cards()
    world.submit(job("small", vram=8 * G))
    assert world.state.claimant.id == "big"
    assert world.running() == {"old"}


def test_a_claim_that_moves_is_kept_from_the_jobs_of_the_same_pass():
    world = World(*cards(2), settings=FIRM)
    world.submit(job("a", vram=10 * G))
    world.submit(job("b", vram=15 * G))
    world.submit(job("big", vram=20 * G))
    world.sleep(FIRM.claim_after_s + 1)
    assert world.state.jobs["big"].claim.gpus == ("GPU-0",)
    world.cards[0] = replace(world.cards[0], health="quarantined")
    world.see_cards()
    world.submit(job("small", vram=8 * G, priority=Priority.HIGH))
    assert world.state.jobs["big"].claim.gpus == ("GPU-1",)
    assert world.running() == {"a", "b"}


@pytest.mark.parametrize(("wish", "index"), [(("1",), 1), (("GPU-1",), 1), ((), 0), (("7",), 0)])
def test_a_preferred_card_is_taken_when_it_has_room(wish, index):
    world = World(*cards(2))
    world.submit(job("a", vram=4 * G, preferred_gpus=wish))
    assert world.on_card(index) == {"a"}


def test_a_preference_is_only_a_wish():
    world = World(*cards(2))
    world.submit(job("full", vram=24 * G))
    world.submit(job("a", vram=4 * G, preferred_gpus=("0",)))
    assert world.on_card(1) == {"a"}


def test_a_stale_sample_places_nothing():
    world = World(card())
    world.now = 11.0
    world.submit(job("a"))
    assert world.running() == set()
    said = waiting(world.state, world.state.jobs["a"], world.now)
    assert said == "needs 4.0G on 1 GPU; GPU 0 could not be read for 11s; nothing starts there meanwhile"


def test_a_job_for_two_gpus_takes_no_two_mig_instances():
    mig = [card(0), card(1, parent_uuid="GPU-0"), card(2, parent_uuid="GPU-0")]
    world = World(*mig)
    world.submit(job("wide", gpus=2, vram=G), job("one", vram=G))
    assert world.running() == {"one"}
    assert world.on_card(0) == set()


def test_waiting_names_cpus_memory_and_how_many_cards_have_it():
    world = World(*cards(3))
    world.submit(job("a", vram=20 * G, cpus=14, memory=60 * G))
    asked = {
        "c": ({"gpus": 0, "cpus": 4}, "needs 4 CPUs; 2 of 16 are not taken by other jobs"),
        "m": ({"vram": G, "memory": 8 * G}, "needs 8.0G of host memory; 4.0G of 64.0G is not taken by other jobs"),
        "w": (
            {"gpus": 3, "vram": 20 * G},
            (
                "needs 20.0G on each of 3 GPUs; 2 of 3 GPUs are able to give 20.0G; "
                "the next is GPU 0: 4.0G free, 20.0G promised to 1 job"
            ),
        ),
    }
    for job_id, (request, sentence) in asked.items():
        world.submit(job(job_id, **request))
        assert waiting(world.state, world.state.jobs[job_id], world.now) == sentence


def test_waiting_says_that_ended_jobs_have_not_released_their_memory():
    world = World(card())
    world.submit(job("a", vram=20 * G), job("b", vram=20 * G))
    world.end("a")
    said = waiting(world.state, world.state.jobs["b"], world.now)
    assert said == "needs 20.0G on 1 GPU; best is GPU 0: 4.0G free, 20.0G of ended jobs not released yet"


def test_waiting_says_that_no_card_was_seen_and_nothing_for_a_job_that_runs():
    world = World()
    world.submit(job("a"), job("b", gpus=0, cpus=1))
    assert waiting(world.state, world.state.jobs["a"], world.now) == "needs 4.0G on 1 GPU; no GPU has been seen yet"
    assert waiting(world.state, world.state.jobs["b"], world.now) is None


def test_positions_count_from_one_in_the_order_of_the_policy():
    world = World(card(health="lost"))
    world.submit(job("b"))
    world.now = 1.0
    world.submit(job("a"), job("c", vram=G), job("u", vram=8 * G, priority=Priority.HIGH))
    assert positions(world.state, world.now) == {"u": 1, "c": 2, "b": 3, "a": 4}
