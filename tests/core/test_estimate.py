"""When waiting jobs will probably start: learned run times, the same policy, and null where nothing is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpusched.core.asked import After, Member
from jupyter_gpusched.core.estimate import MOST_JOBS, PLAYS, foretold
from jupyter_gpusched.core.messages import Drained, HoldRequested, Reserved
from jupyter_gpusched.core.model import Priority
from jupyter_gpusched.core.operations import Reservation
from tests.core.conftest import G, World, card, job


def named(job_id, name, **more):
    return replace(job(job_id, **more), name=name)


def ended(world, *job_ids):
    for job_id in job_ids:
        world.end(job_id)
    world.now += 1.0
    world.sample()


@pytest.fixture
def world():
    """One card of 24G on which ten runs of ``train`` have lasted 900 to 1,100 s."""
    world = World(card())
    for number in range(10):
        world.submit(named(f"past{number:04}", "train", vram=20 * G))
        world.now += 900.0 + 20 * number
        ended(world, f"past{number:04}")
    return world


def start_of(world, job_id, recent=()):
    return foretold(world.state, world.now, recent).get(job_id)


def test_who_waits_for_one_run_starts_when_such_runs_usually_end(world):
    world.submit(named("runs0001", "train", vram=20 * G), named("wait0001", "train", vram=20 * G))
    begun = world.now
    start = start_of(world, "wait0001")
    assert begun + 900 < start.at < begun + 1100
    assert start.earliest < start.at < start.latest


def test_the_range_is_narrow_for_runs_that_are_alike_and_wide_for_others(world):
    world.submit(named("runs0001", "train", vram=20 * G), named("wait0001", "train", vram=20 * G))
    alike = start_of(world, "wait0001")
    for seconds in (10.0, 20_000.0, 50.0, 9_000.0):
        world.now += seconds
        ended(world, *world.running())
        world.submit(named(f"more{seconds:04.0f}", "train", vram=20 * G))
    world.submit(named("last0001", "train", vram=20 * G))
    varied = start_of(world, "last0001")
    assert varied.latest - varied.earliest > 2 * (alike.latest - alike.earliest)


def test_a_run_that_has_lasted_is_expected_to_end_sooner(world):
    world.submit(named("runs0001", "train", vram=20 * G), named("wait0001", "train", vram=20 * G))
    begun = world.now
    world.now += 800.0
    assert start_of(world, "wait0001").at - world.now < 400.0
    assert start_of(world, "wait0001").at > begun + 850.0


def test_what_rests_on_a_run_of_which_nothing_is_known_is_not_foretold():
    world = World(card())
    world.submit(named("runs0001", "new", vram=20 * G), named("wait0001", "new", vram=20 * G))
    assert start_of(world, "wait0001") is None


def test_a_time_limit_says_enough():
    world = World(card())
    limited = [replace(named(name, "new", vram=20 * G), time_limit_s=600.0) for name in ("runs0001", "wait0001")]
    world.submit(*limited)
    assert 0.0 < start_of(world, "wait0001").at <= 600.0


def test_of_a_run_longer_than_all_known_ones_the_range_is_wide(world):
    world.submit(named("runs0001", "train", vram=20 * G), named("wait0001", "train", vram=20 * G))
    world.now += 10_000.0
    world.sample()
    start = start_of(world, "wait0001")
    assert start.earliest - world.now < 2_000.0
    assert start.at - world.now == pytest.approx(10_000.0, rel=0.01)
    assert start.latest - world.now > 50_000.0


def test_of_a_run_of_which_only_the_limit_is_known_any_end_up_to_it_is_reckoned_with():
    world = World(card())
    limited = [replace(named(name, "new", vram=20 * G), time_limit_s=600.0) for name in ("runs0001", "wait0001")]
    world.submit(*limited)
    start = start_of(world, "wait0001")
    assert start.earliest < 60.0
    assert start.at == 300.0
    assert start.latest > 540.0


def test_jobs_that_will_come_are_reckoned_with_if_they_pass(world):
    """Short ones have come every few minutes of late: they will go on to pass the one that waits."""
    for number in range(4):
        world.submit(named(f"tiny{number:04}", "tiny", vram=20 * G))
        world.now += 60.0
        ended(world, f"tiny{number:04}")
    recent = [replace(named(f"seen{n:04}", "tiny", vram=20 * G), submitted_at=world.now - 240.0 * n) for n in range(15)]
    world.submit(named("runs0001", "train", vram=20 * G), named("wait0001", "train", vram=20 * G))
    assert start_of(world, "wait0001", recent).at > start_of(world, "wait0001").at + 300.0


def test_nothing_is_foretold_while_the_machine_is_drained(world):
    world.submit(named("runs0001", "train", vram=20 * G), named("wait0001", "train", vram=20 * G))
    world.tell(Drained("ann", "maintenance"))
    assert foretold(world.state, world.now) == {}


def test_what_stands_too_far_behind_is_not_foretold(world):
    jobs = [named(f"wait{n:04}", "train", vram=20 * G) for n in range(20)]
    world.submit(*jobs)
    told = foretold(world.state, world.now, most=5)
    assert 0 < len(told) <= 5 < MOST_JOBS


def test_looking_ahead_changes_nothing_and_says_the_same_again(world):
    world.submit(*(named(f"wait{n:04}", "train", vram=20 * G) for n in range(6)))
    before = world.state
    first = foretold(before, world.now)
    assert foretold(before, world.now) == first
    assert world.state is before
    assert before.held.sums.keys() == before.held.sums.keys()
    assert len(first) == 5


def test_those_who_come_later_in_the_queue_start_later(world):
    world.submit(*(named(f"wait{n:04}", "train", vram=20 * G) for n in range(6)))
    told = foretold(world.state, world.now)
    moments = [told[f"wait{n:04}"].at for n in range(1, 6)]
    assert moments == sorted(moments)
    assert len(set(moments)) == 5


def test_every_play_gives_a_job_another_of_its_run_times(world):
    from jupyter_gpusched.core.estimate import _Play

    waits = named("wait0001", "train", vram=20 * G)
    shares = {_Play(world.state, world.now, number, ())._share(waits) for number in range(PLAYS)}
    assert len(shares) == PLAYS


def test_an_actual_start_falls_into_the_range(world):
    world.submit(named("runs0001", "train", vram=20 * G), named("wait0001", "train", vram=20 * G))
    start = start_of(world, "wait0001")
    world.now += 1000.0
    ended(world, "runs0001")
    assert start.earliest <= world.started_at["wait0001"] <= start.latest


def test_who_waits_for_the_end_of_a_reservation_starts_then(world):
    window = Reservation("r0000001", "bob", 1, (), world.now, world.now + 5000.0, "root", "UTC")
    world.tell(Reserved(window))
    world.submit(named("wait0001", "train", vram=20 * G))
    assert start_of(world, "wait0001").at == window.end
    assert start_of(world, "wait0001").earliest == window.end


def test_no_start_is_foretold_within_a_window_in_which_the_job_may_not_start():
    """The holder's run on the card may end within the window or after it: the range begins with the window's end."""
    world = World(card())
    for number in range(10):
        world.submit(named(f"past{number:04}", "train", vram=20 * G))
        world.now += 900.0 + 20 * number
        ended(world, f"past{number:04}")
    window = Reservation("r0000001", "bob", 1, (), world.now, world.now + 5000.0, "root", "UTC")
    world.tell(Reserved(window))
    world.submit(replace(named("holds001", "hold", vram=20 * G), owner="bob", time_limit_s=9000.0))
    assert world.running() == {"holds001"}
    world.submit(named("wait0001", "train", vram=20 * G))
    start = start_of(world, "wait0001")
    assert window.end <= start.earliest <= start.at <= start.latest


# --- who is set aside ------------------------------------------------------------------------


def elements(count, throttle):
    members = (Member("array001", number, throttle) for number in range(count))
    urgent = {"vram": 20 * G, "priority": Priority.HIGH}
    return [replace(named(f"elem{at:04}", "train", **urgent), member=member) for at, member in enumerate(members)]


def test_elements_that_wait_for_their_turn_are_counted_as_they_come_to_it(world):
    world.submit(*elements(4, 1))
    world.now += 1.0
    world.submit(named("wait0001", "train", vram=20 * G))
    begun = world.now
    start = start_of(world, "wait0001")
    assert begun + 3600 < start.at < begun + 4400
    assert foretold(world.state, world.now).keys() == {"wait0001"}


def test_a_job_that_waits_for_another_is_counted_from_that_ones_end_on(world):
    world.submit(named("first001", "train", vram=20 * G))
    world.submit(replace(named("second01", "train", vram=20 * G), after=After(("first001",)), priority=Priority.HIGH))
    world.submit(replace(named("third001", "train", vram=20 * G), after=After(("second01",)), priority=Priority.HIGH))
    world.submit(named("wait0001", "train", vram=20 * G))
    begun = world.now
    assert begun + 2700 < start_of(world, "wait0001").at < begun + 3300


def test_who_is_held_and_who_waits_for_a_held_one_keep_nobody_waiting(world):
    world.submit(named("runs0001", "train", vram=20 * G))
    world.submit(replace(named("held0001", "train", vram=20 * G), priority=Priority.HIGH))
    world.tell(HoldRequested("held0001", "ann"))
    world.submit(replace(named("after001", "train", vram=20 * G), after=After(("held0001",))))
    world.submit(named("wait0001", "train", vram=20 * G))
    begun = world.now
    assert begun + 900 < start_of(world, "wait0001").at < begun + 1100


def test_of_a_long_array_no_more_elements_are_counted_than_are_looked_at(world):
    world.submit(*elements(1000, 1))
    world.submit(named("wait0001", "train", vram=20 * G))
    told = foretold(world.state, world.now, most=8)
    assert world.now + 9 * 900 < told["wait0001"].at < world.now + 9 * 1100
