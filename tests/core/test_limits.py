"""Limits per user and group: who waits for them, with which words, and that nothing else is held up by it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpusched.core.explain import waiting, waiting_all
from jupyter_gpusched.core.limits import Allowance, Limits
from jupyter_gpusched.core.messages import LimitsChanged
from jupyter_gpusched.core.model import Phase, Priority
from jupyter_gpusched.core.quota import LimitReached, check_queue, check_terms, use_of_owner
from tests.core.conftest import FIRM, SETTINGS, G, World, card, job


def of(owner, job_id, *, groups=(), **more):
    return replace(job(job_id, **more), owner=owner, groups=tuple(groups))


def lab(limits, *cards, settings=SETTINGS):
    return World(*(cards or (card(0), card(1))), settings=replace(settings, limits=limits))


def sentence(world, job_id):
    one = waiting(world.state, world.state.jobs[job_id], world.now)
    assert waiting_all(world.state, world.now)[job_id] == one
    return one


def test_the_users_own_word_counts_then_the_most_generous_group_then_everybodys():
    limits = Limits(
        {"running_jobs": 1, "gpus": 1, "priorities": ("low",)},
        {"lab": {"running_jobs": 4, "priorities": ("normal",)}, "guests": {"running_jobs": 2, "gpus": None}},
        {"ann": {"running_jobs": 3}},
    )
    assert limits.of("bob", ()) == Allowance(running_jobs=1, gpus=1, priorities=("low",))
    assert limits.of("bob", ("guests", "lab")).running_jobs == 4
    assert limits.of("bob", ("guests", "lab")).gpus is None
    assert limits.of("bob", ("guests", "lab")).priorities == ("normal",)
    assert limits.of("ann", ("guests", "lab")).running_jobs == 3
    assert limits.of("Ann", ()).running_jobs == 1, "names are exact"
    assert not Limits()
    assert limits


@pytest.mark.parametrize(
    ("words", "request_", "said"),
    [
        ({"running_jobs": 2}, {}, "ann may run 2 jobs at a time, and 2 are running"),
        ({"gpus": 2}, {}, "ann may use 2 GPUs at a time; 2 are in use, and it asks for 1"),
        ({"cpus": 3}, {"cpus": 1}, "ann may use 3 CPUs at a time; 2 are in use, and it asks for 2"),
        (
            {"memory": 5 * G},
            {"memory": 2 * G},
            "ann may use 5.0G of host memory at a time; 4.0G in use, and it asks for",
        ),
        (
            {"vram_share": 0.2},
            {"vram": 4 * G},
            "ann may have 9.6G of GPU memory at a time (20% of all cards); 8.0G are promised, and it asks for 4.0G",
        ),
    ],
)
def test_a_job_beyond_a_limit_waits_with_the_limit_in_its_sentence_while_others_start(words, request_, said):
    world = lab(Limits(users={"ann": words}))
    world.submit(*(of("ann", f"aaaa000{n}", **request_) for n in range(2)))
    last = dict(request_, cpus=2) if "cpus" in request_ else request_
    world.submit(of("ann", "aaaa0009", **last), of("bob", "bbbb0001"))
    assert world.running() == {"aaaa0000", "aaaa0001", "bbbb0001"}
    assert said in sentence(world, "aaaa0009")
    world.end("aaaa0000")
    assert world.phase("aaaa0009") is Phase.RUNNING, "as soon as there is room under the limit"


def test_a_limit_of_one_user_holds_up_nobody_who_asks_for_the_same():
    world = lab(Limits({"running_jobs": 1}))
    world.submit(*(of("ann", f"aaaa00{n:02}") for n in range(20)))
    world.submit(*(of(f"user{n}", f"bbbb000{n}") for n in range(4)))
    assert world.running() == {"aaaa0000", "bbbb0000", "bbbb0001", "bbbb0002", "bbbb0003"}


def test_no_cards_are_kept_for_a_job_that_its_owners_limit_keeps_from_starting():
    world = lab(Limits(users={"ann": {"running_jobs": 1}}), settings=FIRM)
    world.submit(of("ann", "aaaa0001"), of("ann", "wide0001", gpus=2, vram=20 * G))
    world.sleep(400)
    assert not world.state.claimants
    world.submit(of("bob", "bbbb0001", gpus=2, vram=16 * G))
    assert world.phase("bbbb0001") is Phase.RUNNING


def test_a_claim_is_given_up_when_a_lower_limit_comes_to_hold():
    world = lab(Limits(), settings=FIRM)
    world.submit(of("bob", "bbbb0001", vram=20 * G), of("ann", "aaaa0001", vram=2 * G, gpus=1))
    world.submit(of("ann", "wide0001", gpus=2, vram=20 * G))
    world.sleep(400)
    assert world.state.claimants == {"wide0001"}
    world.tell(LimitsChanged("root2", Limits(users={"ann": {"running_jobs": 1}})))
    assert not world.state.claimants
    assert "ann may run 1 job at a time, and 1 is running" in sentence(world, "wide0001")


def test_lower_limits_end_nothing_and_higher_ones_hold_from_the_next_pass_on():
    world = lab(Limits())
    world.submit(*(of("ann", f"aaaa000{n}") for n in range(3)))
    world.tell(LimitsChanged("root2", Limits({"running_jobs": 1})))
    assert len(world.running()) == 3
    world.submit(of("ann", "aaaa0009"))
    for n in range(2):
        world.end(f"aaaa000{n}")
    assert world.phase("aaaa0009") is Phase.QUEUED
    world.tell(LimitsChanged("root2", Limits({"running_jobs": 2})))
    assert world.phase("aaaa0009") is Phase.RUNNING
    (lower, higher) = [change for change in world.of_machine if change.kind == "limits_changed"]
    assert lower.detail == higher.detail == {"by": "root2"}
    world.tell(LimitsChanged("root2", Limits({"running_jobs": 2})))
    assert len([change for change in world.of_machine if change.kind == "limits_changed"]) == 2, "the same is no change"


def test_an_urgent_job_evicts_for_itself_only_within_its_owners_limit():
    world = lab(Limits(users={"ann": {"running_jobs": 1}}), card(0))
    world.submit(of("bob", "bbbb0001", vram=20 * G, priority=Priority.LOW))
    world.submit(of("ann", "aaaa0001", vram=2 * G))
    world.submit(of("ann", "aaaa0002", vram=20 * G, priority=Priority.HIGH))
    world.sleep(3)
    assert world.phase("bbbb0001") is Phase.RUNNING
    world.end("aaaa0001")
    world.sleep(1)
    assert world.phase("bbbb0001") is not Phase.RUNNING, "now it may"


def test_what_could_never_start_is_refused_with_the_limit():
    state = lab(Limits({"gpus": 1, "longest_time_s": 600.0, "priorities": ("low", "normal"), "queued_jobs": 2})).state
    for refused, field, words in [
        (of("ann", "aaaa0001", gpus=2), None, "ann may use 1 GPU at a time"),
        (replace(of("ann", "aaaa0001"), time_limit_s=601.0), "time_limit", "10m00s at most"),
        (of("ann", "aaaa0001", priority=Priority.HIGH), "priority", "may not use 'high'"),
    ]:
        with pytest.raises(LimitReached) as caught:
            check_terms(refused, state)
        assert caught.value.field == field
        assert words in caught.value.message
        assert caught.value.hint
    check_terms(replace(of("ann", "aaaa0001"), time_limit_s=600.0), state)
    check_queue("ann", (), state, waiting=0, joining=2)
    with pytest.raises(LimitReached, match="ann may have 2 waiting jobs at a time, and 1 wait; 2 more are too many"):
        check_queue("ann", (), state, waiting=1, joining=2)


OWNERS = st.sampled_from(["ann", "bob", "eve"])


@given(
    st.lists(st.tuples(OWNERS, st.integers(0, 2), st.sampled_from([1, 4, 12, 24])), max_size=14),
    st.dictionaries(OWNERS, st.fixed_dictionaries({"running_jobs": st.integers(0, 3), "gpus": st.integers(0, 4)})),
)
def test_on_every_queue_nobody_gets_beyond_a_limit_and_whoever_waits_is_told_why(asked, users):
    world = lab(Limits(users=users))
    for number, (owner, gpus, gib) in enumerate(asked):
        what = {"gpus": gpus, "vram": gib * G} if gpus else {"gpus": 0, "vram": None, "cpus": 1}
        world.submit(of(owner, f"job{number:05}", **what))
    for _ in range(len(asked) + 1):
        for owner in ("ann", "bob", "eve"):
            use, allowance = use_of_owner(world.state, owner), world.state.settings.limits.of(owner, ())
            assert allowance.running_jobs is None or use.jobs <= allowance.running_jobs
            assert allowance.gpus is None or use.gpus <= allowance.gpus
        for one in world.state.jobs.values():
            if one.phase is Phase.QUEUED:
                assert sentence(world, one.id) != "starts with the next pass", "what fits and may start has started"
        if not world.running():
            break
        world.end(min(world.running()))
        world.sample()


def test_each_limit_of_the_kernel_is_the_users_own_else_the_most_generous_of_groups_else_everybodys():
    limits = Limits(
        {"rlimits": {"nofile": 100, "core": 0, "cpu": 60}},
        {"lab": {"rlimits": {"nofile": 200}}, "staff": {"rlimits": {"nofile": 300, "cpu": None}}},
        {"ann": {"rlimits": {"core": 5}}},
    )
    assert limits.of("ann", ("lab", "staff")).rlimits == {"nofile": 300, "core": 5, "cpu": None}
    assert limits.of("bob", ("lab",)).rlimits == {"nofile": 200, "core": 0, "cpu": 60}
    assert Limits().of("bob", ()).rlimits == {}
