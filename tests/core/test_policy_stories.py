"""What the default policy promises, as days on a virtual clock."""

from dataclasses import replace

import pytest

from jupyter_gpusched.core.explain import explanation, waiting
from jupyter_gpusched.core.model import Outcome, Phase, Priority
from jupyter_gpusched.core.policies import NAMED, Hybrid
from tests.core.conftest import SETTINGS, G, World, card, job

HASTY = replace(SETTINGS, claim_after_s=600.0, policy=Hybrid(per_expected=0.0, per_backlog=0.0, slip=1.0))
"""Everybody's patience is ten minutes, and a claim that stood as long lets nobody pass, so that stories are short."""


def by(owner, *jobs):
    return [replace(one, owner=owner) for one in jobs]


def cards(number):
    return [card(index) for index in range(number)]


class Lasting:
    """Ends every job of a world when it has run its time, in steps of ``tick``."""

    def __init__(self, world, tick=10.0):
        self.world, self.tick, self.lasts = world, tick, {}

    def submit(self, lasts, *jobs):
        self.lasts.update({one.id: lasts for one in jobs})
        self.world.submit(*jobs)

    def pass_time(self, seconds):
        until = self.world.now + seconds
        while self.world.now < until:
            self.world.sleep(self.tick, tick=self.tick)
            for job_id in sorted(self.world.running()):
                if self.world.now - self.world.started_at[job_id] >= self.lasts[job_id]:
                    self.world.end(job_id)


def test_a_wide_job_in_a_stream_of_small_ones_starts_in_bounded_time():
    day = Lasting(World(*cards(2), settings=HASTY))
    day.submit(60.0, *[job(f"old{n}", vram=8 * G) for n in range(6)])
    day.submit(60.0, job("wide", gpus=2, vram=20 * G))
    for number in range(120):
        day.submit(60.0, job(f"small{number:03d}", vram=4 * G), job(f"other{number:03d}", vram=8 * G))
        day.pass_time(20.0)
        if "wide" in day.world.started_at:
            break
    assert day.world.started_at["wide"] < HASTY.claim_after_s + 10 * 60.0


def test_two_wide_jobs_start_one_after_the_other_and_neither_holds_half():
    day = Lasting(World(*cards(2), settings=HASTY))
    day.submit(300.0, job("a", vram=10 * G), job("b", vram=10 * G))
    day.submit(300.0, job("wide1", gpus=2, vram=20 * G), job("wide2", gpus=2, vram=20 * G))
    for _ in range(60):
        day.pass_time(60.0)
        both = [day.world.state.jobs[job_id] for job_id in ("wide1", "wide2") if job_id in day.world.state.jobs]
        assert all(len(one.grants) in {0, 2} for one in both)
    assert {day.world.phase("wide1"), day.world.phase("wide2")} == {Phase.SUCCEEDED}


def test_an_array_of_a_thousand_does_not_keep_a_single_job_of_another_waiting():
    day = Lasting(World(*cards(2)))
    crowd = by("ann", *[job(f"a{n:04d}", vram=12 * G) for n in range(1000)])
    day.submit(100.0, *[replace(one, name="sweep") for one in crowd])
    day.pass_time(300.0)
    day.submit(100.0, *by("bob", job("single", vram=12 * G)))
    day.pass_time(250.0)
    assert "single" in day.world.started_at
    assert day.world.started_at["single"] - 300.0 <= 110.0


def test_over_an_hour_two_users_with_equal_jobs_get_about_equal_parts():
    day = Lasting(World(*cards(2)))
    day.submit(60.0, *by("ann", *[job(f"a{n:04d}", vram=12 * G) for n in range(400)]))
    day.submit(60.0, *by("bob", *[job(f"b{n:04d}", vram=12 * G) for n in range(400)]))
    day.pass_time(3600.0)
    ended = [one.owner for one in day.world.final.values()]
    assert len(ended) > 150
    assert 0.4 < ended.count("ann") / len(ended) < 0.6


