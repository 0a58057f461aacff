"""With the patience, the slip and the firmness that are shipped: no stream of small jobs keeps a wide one for ever."""

import random
from dataclasses import replace

import pytest
from exploring import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpusched.core.facts import Facts
from jupyter_gpusched.core.messages import Claimed, Placed, Started, Submitted
from jupyter_gpusched.core.policies import DEFAULT
from jupyter_gpusched.core.policy import plan
from jupyter_gpusched.core.schedule import schedule
from jupyter_gpusched.core.simulate import simulate
from jupyter_gpusched.core.state import State, apply
from tests.core.conftest import SETTINGS, G, card, job

from .made_traces import HEAD, traced

HOUR_S = 3600.0
SHIPPED = replace(SETTINGS, stale_after_s=1e12, release_timeout_s=0.0)
"""Cards that answer at all times; all that is about waiting is as it is shipped."""


@settings(max_examples=examples(12))
@given(seed=st.integers(0, 2**32), lies=st.booleans(), every_s=st.sampled_from([250.0, 400.0, 500.0]))
def test_a_wide_job_starts_while_small_ones_still_come_without_end(seed, lies, every_s):
    """``lies``: names whose first runs are brief, with brief estimates, and which then take an hour."""
    dice, lines, at = random.Random(seed), [], 0.0
    lines += [f"old{n},ann,first,0,3000,1,11264,1,0,,90\n" for n in range(4)]
    lines.append(f"wide,wim,model,100,600,2,{dice.choice([16, 22]) * G},1,0,,90\n")
    for number in range(360):
        at += dice.expovariate(1.0 / every_s)
        brief = lies and number % 3 < 2
        lasts, estimate = (20.0, "") if brief else (dice.uniform(0.3, 1.0) * HOUR_S, "60" if lies else "")
        asks = f"1,{dice.choice([4, 8, 11]) * G},1,0,{estimate}"
        lines.append(f"s{number:04d},u{dice.randrange(3)},n{number // 3},{at:.0f},{lasts:.0f},{asks},90\n")
    runs = simulate(traced(HEAD + "".join(lines)), gpus=2, vram=24 * G)
    (started,) = (run.start_s for run in runs if run.job_id == "wide")
    least_patience_s = SHIPPED.claim_after_s
    assert started < max(at, 2 * least_patience_s)
    assert started <= DEFAULT.firm_after * least_patience_s


def waiting_wide(size=20):
    """A wide job that waits since 0 for a card that another has, beside one that is free."""
    state = State.begin(SHIPPED, gpus=[card(0), card(1)])
    state = schedule(apply(state, Submitted((job("busy", vram=20 * G),)), 0.0).state, 0.0).state
    state = apply(state, Started("busy", 1, 0.0), 0.0).state
    return apply(state, Submitted((job("wide", gpus=2, vram=size * G),)), 0.0).state


def with_small(state, now, *, vram, limit_s=None):
    return apply(state, Submitted((replace(job("small", at=now, vram=vram * G), time_limit_s=limit_s),)), now).state


def decided(state, now):
    plans = plan(state, now)
    placed = {one.job_id for one in plans if isinstance(one, Placed)}
    claims = [one.claim for one in plans if isinstance(one, Claimed) and one.job_id == "wide"]
    return placed, claims


def patience_s(state):
    return Facts(state, 0.0).patience_s(state.jobs["wide"])


@given(size=st.integers(13, 24), small=st.integers(5, 24))
def test_after_so_many_times_its_patience_a_place_is_left_free_by_whatever_starts(size, small):
    state = waiting_wide(size)
    firm_at = DEFAULT.firm_after * patience_s(state)
    beside = 24 - size >= small
    placed, claims = decided(with_small(state, firm_at, vram=small, limit_s=15.0), firm_at)
    assert [claim.firm for claim in claims] == [True]
    assert placed == ({"small"} if beside else set())
    earlier = firm_at - 60.0
    placed, claims = decided(with_small(state, earlier, vram=small, limit_s=15.0), earlier)
    assert [claim.firm for claim in claims] == [False]
    assert placed == {"small"}  # which will have gone before the place can be complete


@pytest.mark.parametrize("limit_s", [15.0, 600.0])
def test_a_claim_that_has_stood_for_so_many_times_the_patience_lets_nobody_pass_however_brief(limit_s):
    state = waiting_wide()
    begun = patience_s(state)
    assert decided(with_small(state, begun - 1.0, vram=8, limit_s=limit_s), begun - 1.0) == ({"small"}, [])
    state = schedule(state, begun).state
    claim = state.jobs["wide"].claim
    assert claim.due == begun + DEFAULT.slip * patience_s(state)
    # What lay free for it is forgotten here: otherwise that would have ended the claim long before.
    wide = replace(state.jobs["wide"], claim=replace(claim, idle=0, spent=0.0))
    kept = State.begin(SHIPPED, [*(one for one in state.jobs.values() if one.id != "wide"), wide], state.gpus.values())
    before, after = claim.due - 2000.0, claim.due + 1.0
    assert decided(with_small(kept, before, vram=8, limit_s=limit_s), before)[0] == {"small"}
    assert decided(with_small(kept, after, vram=8, limit_s=limit_s), after)[0] == set()
