"""What is kept in step with the jobs says the same as what is worked out from all of them."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpusched.core import history
from jupyter_gpusched.core.history import History, Kin
from jupyter_gpusched.core.messages import Amended, Exited, Started, Submitted
from jupyter_gpusched.core.model import Phase, Priority, Request, Terms
from jupyter_gpusched.core.schedule import schedule
from jupyter_gpusched.core.state import State, apply
from tests.core.conftest import SETTINGS, G, card, job, record

QUICK = replace(SETTINGS, release_timeout_s=0.0, stale_after_s=1e9)


def named(job_id, name, *, owner="ann", at=0.0, limit_s=None, **asked):
    return replace(job(job_id, at=at, **asked), owner=owner, name=name, time_limit_s=limit_s)


def rebuilt(state):
    return State.begin(state.settings, state.jobs.values(), state.seen.values(), state.operations, state.past)


def run_all(state, now):
    """Start what fits, and let it end."""
    state = schedule(state, now).state
    for one in [one for one in state.jobs.values() if one.phase is Phase.STARTING]:
        state = apply(state, Started(one.id, 1, now), now).state
        state = apply(state, Exited(one.id, 1, record(at=now + 60.0)), now + 60.0).state
    return state


@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_a_name_that_begins_to_say_something_gets_lines_of_its_own(dice, number):
    state = State.begin(QUICK, gpus=[card()])
    jobs = [
        named(
            f"a{at:07d}",
            dice.choice(["train", "tune", ""]),
            owner=dice.choice(["ann", "bob"]),
            at=float(at),
            vram=dice.choice([4, 12, 20]) * G,
            limit_s=dice.choice([None, 600.0]),
            priority=dice.choice(list(Priority)),
        )
        for at in range(number)
    ]
    state = apply(state, Submitted(tuple(jobs)), float(number)).state
    for turn in range(6):
        state = run_all(state, number + 100.0 * turn)
        assert rebuilt(state) == state


def test_a_job_that_is_renamed_while_its_name_says_nothing_is_found_by_its_new_one():
    state = State.begin(replace(SETTINGS, release_timeout_s=0.0), gpus=[card(total=24 * G)])
    jobs = [named(f"a{at}", "train", at=float(at), vram=24 * G) for at in range(4)]
    state = apply(state, Submitted(tuple(jobs)), 10.0).state
    terms = Terms("other", Request(vram=24 * G), Priority.NORMAL, None, 30.0, 0, ())
    state = apply(state, Amended("a3", "ann", terms), 11.0).state
    assert rebuilt(state) == state
    for turn in range(3):
        state = run_all(state, 100.0 + 100.0 * turn)
    assert rebuilt(state) == state
    assert {key.name for owners in state.queue.lines.values() for own in owners.values() for key in own.lines} == {""}


@given(st.randoms(use_true_random=False))
def test_an_outlook_that_still_holds_is_what_would_be_found_anew(dice):
    history, held = History(), {}
    for _ in range(60):
        kin = Kin(dice.choice(["ann", "bob"]), dice.choice("xy"), dice.choice([1, 2]), dice.choice([None, 300.0]))
        if dice.random() < 0.6:
            history = history.with_run(kin, dice.expovariate(1 / 200.0), compute=None)
        elapsed_s = dice.choice([0.0, dice.uniform(0.0, 600.0)])
        outlook = held.get(kin)
        if outlook is None or not history.still_holds(outlook, history.person(kin.owner), elapsed_s):
            outlook = held[kin] = history.outlook(kin, elapsed_s, 0.6)
        assert outlook.remaining_s(elapsed_s) == history.remaining_s(kin, elapsed_s, 0.6)


def test_many_jobs_of_several_owners_hold_what_their_states_say():
    dice = random.Random(3)
    state = State.begin(SETTINGS, gpus=[card(0), card(1)])
    for turn in range(30):
        one = named(f"a{dice.randrange(10**6):07d}", "n", owner=dice.choice("xyz"), vram=G, cpus=dice.choice([None, 1]))
        state = schedule(apply(state, Submitted((one,)), float(turn)).state, float(turn)).state
        starting = [other for other in state.jobs.values() if other.phase is Phase.STARTING]
        if starting and turn % 3 == 0:
            ended = dice.choice(starting)
            state = apply(state, Exited(ended.id, 1, record(at=float(turn))), float(turn)).state
        assert rebuilt(state).held == state.held
        active = [other for other in state.jobs.values() if other.phase.active]
        assert state.held.cpus == sum(other.request.cpus or 0 for other in active)
        assert sorted(job_id for job_id, *_ in state.held.loads) == sorted(other.id for other in active)


@given(st.randoms(use_true_random=False), st.integers(6, 40))
def test_a_name_that_is_forgotten_since_there_are_too_many_leaves_its_waiting_jobs_where_they_are_found(dice, number):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "_MOST_NAMES", 2)
        state = State.begin(QUICK, gpus=[card()])
        jobs = [
            named(
                f"a{at:07d}",
                dice.choice(["train", "tune", "test", "try"]),
                at=float(at),
                vram=dice.choice([12, 20]) * G,
            )
            for at in range(number)
        ]
        state = apply(state, Submitted(tuple(jobs)), float(number)).state
        for turn in range(number):
            state = run_all(state, number + 100.0 * turn)
            assert rebuilt(state) == state
        assert not state.queue
