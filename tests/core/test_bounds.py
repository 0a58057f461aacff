"""What a pass takes for granted of orders that it does not work out: it is never more than what they are."""

import dataclasses
from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpusched.core.frozen import quick, replace
from jupyter_gpusched.core.messages import Exited, Started, Submitted
from jupyter_gpusched.core.model import Phase, Priority
from jupyter_gpusched.core.policies import NAMED, Columns, Earlier, Hybrid
from jupyter_gpusched.core.schedule import schedule
from jupyter_gpusched.core.state import State, apply
from jupyter_gpusched.core.usage import Holding, Usage, least_after
from tests.core.conftest import SETTINGS, G, card, job, record

HEADS = st.lists(
    st.tuples(
        st.floats(0, 2e5), st.floats(0, 2e5), st.floats(10, 1e6), st.sampled_from(list(Priority)), st.floats(0, 1e6)
    ),
    min_size=1,
    max_size=5,
)
POLICIES = {**NAMED, "early": Hybrid(per_expected=0.0, per_backlog=0.0)}


@given(HEADS, st.sampled_from(sorted(POLICIES)), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1e6))
def test_no_order_is_below_its_bound_however_late(heads, name, part, before, share, passed_s):
    policy, now = POLICIES[name], 1e5
    bound = policy.bounds()

    def least(at, share):
        return min(policy.orders(Columns(at, part, share, *([row[of] for row in heads] for of in range(5)))))

    waited_s = max(0.0, now - max(row[1] for row in heads))
    earlier = Earlier(least(now, before), now, before, waited_s, min(row[4] for row in heads))
    assert bound(earlier, passed_s, share) <= least(now + passed_s, share)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1e5)), max_size=4),
    st.floats(0, 1),
    st.floats(0, 1e5),
    st.floats(0, 600),
)
def test_a_share_of_which_nothing_was_given_back_is_not_below_what_it_is_taken_for(held, had, ended_at, passed_s):
    usage, holding = Usage({"ann": (had, ended_at)}), Holding.of(held)
    share = usage.share("ann", holding, 1e5)
    assert least_after(share, passed_s) <= usage.share("ann", holding, 1e5 + passed_s)


@dataclasses.dataclass(frozen=True, slots=True)
class Looking(Hybrid):
    """The same, but everybody is looked at in each pass."""

    def bounds(self):
        return None


def turn(state, new, ends, now):
    """Jobs come, others end, and what fits starts; what was decided."""
    events = [Submitted(tuple(new)), *(Exited(one.id, one.attempt, record(at=now)) for one in ends)]
    state = reduce(lambda state, event: apply(state, event, now).state, events, state)
    step = schedule(state, now)
    told = [(change.kind, change.job.id, change.job.grants, change.job.claim) for change in step.changes]
    starting = [one for one in step.state.busy.values() if one.phase is Phase.STARTING]
    started = [Started(one.id, one.attempt, now) for one in starting]
    return reduce(lambda state, event: apply(state, event, now).state, started, step.state), told


@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_pass_that_leaves_owners_out_decides_as_one_that_looks_at_all(dice):
    quick_end = replace(SETTINGS, release_timeout_s=0.0, stale_after_s=1e9, claim_after_s=dice.choice([20.0, 14400.0]))
    cards = [card(0), card(1), card(2, total=16 * G)]
    states = [State.begin(replace(quick_end, policy=policy), gpus=cards) for policy in (Hybrid(), Looking())]
    now, count = 0.0, 0
    for _ in range(25):
        now += dice.choice([0.5, 30.0, 900.0])
        new = []
        for _ in range(dice.randrange(6)):
            count += 1
            asked = job(
                f"a{count:07d}", at=now, vram=dice.choice([2, 3, 6, 10, 16]) * G, gpus=dice.choice([1, 1, 1, 2])
            )
            new.append(
                replace(
                    asked,
                    owner=dice.choice(["ann", "bob", "eve", "joe"]),
                    name=dice.choice(["train", "tune"]),
                    time_limit_s=dice.choice([None, 600.0]),
                    priority=dice.choice([Priority.LOW, Priority.NORMAL, Priority.NORMAL, Priority.HIGH]),
                )
            )
        running = [one for one in states[0].busy.values() if one.phase is Phase.RUNNING]
        ends = dice.sample(running, min(len(running), dice.randrange(3)))
        turned = [turn(state, new, ends, now) for state in states]
        states = [state for state, _ in turned]
        assert turned[0][1] == turned[1][1]


@quick
@dataclasses.dataclass(frozen=True, slots=True)
class Noted:
    kind: str
    count: int = 3
    notes: list = dataclasses.field(default_factory=list)


def test_a_quick_value_is_as_any_frozen_one():
    one = Noted("a", notes=[1])
    assert (one.kind, one.count, one.notes) == ("a", 3, [1])
    assert Noted("a").notes is not Noted("a").notes
    assert one == Noted(kind="a", count=3, notes=[1])
    assert type(one) is Noted
    assert replace(one, count=4) == dataclasses.replace(one, count=4) == Noted("a", 4, [1])
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.count = 5
    with pytest.raises(TypeError):
        Noted()
    with pytest.raises(TypeError, match="has no size"):
        replace(one, size=1)