def test_an_urgent_job_evicts_a_preemptible_one_which_comes_back_and_says_why():
    world = World(card())
    world.submit(job("low", vram=20 * G, priority=Priority.LOW))
    world.sleep(30.0)
    world.submit(*by("bob", job("urgent", vram=20 * G, priority=Priority.HIGH)))
    assert world.phase("low") is Phase.STOPPING
    assert "being cleared for it" in waiting(world.state, world.state.jobs["urgent"], world.now)
    world.submit(job("small", vram=4 * G), job("greedy", vram=8 * G))
    world.end("low", code=143)
    world.sleep(2.0)
    assert world.running() == {"urgent", "small"}
    back = world.state.jobs["low"]
    assert (back.phase, back.attempts[-1].outcome) == (Phase.QUEUED, Outcome.PREEMPTED)
    assert "more urgent job of bob" in back.attempts[-1].message
    world.end("urgent")
    world.sleep(2.0)
    assert world.state.jobs["low"].attempt == 2 or "greedy" in world.running()


def test_a_job_is_evicted_twice_at_most_and_never_by_its_equals():
    world = World(card())
    world.submit(job("low", vram=20 * G, priority=Priority.LOW))
    for number in range(4):
        world.sleep(10.0)
        world.submit(job(f"urgent{number}", vram=20 * G, priority=Priority.HIGH))
        if world.phase("low") is Phase.STOPPING:
            world.end("low", code=143)
            world.sleep(2.0)
        if f"urgent{number}" in world.running():
            world.end(f"urgent{number}")
            world.sleep(2.0)
    outcomes = [attempt.outcome for attempt in world.state.jobs["low"].attempts]
    assert outcomes == [Outcome.PREEMPTED, Outcome.PREEMPTED, None]
    world.submit(job("other", vram=20 * G, priority=Priority.LOW))
    world.sleep(20000.0, tick=500.0)
    assert world.phase("low") is Phase.RUNNING


@pytest.mark.parametrize(("preemptible", "priority"), [(False, Priority.LOW), (None, Priority.NORMAL)])
def test_nobody_is_evicted_who_did_not_agree(preemptible, priority):
    world = World(card())
    world.submit(replace(job("here", vram=20 * G, priority=priority), preemptible=preemptible))
    world.sleep(10.0)
    world.submit(job("urgent", vram=20 * G, priority=Priority.HIGH))
    assert world.running() == {"here"}


def test_no_more_work_is_lost_than_the_urgent_job_is_worth():
    world = World(card())
    world.submit(job("low", vram=20 * G, priority=Priority.LOW))
    world.sleep(7200.0, tick=600.0)
    world.submit(replace(job("urgent", vram=2 * G, priority=Priority.HIGH), request=job(vram=8 * G).request))
    assert world.running() == {"low"}


def test_nobody_is_evicted_for_a_job_that_would_still_lack_cpus():
    world = World(card())
    world.submit(job("host", gpus=0, cpus=SETTINGS.cpus))
    low = job("low", vram=20 * G, priority=Priority.LOW)
    world.submit(low, job("urgent", vram=20 * G, cpus=1, priority=Priority.HIGH))
    world.sleep(60.0)
    assert world.running() == {"host", "low"}
    assert world.state.jobs["low"].attempt == 1


def test_the_cpus_of_who_is_evicted_count_for_the_urgent_job_and_are_kept_for_it():
    world = World(card())
    world.submit(job("low", vram=20 * G, cpus=10, priority=Priority.LOW))
    world.sleep(30.0)
    world.submit(job("urgent", vram=20 * G, cpus=16, priority=Priority.HIGH))
    assert world.phase("low") is Phase.STOPPING
    world.submit(job("host", gpus=0, cpus=4))
    world.end("low", code=143)
    world.sleep(2.0)
    assert world.running() == {"urgent"}


def test_nobody_is_evicted_for_a_job_whose_card_would_still_be_too_busy():
    world = World(card(utilization_pct=90.0), settings=replace(SETTINGS, compute_limit=1.5))
    world.submit(job("here", vram=4 * G))
    world.sleep(30.0)
    low = by("bob", job("low", vram=4 * G, priority=Priority.LOW))
    world.submit(*low, *by("cleo", job("urgent", vram=20 * G, priority=Priority.HIGH)))
    world.sleep(60.0)
    assert world.running() == {"here", "low"}
    assert world.state.jobs["low"].attempt == 1


