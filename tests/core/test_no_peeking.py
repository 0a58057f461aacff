"""No policy knows how long a job will run: with other run times from some moment on, all before it stays the same."""

import random
from dataclasses import replace
from typing import ClassVar

import pytest

from jupyter_gpusched.core import simulate as simulator
from jupyter_gpusched.core.policies import NAMED, Hybrid
from jupyter_gpusched.core.simulate import simulate

from .made_traces import SHAPES

CUTS = (0.2, 0.5, 0.8)


def run(jobs, policy, *, contention):
    return simulate(jobs, gpus=2, vram=24576, policy=policy, contention=contention)


def with_other_ends(jobs, first, moment, *, seed, contention):
    """All that has not ended at the moment runs until some other time after it."""
    dice = random.Random(seed)
    ends = {run.job_id: run.end_s for run in first if not run.preempted}
    begun = {one.job.id: [run.start_s for run in first if run.job_id == one.job.id] for one in jobs}
    others = []
    for one in jobs:
        if ends[one.job.id] <= moment:
            others.append(one)
            continue
        # Alone on its card a run has done no more than the time it had: with contention less, so that it does not end.
        least = max((moment - at for at in begun[one.job.id] if at < moment), default=0.0)
        others.append(replace(one, duration_s=least + dice.uniform(10, 20000)))
    return others


def decided_before(runs, moment):
    """Starts, with their cards, and evictions."""
    starts = [(run.start_s, run.job_id, run.gpus, "starts") for run in runs if run.start_s < moment]
    return sorted(starts + [(run.end_s, run.job_id, run.gpus, "evicted") for run in runs if _evicted(run, moment)])


def _evicted(run, moment):
    return run.preempted and run.end_s < moment


@pytest.mark.parametrize("contention", [False, True], ids=["alone", "contention"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("policy", NAMED)
def test_no_decision_depends_on_how_long_unfinished_jobs_will_run(policy, shape, contention):
    for seed in (3, 4):
        jobs = SHAPES[shape](80, seed=seed, load=1.5)
        first = run(jobs, NAMED[policy], contention=contention)
        for cut in CUTS:
            moment = sorted(one.job.submitted_at for one in jobs)[int(len(jobs) * cut)]
            others = with_other_ends(jobs, first, moment, seed=7 * seed, contention=contention)
            assert sum(other is not one for other, one in zip(others, jobs, strict=True)) > 5
            again = run(others, NAMED[policy], contention=contention)
            assert decided_before(again, moment) == decided_before(first, moment)


class Clairvoyant(Hybrid):
    """Knows what nobody can."""

    known: ClassVar[dict[float, float]] = {}

    def order(self, job):
        return (self.known.get(job.submitted_at, job.expected_s),)

    def bounds(self):
        return None


def test_a_policy_that_peeks_is_found(monkeypatch):
    """The check itself must be able to fail."""
    jobs = SHAPES["lab"](110, seed=3, load=1.5)

    def peeking(these):
        monkeypatch.setattr(Clairvoyant, "known", {one.job.submitted_at: one.duration_s for one in these})
        return simulator.simulate(these, gpus=2, vram=24576, policy=Clairvoyant())

    first = peeking(jobs)
    differs = 0
    for cut in CUTS:
        moment = sorted(one.job.submitted_at for one in jobs)[int(len(jobs) * cut)]
        others = with_other_ends(jobs, first, moment, seed=7, contention=False)
        differs += decided_before(peeking(others), moment) != decided_before(first, moment)
    assert differs
