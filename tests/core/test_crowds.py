"""One user cannot crowd out another: how many jobs somebody has waiting is of no use to them."""

from exploring import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpusched.core.policies import NAMED
from jupyter_gpusched.core.simulate import simulate

from .made_traces import HEAD, traced

HOUR_S = 3600.0
GPUS, VRAM = 2, 24576


def line(job_id, user, at, lasts, vram, gpus=1):
    return f"{job_id},{user},work,{at:.1f},{lasts:.1f},{gpus},{vram},1,0,,50\n"


def run(lines, policy):
    return simulate(traced(HEAD + "".join(lines)), gpus=GPUS, vram=VRAM, policy=NAMED[policy])


@settings(max_examples=examples(40))
@given(
    policy=st.sampled_from(["default", "fair"]),
    many=st.integers(20, 150),
    lasts=st.floats(30.0, HOUR_S),
    vram=st.sampled_from([7000, 12000, 24000]),
    spread_s=st.sampled_from([0.0, 600.0, HOUR_S]),
    others=st.lists(st.floats(0.0, 2.0 * HOUR_S), min_size=1, max_size=2),
)
def test_whoever_comes_to_a_crowd_has_the_next_place_that_is_freed(policy, many, lasts, vram, spread_s, others):
    """However many jobs of one user wait there, and however long they have: not more than one of their runs."""
    crowd = [line(f"c{n:04d}", "crowd", spread_s * n / many, lasts, vram) for n in range(many)]
    came = {f"o{n}": lasts + at for n, at in enumerate(others)}
    single = [line(job_id, f"user{job_id}", at, lasts, 7000) for job_id, at in came.items()]
    for segment in run(crowd + single, policy):
        if segment.job_id in came:
            assert segment.start_s - came[segment.job_id] <= lasts + 1.0


@settings(max_examples=examples(30))
@given(
    policy=st.sampled_from(["default", "fair"]),
    counts=st.lists(st.integers(1, 100), min_size=2, max_size=4),
    lasts=st.floats(60.0, 600.0),
)
def test_users_with_alike_jobs_get_alike_parts_however_many_each_has_waiting(policy, counts, lasts):
    """As long as all of them still have some waiting, nobody is more than a quarter and a few runs ahead of another."""
    crowd = [
        line(f"u{user}n{n:04d}", f"user{user}", 0.0, lasts, 12000)
        for user, many in enumerate(counts)
        for n in range(many)
    ]
    waiting, begun = dict(enumerate(counts)), dict.fromkeys(range(len(counts)), 0)
    for segment in sorted(run(crowd, policy), key=lambda segment: segment.start_s):
        user = int(segment.job_id[1])
        waiting[user] -= 1
        begun[user] += 1
        if not all(waiting.values()):
            break
        assert max(begun.values()) <= 1.25 * min(begun.values()) + 4
