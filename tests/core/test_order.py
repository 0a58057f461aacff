"""An owner's own order among waiting jobs: the places held together are dealt out anew."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpusched.core.messages import Amended, Placed, Reordered, Submitted
from jupyter_gpusched.core.model import IllegalTransition, Priority, Request, Terms
from jupyter_gpusched.core.state import NotLive, State, apply, queued
from tests.core.conftest import SETTINGS, G, grant, job


def waiting(*jobs):
    return apply(State.begin(SETTINGS), Submitted(jobs), 1.0).state


def moved(state, job_id, anchor, *, before):
    return apply(state, Reordered(job_id, "ann", anchor, before), 10.0)


def order(state):
    return [place.job_id for place in queued(state)]


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
    state = waiting(job("high", at=5.0, priority=Priority.HIGH), job("plain", at=1.0), job("later", at=2.0))
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


@given(st.data())
def test_whatever_is_moved_the_places_held_together_and_the_order_of_others_stay(data):
    priorities = st.sampled_from(Priority)
    count = data.draw(st.integers(2, 8))
    jobs = [
        replace(
            job(f"j{n}", at=1.7e9 + data.draw(st.floats(0, 1e5)), priority=data.draw(priorities)),
            owner=data.draw(st.sampled_from(["ann", "bob"])),
        )
        for n in range(count)
    ]
    state = waiting(*jobs)
    first, second = data.draw(st.lists(st.sampled_from([each.id for each in jobs]), min_size=2, max_size=2))
    before = data.draw(st.booleans())
    owner = state.jobs[first].owner
    try:
        after = moved(state, first, second, before=before).state
    except IllegalTransition:
        assert first == second or state.jobs[second].owner != owner
        return
    keys = [place.key for place in queued(state) if state.jobs[place.job_id].owner == owner]
    new = [(place.key, place.job_id) for place in queued(after) if state.jobs[place.job_id].owner == owner]
    if len(set(keys)) == len(keys):
        assert [key for key, _ in new] == pytest.approx(keys, abs=1e-6)
    names = [name for _, name in new]
    assert names.index(first) - names.index(second) == (-1 if before else 1)
    others = [place.job_id for place in queued(state) if state.jobs[place.job_id].owner != owner]
    assert [place.job_id for place in queued(after) if state.jobs[place.job_id].owner != owner] == others
