"""What holds for every plan on a machine with reservations, whatever the queue and the cards."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpusched.core.facts import Facts
from jupyter_gpusched.core.kept import kept_room
from jupyter_gpusched.core.messages import Placed, Submitted
from jupyter_gpusched.core.model import Phase
from jupyter_gpusched.core.operations import Reservation
from jupyter_gpusched.core.policy import plan
from jupyter_gpusched.core.reservations import Gates, evictions, seen_past
from jupyter_gpusched.core.room import find
from jupyter_gpusched.core.schedule import schedule
from jupyter_gpusched.core.state import apply
from tests.core.conftest import job
from tests.core.test_plan_properties import NOW, requests, states


@st.composite
def windows(draw):
    count = draw(st.integers(1, 3))
    found = {}
    for number in range(count):
        start = NOW + draw(st.sampled_from([-100.0, 0.0, 50.0, 500.0, 5000.0]))
        one = Reservation(
            id=f"w{number}",
            user=draw(st.sampled_from(["ann", "bob", None])),
            cards=draw(st.integers(1, 2)),
            gpus=draw(st.sampled_from([(), (), ("GPU-0",)])),
            start=start,
            end=start + draw(st.sampled_from([60.0, 1000.0])),
            by="root",
            zone="UTC",
        )
        found[one.id] = replace(one, cards=len(one.gpus)) if one.gpus else one
    return found


@st.composite
def reserved(draw):
    """A state with reservations, and some jobs of others with and without limits, some of which agreed to be ended."""
    state = draw(states())
    more = []
    for number, asked in enumerate(draw(st.lists(requests, max_size=4))):
        one = replace(job(f"x{number:07d}", at=NOW, **asked), owner=draw(st.sampled_from(["ann", "bob"])))
        limit, yields = draw(st.sampled_from([None, 30.0, 600.0])), draw(st.sampled_from([None, True, False]))
        more.append(replace(one, time_limit_s=limit, preemptible=yields))
    state = apply(state, Submitted(tuple(more)), NOW).state
    return replace(state, operations=replace(state.operations, reservations=draw(windows())))


@given(reserved())
def test_nobody_is_placed_on_a_card_that_is_shut_to_it(state):
    gates = Gates(state, NOW)
    for decision in plan(state, NOW):
        if isinstance(decision, Placed):
            shut = gates.shut(state.jobs[decision.job_id])
            assert shut.isdisjoint(grant.gpu for grant in decision.grants)


@given(reserved())
def test_who_is_ended_for_a_reservation_agreed_to_it_and_is_not_its_holders(state):
    users = {one.user for one in state.operations.reservations.values() if one.start <= NOW}
    for evicted in evictions(state, NOW):
        other = state.jobs[evicted.job_id]
        assert other.may_be_evicted
        assert users - {other.owner}


@given(reserved())
def test_a_second_pass_finds_nothing_left_to_do(state):
    after = schedule(state, NOW).state
    assert plan(after, NOW) == ()
    assert list(evictions(after, NOW)) == []


@given(reserved())
def test_no_job_that_fits_on_an_open_card_is_left_behind(state):
    after = schedule(state, NOW).state
    gates = Gates(after, NOW)
    for one in after.jobs.values():
        if one.phase is Phase.QUEUED and not (one.not_before and one.not_before > NOW):
            room = seen_past(kept_room(after, NOW, apart_from=one.id), gates.shut(one))
            assert find(room, one.request, ends_at=NOW + Facts(after, NOW).expected_s(one)) is None
