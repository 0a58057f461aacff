"""What a pass remembers of the heads of lines, and the copies it makes, against the plain way."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpusched.core.frozen import replace
from jupyter_gpusched.core.messages import Submitted
from jupyter_gpusched.core.model import Priority
from jupyter_gpusched.core.policies import NAMED, Columns, Hybrid, Waiting
from jupyter_gpusched.core.policy import plan
from jupyter_gpusched.core.state import State, apply
from tests.core.conftest import SETTINGS, G, card, grant, job

JOBS = st.lists(
    st.tuples(
        st.floats(0, 2e5), st.floats(0, 2e5), st.floats(10, 1e6), st.sampled_from(list(Priority)), st.floats(0, 1e6)
    ),
    min_size=1,
    max_size=5,
)


@given(JOBS, st.sampled_from(sorted(NAMED)), st.floats(0, 1), st.floats(0, 1))
def test_a_policy_says_of_many_jobs_at_once_what_it_says_of_each(jobs, name, part, share):
    policy, now = NAMED[name], 1e5
    columns = Columns(now, part, share, *([row[at] for row in jobs] for at in range(5)))
    each = [
        policy.order(Waiting(at, max(0.0, now - since), expected_s, part, share, priority, backlog_s))
        for at, since, expected_s, priority, backlog_s in jobs
    ]
    assert policy.orders(columns) == each


@dataclasses.dataclass(frozen=True, slots=True)
class Largest(Hybrid):
    """The reverse, by one method only."""

    def order(self, job):
        return (-job.part,)


def test_a_policy_of_ones_own_that_only_gives_an_order_is_asked_for_it():
    kept = dataclasses.replace(SETTINGS, policy=Largest())
    state = State.begin(kept, gpus=[card(at=10.0)])
    waiting = (job("small", vram=8 * G), job("large", vram=20 * G))
    state = apply(state, Submitted(waiting), 10.0).state
    assert [decision.job_id for decision in plan(state, 10.0)] == ["large"]


def test_a_copy_with_changes_is_what_the_standard_library_makes_of_it():
    one = job("a", vram=4 * G)
    for value, changes in [
        (one, {"priority": Priority.LOW}),
        (one, {}),
        (grant(one), {"promised": 3}),
        (card(), {"used": 5, "free": None}),
    ]:
        assert replace(value, **changes) == dataclasses.replace(value, **changes)
