"""What a sample of the cards says of how much of its processors a single job keeps busy."""

from dataclasses import replace

import pytest

from jupyter_gpusched.core.compute import watched
from jupyter_gpusched.core.model import Attempt, Foreign, Phase
from tests.core.conftest import card, grant, job


def running(job_id="a", *cards, started_at=10.0, phase=Phase.RUNNING, **more):
    one = job(job_id)
    grants = tuple(grant(one, index) for index in cards or (0,))
    return replace(one, phase=phase, grants=grants, attempts=(Attempt(1, started_at=started_at, gpus=grants),), **more)


def shown(index=0, busy=40.0, at=20.0, **more):
    return {f"GPU-{index}": card(index, utilization_pct=busy, at=at, **more)}


def seen(jobs, cards):
    return {one.id: one.compute for one in watched(jobs, cards)}


def test_a_job_that_is_alone_on_its_card_shows_what_it_uses():
    assert seen([running()], shown(busy=40.0)) == {"a": 0.4}


def test_a_sample_weighs_little_against_what_was_seen_before():
    assert seen([running(compute=0.8)], shown(busy=30.0)) == {"a": pytest.approx(0.8 - 0.1 * 0.5)}


def test_of_several_cards_the_busiest_counts_and_all_must_show_it():
    both = running("a", 0, 1)
    assert seen([both], shown(0, 20.0) | shown(1, 70.0)) == {"a": 0.7}
    assert seen([both], shown(0, 20.0)) == {}
    assert seen([both, running("b", 1)], shown(0, 20.0) | shown(1, 70.0)) == {}


@pytest.mark.parametrize(
    "cards",
    [
        {},
        shown(busy=None),
        shown(health="lost"),
        shown(at=10.0),  # measured when it had not begun, or at that very moment
        shown(foreign=(Foreign(77, None),)),  # somebody else computes there too
    ],
    ids=["no card", "no figure", "lost", "before it began", "foreign use"],
)
def test_where_a_card_does_not_show_it_nothing_is_said(cards):
    assert seen([running()], cards) == {}


@pytest.mark.parametrize("other", [Phase.RUNNING, Phase.STARTING, Phase.STOPPING])
def test_two_on_a_card_hide_each_other_in_whatever_phase_the_other_is(other):
    assert seen([running("a"), running("b", phase=other)], shown()) == {}


def test_a_job_that_does_not_run_or_has_no_card_or_no_start_is_not_watched():
    assert seen([running(phase=Phase.STOPPING)], shown()) == {}
    assert seen([running(started_at=None)], shown()) == {}
    assert seen([replace(running(), grants=())], shown()) == {}
