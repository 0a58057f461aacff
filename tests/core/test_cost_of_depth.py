"""What a deep queue costs the core, counted in calls and bytes, which no other work on the machine changes."""

import gc
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_gpusched.core.asked import Member

BENCH = Path(__file__).resolve().parents[1] / "bench"
sys.path.insert(0, str(BENCH))

import core_speed  # noqa: E402

SHORT, LONG = 1_000, 20_000
EVENTS = 60


def calls(world, events):
    """Calls of functions, ours and built in, for so many ends, submissions and passes."""
    return calls_of(lambda: [world.event() for _ in range(events)]) / events


def calls_of(work):
    count = 0

    def counting(frame, event, argument):
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(counting)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.fixture(scope="module")
def worlds():
    made = {length: core_speed.World(length) for length in (SHORT, LONG)}
    for world in made.values():
        for _ in range(100):
            world.event()
    return made


def test_an_event_costs_at_most_four_times_the_calls_in_a_queue_twenty_times_as_long(worlds):
    short, long = (calls(world, EVENTS) for world in worlds.values())
    assert long <= 4 * short
    assert long < 8000


def test_an_event_looks_at_few_of_the_orders_of_a_long_queue(worlds, monkeypatch):
    looked = {}
    policy = type(core_speed.SETTINGS.policy)
    orders = policy.orders
    for length, world in worlds.items():
        seen = []

        def counted(self, jobs, seen=seen):
            seen.append(len(jobs.since))
            return orders(self, jobs)

        monkeypatch.setattr(policy, "orders", counted)
        for _ in range(EVENTS):
            world.event()
        looked[length] = sum(seen) / EVENTS
    assert looked[SHORT] > 0
    assert looked[LONG] < 0.05 * LONG


def test_the_jobs_of_an_array_join_the_queue_together(worlds):
    one, elements = worlds[SHORT].job(), 2000
    array = tuple(replace(one, id=f"array{number:04d}", member=Member("array", number)) for number in range(elements))
    assert calls_of(lambda: worlds[SHORT].happen(core_speed.Submitted(array))) < 100 * elements


def test_a_queued_job_takes_less_than_a_kilobyte():
    tracemalloc.start()
    try:
        world = core_speed.World(1_000)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        joining = 20_000
        for _ in range(joining // 100):
            world.happen(core_speed.Submitted(tuple(world.job() for _ in range(100))))
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / joining < 1000


def test_what_a_pass_worked_out_goes_with_it_and_is_not_left_to_the_garbage_collector(worlds):
    gc.collect()
    gc.disable()
    try:
        for _ in range(EVENTS):
            worlds[SHORT].event()
        assert gc.collect() == 0
    finally:
        gc.enable()
