"""Why a job got its cards and for what it was ended: noted when it is decided, told in sentences with numbers."""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpusched.core.choice import told
from jupyter_gpusched.core.explain import explanation
from jupyter_gpusched.core.model import Priority
from tests.core.conftest import G, World, card, job


def placement(world, job_id):
    attempt = world.state.jobs[job_id].attempts[-1]
    return told(attempt.choice, attempt.gpus)


def test_the_fullest_card_is_taken_and_the_sentence_says_what_is_kept_by_that():
    world = World(card(0), card(1))
    world.submit(job("first001", vram=10 * G))
    world.submit(job("second02", vram=10 * G))
    assert placement(world, "second02") == (
        "placed on GPU 0 with 14.0G free: it fitted on 2 of 2 GPUs; "
        "the fullest is taken, so that GPU 1 keeps its 24.0G for larger jobs"
    )


def test_cards_that_are_alike_are_taken_in_turn():
    world = World(card(0), card(1))
    world.submit(job("first001", vram=10 * G))
    assert "the first of those that are alike is taken" in placement(world, "first001")


def test_where_only_one_card_had_room_that_is_the_reason():
    world = World(card(0), card(1))
    world.submit(job("first001", vram=20 * G), job("second02", vram=20 * G))
    assert placement(world, "second02").endswith("no other of 2 GPUs had room for it then")


def test_a_wish_is_named():
    world = World(card(0), card(1))
    world.submit(job("first001", vram=10 * G, preferred_gpus=("1",)))
    assert placement(world, "first001").endswith("it fitted on 2 of 2 GPUs, and it had asked for this one")


def test_a_wide_job_names_all_its_cards():
    world = World(card(0), card(1), card(2))
    world.submit(job("first001", vram=10 * G, gpus=2))
    assert placement(world, "first001").startswith(
        "placed on GPUs 0, 1 with 24.0G, 24.0G free: it fitted on 3 of 3 GPUs"
    )


def test_a_job_without_gpus_had_no_choice():
    world = World(card(0))
    world.submit(job("first001", gpus=0, cpus=1))
    assert world.state.jobs["first001"].attempts[-1].choice is None


def evicted(owner):
    world = World(card(0))
    world.submit(job("low00001", vram=20 * G, priority=Priority.LOW))
    world.now += 600.0
    world.sample()
    world.submit(replace(job("high0001", vram=20 * G, priority=Priority.HIGH), owner=owner, time_limit_s=7200.0))
    world.end("low00001")
    return world.state.jobs["low00001"].attempts[-1].message


def test_who_is_ended_for_another_reads_whose_need_it_was_and_what_is_lost():
    assert evicted("bob") == (
        "ended to make room for a more urgent job of bob, which needs 20.0G on 1 GPU; "
        "the 10m00s that it had run are lost but for its checkpoints; it is queued again"
    )


def test_an_owner_reads_which_of_the_own_jobs_it_was():
    assert "for the more urgent job high0001, which needs" in evicted("ann")


def test_a_waiting_job_reads_its_place_and_who_is_before_it():
    world = World(card(0))
    world.submit(
        job("runs0001", vram=20 * G),
        job("high0001", vram=20 * G, priority=Priority.HIGH),
        job("wait0001", vram=20 * G),
    )
    lines = explanation(world.state, world.state.jobs["wait0001"], world.now)
    assert world.running() == {"high0001"}
    assert lines[0] == "number 2 of 2 in the queue; before it 1 of the same owner"
