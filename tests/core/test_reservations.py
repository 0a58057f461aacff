"""Reserved cards at the borders of their windows: who may start there, who is ended, and that it ends by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpusched.core.booking import Clash, InForce, assigned
from jupyter_gpusched.core.explain import waiting, waiting_all
from jupyter_gpusched.core.messages import Reserved, Sampled, Unreserved
from jupyter_gpusched.core.model import Outcome, Phase, Priority
from jupyter_gpusched.core.operations import Reservation
from jupyter_gpusched.core.schedule import next_wakeup
from tests.core.conftest import G, World, card, job

START, END = 3600.0, 7200.0


def window(reservation_id="r0000001", *, user="ann", cards=1, gpus=(), start=START, end=END, cause="demo"):
    return Reservation(reservation_id, user, cards, gpus, start, end, "root", "Europe/Berlin", cause)


def owned(job_id, owner="bob", *, limit=None, **more):
    return replace(job(job_id, **more), owner=owner, time_limit_s=limit)


@pytest.fixture
def world():
    """One card, reserved for ann from 3,600 to 7,200 s."""
    world = World(card())
    world.tell(Reserved(window()))
    return world


def at(world, now):
    world.now = now
    world.sample()


# --- before the window ---------------------------------------------------------------------


def test_who_ends_by_its_limit_when_the_window_begins_starts_before_it(world):
    world.submit(owned("short001", limit=START))
    assert world.running() == {"short001"}


def test_who_would_reach_into_it_by_a_second_does_not(world):
    world.submit(owned("long0001", limit=START + 1.0))
    assert world.running() == set()


def test_a_job_without_a_limit_of_which_nothing_is_known_waits(world):
    world.submit(owned("whoknows"))
    assert world.running() == set()


def test_a_job_without_a_limit_starts_if_three_long_runs_of_its_kind_end_before():
    world = World(card())
    for number in range(4):
        world.submit(replace(owned(f"past{number:04}"), name="train"))
        world.now += 100.0
        world.end(f"past{number:04}")
        world.now += 1.0
        world.sample()
    world.tell(Reserved(window(start=world.now + 301.0, end=world.now + 900.0)))
    world.submit(replace(owned("fits0001"), name="train"))
    assert "fits0001" in world.running()
    world.end("fits0001")
    at(world, world.now + 2.0)
    world.submit(replace(owned("late0001"), name="train"))
    assert world.running() == set()


def test_a_job_on_two_cards_that_are_reserved_for_two_people_from_the_same_moment_on_is_ended_once():
    world = World(card(0), card(1))
    for number, user in enumerate(("ann", "eve")):
        world.tell(Reserved(window(f"r000000{number}", user=user)))
    world.submit(owned("low00001", gpus=2, vram=G, priority=Priority.LOW))
    assert world.running() == {"low00001"}
    at(world, START)
    assert [change.kind for change in world.history].count("evicted") == 1


def test_a_job_that_agreed_to_be_ended_starts_and_is_ended_when_the_window_begins(world):
    world.submit(owned("low00001", priority=Priority.LOW))
    assert world.running() == {"low00001"}
    at(world, START - 1.0)
    assert world.running() == {"low00001"}
    assert next_wakeup(world.state, world.now) == START
    at(world, START)
    assert world.phase("low00001") is Phase.STOPPING
    world.end("low00001")
    again = world.state.jobs["low00001"]
    assert (again.phase, again.attempts[-1].outcome) == (Phase.QUEUED, Outcome.PREEMPTED)
    assert again.attempts[-1].message.startswith("ended to make room for ann's reservation (demo) that ends in 1h00m; ")
    world.sleep(2.0)
    assert world.phase("low00001") is Phase.QUEUED


def test_the_holder_may_run_into_the_own_window(world):
    world.submit(owned("mine0001", "ann"))
    assert world.running() == {"mine0001"}
    at(world, START + 1.0)
    assert world.running() == {"mine0001"}


def test_other_cards_are_open_as_ever():
    world = World(card(0), card(1))
    world.tell(Reserved(window(gpus=("GPU-1",))))
    world.submit(owned("long0001", vram=20 * G), owned("long0002", vram=20 * G))
    assert world.on_card(0) == {"long0001"}
    assert world.on_card(1) == set()


# --- within the window ---------------------------------------------------------------------


def test_within_the_window_only_the_holder_starts(world):
    at(world, START)
    world.submit(owned("short001", limit=10.0), owned("low00001", priority=Priority.LOW), owned("mine0001", "ann"))
    assert world.running() == {"mine0001"}


def test_a_job_of_another_that_reaches_in_goes_on():
    world = World(card())
    world.submit(owned("first001"))
    world.tell(Reserved(window()))
    at(world, START + 10.0)
    assert world.running() == {"first001"}


def test_nobodys_window_keeps_the_card_from_everybody():
    world = World(card())
    world.tell(Reserved(window(user=None)))
    at(world, START)
    world.submit(owned("mine0001", "ann", limit=10.0))
    assert world.running() == set()


def test_no_urgent_job_has_others_ended_for_it_on_a_card_that_is_not_open_to_it(world):
    at(world, START)
    world.submit(owned("mine0001", "ann", vram=20 * G, priority=Priority.LOW))
    world.submit(owned("high0001", vram=20 * G, priority=Priority.HIGH))
    assert world.running() == {"mine0001"}
    assert world.state.jobs["high0001"].claim is None


# --- its end --------------------------------------------------------------------------------


def test_it_ends_by_itself_and_whoever_waited_starts(world):
    at(world, START)
    world.submit(owned("long0001"))
    at(world, END - 1.0)
    assert world.running() == set()
    assert next_wakeup(world.state, world.now) == END
    at(world, END)
    assert world.running() == {"long0001"}
    assert world.state.operations.reservations == {}
    assert [(change.kind, change.detail["by"]) for change in world.of_machine] == [
        ("reserved", "root"),
        ("reservation_settled", "gpusched"),
        ("unreserved", "gpusched"),
    ]


def test_what_is_given_back_is_open_at_once(world):
    world.submit(owned("long0001"))
    world.tell(Unreserved("r0000001", "root"))
    assert world.running() == {"long0001"}


def test_giving_back_what_is_not_there_changes_nothing(world):
    before = world.state.operations
    world.tell(Unreserved("r0000009", "root"))
    assert world.state.operations == before


# --- which cards ------------------------------------------------------------------------------


def test_a_count_takes_the_highest_healthy_cards_and_moves_off_one_that_fails():
    cards = [card(0), card(1), card(2)]
    one = window(cards=2)
    assert assigned([one], cards)[one.id] == ("GPU-2", "GPU-1")
    ill = [card(0), card(1), card(2, health="lost")]
    assert assigned([one], ill)[one.id] == ("GPU-1", "GPU-0")


def test_nobody_books_what_is_booked():
    world = World(card(0), card(1))
    world.tell(Reserved(window()))
    world.tell(Reserved(window("r0000002", start=END - 1.0, end=END + 10.0)))
    with pytest.raises(Clash, match="r0000001, r0000002"):
        world.tell(Reserved(window("r0000003", start=START, end=END)))
    with pytest.raises(Clash):
        world.tell(Reserved(window("r0000003", cards=3, start=END + 100.0, end=END + 200.0)))
    assert set(world.state.operations.reservations) == {"r0000001", "r0000002"}


def test_windows_that_only_touch_do_not_clash(world):
    world.tell(Reserved(window("r0000002", user="eve", start=END, end=END + 60.0)))
    assert len(world.state.operations.reservations) == 2


def test_a_named_card_goes_before_a_count_that_can_move():
    world = World(card(0), card(1))
    world.tell(Reserved(window("r0000001")))
    world.tell(Reserved(window("r0000002", gpus=("GPU-1",))))
    laid_out = assigned(world.state.operations.reservations.values(), world.cards)
    assert laid_out == {"r0000001": ("GPU-0",), "r0000002": ("GPU-1",)}


def laid_out(world):
    return assigned(world.state.operations.reservations.values(), world.state.gpus.values())


def test_a_window_that_has_begun_stays_on_its_cards_and_who_wants_them_reads_whose_they_are():
    world = World(card(0), card(1))
    world.tell(Reserved(window(start=0.0)))
    assert laid_out(world) == {"r0000001": ("GPU-1",)}
    with pytest.raises(InForce, match=r"GPU 1: ann's reservation \(demo\) that ends in 2h00m \(id: r0000001\)") as no:
        world.tell(Reserved(window("r0000002", user="eve", gpus=("GPU-1",), start=10.0)))
    assert no.value.code == "reservation_clash"
    assert laid_out(world) == {"r0000001": ("GPU-1",)}
    world.tell(Reserved(window("r0000002", user="eve", gpus=("GPU-1",), start=END, end=END + 10.0)))
    world.tell(Reserved(window("r0000003", user="eve", gpus=("GPU-0",), start=10.0)))
    assert laid_out(world)["r0000001"] == ("GPU-1",)


def test_where_a_window_began_it_stays_also_when_a_better_card_comes_free():
    world = World(card(0), card(1))
    world.tell(Reserved(window("r0000001", gpus=("GPU-1",), end=START + 60.0)))
    world.tell(Reserved(window("r0000002", user="eve")))
    at(world, START)
    assert laid_out(world)["r0000002"] == ("GPU-0",)
    world.tell(Unreserved("r0000001", "root"))
    assert laid_out(world) == {"r0000002": ("GPU-0",)}
    at(world, START + 61.0)
    assert laid_out(world) == {"r0000002": ("GPU-0",)}


def test_a_window_that_has_begun_leaves_a_card_that_fails_and_does_not_come_back():
    world = World(card(0), card(1))
    world.tell(Reserved(window(start=0.0)))
    world.tell(Sampled((card(0), card(1, health="lost"))))
    assert laid_out(world) == {"r0000001": ("GPU-0",)}
    world.tell(Sampled((card(0), card(1))))
    assert laid_out(world) == {"r0000001": ("GPU-0",)}


# --- what is said, and whom it must not hold up -----------------------------------------------


def said(world, job_id):
    return waiting(world.state, world.state.jobs[job_id], world.now)


def test_the_sentence_names_cards_holder_cause_and_the_way_out(world):
    world.submit(owned("long0001"))
    assert said(world, "long0001") == (
        "needs 4.0G on 1 GPU; GPU 0 is kept by ann's reservation (demo) that begins in 1h00m and lasts 1h00m; "
        "with a time limit below 1h00m it could start before"
    )
    at(world, START)
    assert said(world, "long0001") == (
        "needs 4.0G on 1 GPU; GPU 0 is kept by ann's reservation (demo) that ends in 1h00m"
    )


def test_a_limit_that_is_too_long_is_named(world):
    world.submit(owned("long0001", limit=7000.0))
    assert said(world, "long0001").endswith("; its time limit of 1h56m reaches beyond the 1h00m until then")


@pytest.fixture
def two():
    """Two cards of 24G, a job of 20G on GPU 0, and GPU 1 reserved for work outside the queue for an hour."""
    world = World(card(0), card(1))
    world.tell(Reserved(window(user=None, gpus=("GPU-1",), start=0.0, end=3600.0, cause=None)))
    world.submit(owned("first001", vram=20 * G))
    assert world.on_card(0) == {"first001"}
    return world


NOBODYS = "GPU 1 is kept by a reservation for work outside the queue that ends in 1h00m"


def test_a_card_that_is_shut_counts_not_as_able_and_its_reservation_is_named(two):
    two.submit(owned("wide0001", gpus=2, vram=20 * G))
    assert said(two, "wide0001") == (
        "needs 20.0G on each of 2 GPUs; 0 of 2 GPUs are able to give 20.0G; "
        f"the next is GPU 0: 4.0G free, 20.0G promised to 1 job; {NOBODYS}"
    )


def test_that_the_open_card_is_full_is_said_beside_the_reservation(two):
    two.submit(owned("small001", vram=10 * G))
    assert said(two, "small001") == (
        f"needs 10.0G on 1 GPU; best is GPU 0: 4.0G free, 20.0G promised to 1 job; {NOBODYS}"
    )


def test_no_shorter_limit_is_advised_where_a_window_that_has_begun_holds_the_job_alone():
    world = World(card(0), card(1))
    world.tell(Reserved(window(user=None, gpus=("GPU-0",), start=0.0, end=14_400.0, cause=None)))
    world.tell(Reserved(window("r0000002", cards=2, start=86_400.0, end=100_800.0)))
    world.submit(owned("wide0001", gpus=2))
    assert said(world, "wide0001") == (
        "needs 4.0G on each of 2 GPUs; 1 of 2 GPUs is able to give 4.0G; "
        "GPU 0 is kept by a reservation for work outside the queue that ends in 4h00m"
    )


def test_a_window_to_come_is_not_said_to_be_in_the_way_of_a_job_for_which_the_cards_are_full():
    world = World(card(0))
    world.submit(owned("first001", vram=20 * G))
    world.tell(Reserved(window()))
    world.submit(owned("second01", vram=20 * G))
    assert said(world, "second01") == ("needs 20.0G on 1 GPU; best is GPU 0: 4.0G free, 20.0G promised to 1 job")


def test_those_who_ask_the_same_with_other_limits_are_told_of_their_own(world):
    world.submit(owned("first001", limit=7000.0), owned("second01", limit=7200.0), owned("third001"))
    told = waiting_all(world.state, world.now)
    assert "its time limit of 1h56m" in told["first001"]
    assert "its time limit of 2h00m" in told["second01"]
    assert told["third001"].endswith("could start before")


def test_whom_a_reservation_shuts_out_keeps_no_cards_from_others():
    """The oldest waits for both cards, of which one is reserved; the card that is left is not kept for it."""
    world = World(card(0), card(1))
    world.tell(Reserved(window(gpus=("GPU-1",), start=10.0, end=1e6)))
    world.submit(owned("wide0001", gpus=2, vram=20 * G))
    at(world, 500_000.0)
    world.submit(owned("small001", vram=20 * G))
    assert world.running() == {"small001"}
    assert world.state.claimants == frozenset()


def test_jobs_of_one_kind_of_which_one_agreed_to_be_ended_are_told_apart(world):
    world.submit(
        owned("stays001"), replace(owned("yields01"), preemptible=True), replace(owned("yields02"), preemptible=True)
    )
    assert world.running() == {"yields01", "yields02"}


def test_what_is_started_before_the_window_of_a_reservation_that_comes_back_from_the_journal_is_the_same(world):
    from jupyter_gpusched.core.state import State

    again = State.begin(world.state.settings, (), world.state.seen.values(), world.state.operations)
    assert again.operations.reservations == {"r0000001": window()}
