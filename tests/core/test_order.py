"""An owner's own order among waiting jobs: the places held together are dealt out anew."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpusched.core.facts import order_of
from jupyter_gpusched.core.messages import Amended, Placed, Reordered, Sampled, Submitted
from jupyter_gpusched.core.model import IllegalTransition, Priority, Request, Terms
from jupyter_gpusched.core.order import renumbered
from jupyter_gpusched.core.policies import NAMED
from jupyter_gpusched.core.policy import plan
from jupyter_gpusched.core.state import NotLive, State, apply
from tests.core.conftest import SETTINGS, G, card, grant, job


def waiting(*jobs, settings=SETTINGS):
    return apply(State.begin(settings), Submitted(jobs), 1.0).state


def moved(state, job_id, anchor, *, before):
    return apply(state, Reordered(job_id, "ann", anchor, before), 10.0)


def order(state, now=10.0):
    return order_of(state, now)


def test_a_job_is_put_right_before_or_right_after_another():
    state = waiting(*(job(name, at=float(at)) for at, name in enumerate("abcd")))
    assert order(moved(state, "d", "b", before=True).state) == ["a", "d", "b", "c"]
    assert order(moved(state, "a", "c", before=False).state) == ["b", "c", "a", "d"]


def test_jobs_of_others_stand_where_they_stood():
    of_bob = [replace(job(name, at=at), owner="bob") for name, at in (("x", 0.5), ("y", 1.5))]
    state = waiting(job("a", at=0.0), of_bob[0], job("b", at=1.0), of_bob[1], job("c", at=2.0))
    step = moved(state, "c", "a", before=True)
    assert order(step.state) == ["c", "x", "a", "y", "b"]
    assert {change.job.owner for change in step.changes} == {"ann"}


def test_each_job_that_moves_is_written_down_with_who_wanted_it():
    state = waiting(*(job(name, at=float(at)) for at, name in enumerate("abc")))
    step = moved(state, "b", "a", before=True)
    assert [(change.job.id, change.kind, change.detail) for change in step.changes] == [
        ("b", "reordered", {"by": "ann", "moved": "b"}),
        ("a", "reordered", {"by": "ann", "moved": "b"}),
    ]
    assert State.begin(SETTINGS, step.state.jobs.values()) == step.state


def test_a_job_that_stands_there_already_leads_to_no_change():
    state = waiting(job("a", at=0.0), job("b", at=1.0))
    assert moved(state, "a", "b", before=True).changes == ()


def test_priorities_do_not_hinder_an_owners_order_and_go_on_counting_afterwards():
    by_age = replace(SETTINGS, policy=NAMED["backfill"])
    jobs = job("high", at=5.0, priority=Priority.HIGH), job("plain", at=1.0), job("later", at=2.0)
    state = waiting(*jobs, settings=by_age)
    state = moved(state, "high", "plain", before=False).state
    assert order(state) == ["plain", "high", "later"]
    urgent = Terms("later", Request(vram=4 * G), Priority.HIGH, None, 30.0, 0, ())
    assert order(apply(state, Amended("later", "ann", urgent), 11.0).state) == ["later", "plain", "high"]


def test_jobs_submitted_at_the_same_moment_can_be_reordered():
    state = waiting(job("a"), job("b"), job("c"))
    assert order(moved(state, "c", "a", before=True).state) == ["c", "a", "b"]


def test_only_two_waiting_jobs_of_one_owner_can_be_reordered():
    running = job("r")
    state = waiting(running, job("a"), replace(job("x"), owner="bob"))
    state = apply(state, Placed("r", (grant(running),)), 2.0).state
    for anchor in ("r", "x", "a"):
        with pytest.raises(IllegalTransition):
            moved(state, "a", anchor, before=True)
    with pytest.raises(NotLive):
        moved(state, "a", "gone", before=True)


def test_a_large_job_that_its_owner_puts_first_takes_the_place_of_the_small_one():
    small, large, other = job("small", vram=G), job("large", vram=20 * G), replace(job("x", vram=10 * G), owner="bob")
    state = waiting(small, large, other)
    assert order(state) == ["small", "x", "large"]
    state = moved(state, "large", "small", before=True).state
    assert order(state) == ["large", "x", "small"]


def test_an_owners_order_holds_although_the_policys_changes_with_time():
    young, old = job("young", at=5e5, vram=G), replace(job("old", at=0.0, vram=20 * G), backlog_s=1e6)
    state = State.begin(SETTINGS, [young, old])
    assert (order(state, 5e5), order(state, 5e7)) == (["young", "old"], ["young", "old"])
    state = apply(state, Reordered("old", "ann", "young", before=True), 5e5).state
    assert [order(state, now) for now in (5e5, 1e6, 5e7)] == [["old", "young"]] * 3


def test_a_pass_starts_jobs_in_the_order_of_their_owner():
    state = waiting(job("a", vram=G), job("b", vram=14 * G, at=0.5), job("c", vram=12 * G, at=0.7))
    state = apply(state, Reordered("c", "ann", "b", before=True), 10.0).state
    state = apply(state, Sampled((card(at=10.0),)), 10.0).state
    assert [decision.job_id for decision in plan(state, 10.0) if isinstance(decision, Placed)] == ["a", "c"]
    back = apply(state, Reordered("b", "ann", "a", before=True), 11.0).state
    assert [decision.job_id for decision in plan(back, 11.0) if isinstance(decision, Placed)] == ["b", "a"]


def test_an_urgent_place_that_is_given_away_comes_before_all_others():
    bobs = replace(job("x", vram=G), owner="bob")
    state = waiting(bobs, job("plain", vram=20 * G), job("high", vram=20 * G, priority=Priority.HIGH))
    assert order(state) == ["high", "x", "plain"]
    state = moved(state, "plain", "high", before=True).state
    assert order(state) == ["plain", "x", "high"]
    state = apply(state, Sampled((card(at=10.0),)), 10.0).state
    assert [decision.job_id for decision in plan(state, 10.0) if isinstance(decision, Placed)] == ["plain", "x"]


def test_moving_one_job_among_ordered_ones_changes_the_number_of_that_one_alone():
    own = ["a", "b", "c", "d"]
    numbers = renumbered(own, {}, "d", "a", before=True)
    assert numbers == {"d": 0.0, "a": 1.0, "b": 2.0, "c": 3.0}
    assert renumbered(["d", "a", "b", "c"], numbers, "c", "a", before=True) == {"c": 0.5}
    tight = {"a": 0.0, "b": 5e-324, "c": 1.0}
    assert renumbered(["a", "b", "c"], tight, "c", "b", before=True) == {"b": 2.0}


@given(st.data())
def test_whatever_is_moved_the_places_held_together_and_the_order_of_others_stay(data):
    priorities = st.sampled_from(Priority)
    count = data.draw(st.integers(2, 8))
    settings = replace(SETTINGS, policy=NAMED[data.draw(st.sampled_from(sorted(NAMED)))])
    jobs = [
        replace(
            job(
                f"j{n}",
                at=1.7e9 + data.draw(st.floats(0, 1e5)),
                priority=data.draw(priorities),
                vram=data.draw(st.sampled_from([G, 4 * G, 20 * G])),
                gpus=data.draw(st.integers(1, 3)),
            ),
            owner=data.draw(st.sampled_from(["ann", "bob"])),
        )
        for n in range(count)
    ]
    state, now = waiting(*jobs, settings=settings), 1.7e9 + 1e5
    for _ in range(data.draw(st.integers(1, 4))):
        now += data.draw(st.sampled_from([0.0, 1e4]))
        first, second = (data.draw(st.sampled_from([each.id for each in jobs])) for _ in "12")
        before = data.draw(st.booleans())
        owner = state.jobs[first].owner
        try:
            after = apply(state, Reordered(first, "ann", second, before), now).state
        except IllegalTransition:
            assert first == second or state.jobs[second].owner != owner
            continue
        old, new = order(state, now), order(after, now)
        names = [job_id for job_id in new if state.jobs[job_id].owner == owner]
        assert names.index(first) - names.index(second) == (-1 if before else 1)
        rest = [job_id for job_id in old if state.jobs[job_id].owner == owner and job_id != first]
        assert [job_id for job_id in names if job_id != first] == rest
        for was, is_now in zip(old, new, strict=True):
            assert was == is_now or {state.jobs[was].owner, state.jobs[is_now].owner} == {owner}
        assert State.begin(settings, after.jobs.values()) == after
        state = after