def test_a_card_that_is_too_busy_is_cleared_for_an_urgent_job_even_if_it_has_the_memory():
    world = World(card(utilization_pct=90.0), settings=replace(SETTINGS, compute_limit=1.5))
    world.submit(job("low", vram=4 * G, priority=Priority.LOW))
    world.sleep(30.0)
    world.submit(*by("bob", job("urgent", vram=20 * G, priority=Priority.HIGH)))
    assert world.phase("low") is Phase.STOPPING
    world.end("low", code=143)
    world.sleep(2.0)
    assert "urgent" in world.running()


def test_what_an_eviction_frees_beyond_its_purpose_is_left_to_a_smaller_urgent_job_at_once():
    world = World(card())
    world.submit(job("low", vram=24 * G, priority=Priority.LOW))
    world.sleep(400.0)
    small = replace(job("small", vram=G, priority=Priority.HIGH), time_limit_s=60.0)  # is not worth the eviction
    world.submit(small, job("large", vram=20 * G, priority=Priority.HIGH))
    claims = [one.claim for one in world.state.jobs.values() if one.claim is not None]
    assert [claim.evicting for claim in claims] == [True, True]
    world.end("low", code=143)
    world.sleep(2.0)
    assert world.running() == {"small", "large"}


def test_of_two_jobs_for_which_cards_are_cleared_none_takes_the_place_of_the_other():
    world = World(*cards(2))
    world.submit(job("low", cpus=12, vram=20 * G, priority=Priority.LOW), job("high", vram=4 * G, exclusive=True))
    world.sleep(400.0)
    world.end("high")
    world.sleep(2.0)
    late = job("late", vram=20 * G, cpus=8, exclusive=True, priority=Priority.HIGH)
    world.submit(replace(late, time_limit_s=900.0), job("early", vram=None, priority=Priority.HIGH))
    claimed = {one.id: one.claim.gpus for one in world.state.jobs.values() if one.claim is not None}
    assert world.phase("low") is Phase.STOPPING
    world.sleep(2.0)
    assert world.running() == set()
    assert len(claimed) == 2
    world.end("low", code=143)
    world.sleep(2.0)
    assert world.running() == {"late", "early"}


def test_a_claim_that_idles_too_much_rests_and_others_start_meanwhile():
    world = World(*cards(2), settings=replace(HASTY, policy=replace(HASTY.policy, budget=0.01, evicts=False)))
    world.submit(job("long", vram=10 * G))
    world.submit(job("wide", gpus=2, vram=20 * G))
    world.sleep(700.0, tick=10.0)
    world.submit(job("other", vram=10 * G))
    world.sleep(60.0, tick=10.0)
    rested = [change for change in world.history if change.kind == "claimed" and "rests_until" in change.detail]
    assert rested
    assert "other" in world.started_at


def test_the_named_policies_differ_in_whom_they_let_pass():
    def started(policy):
        world = World(card(), settings=replace(SETTINGS, policy=NAMED[policy]))
        world.submit(job("here", vram=10 * G))
        world.submit(job("big", vram=20 * G))
        world.submit(job("small", vram=4 * G), job("middle", vram=12 * G))
        return world.running() - {"here"}

    assert started("fifo") == set()
    assert started("default") == {"small"} | (started("default") & {"middle"})
    assert "small" in started("backfill")


def test_an_explanation_says_what_is_expected_and_by_what():
    world = World(card())
    world.submit(job("here", vram=20 * G))
    world.submit(replace(job("later", vram=20 * G), time_limit_s=1200.0))
    told = explanation(world.state, world.state.jobs["later"], world.now)
    assert told[0] == "number 1 of 1 in the queue"
    assert told[1].startswith("expected to run for about 10m")
    assert "ann has had 2 % of the machine of late; it asks for 83 %" in told
    assert any("cards are kept for it in" in sentence for sentence in told)


def test_where_all_else_is_equal_nobody_gets_two_before_everybody_has_one():
    world = World(*cards(2))
    everybody = [f"user{n}" for n in range(9)]
    world.submit(job("whole1", vram=None), job("whole2", vram=None))
    for round_ in range(2):
        world.submit(*[replace(job(f"j{round_}{n:04d}", vram=5 * G), owner=owner) for n, owner in enumerate(everybody)])
    world.end("whole1")
    world.end("whole2")
    world.sleep(2.0)
    assert len(world.running()) == 8
    assert len({world.state.jobs[job_id].owner for job_id in world.running()}) == 8
