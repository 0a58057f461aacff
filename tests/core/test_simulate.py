"""Traces through the core: golden decisions, no peeking, the same bytes each time."""

import random
from dataclasses import replace

import pytest

from jupyter_gpusched.core.metrics import bounds, score
from jupyter_gpusched.core.model import BadRequest, NeverFits
from jupyter_gpusched.core.policies import NAMED
from jupyter_gpusched.core.simulate import simulate, slowdown
from jupyter_gpusched.core.trace import read_trace, schedule_lines

HEAD = "job_id,user,name,submit_s,duration_s,gpus,vram_mib,priority,preemptible,est_s,sm_pct\n"
SMALL = HEAD + (
    "a,ann,x,0,100,1,600,1,0,,90\n"
    "b,bob,y,1,50,2,800,1,0,,90\n"
    "c,ann,x,2,10,1,300,1,0,60,90\n"
    "d,cid,z,3,40,1,900,0,1,,90\n"
    "u,bob,u,20,30,1,1000,2,0,,90\n"
)


def traced(text):
    return read_trace(text.splitlines(keepends=True))


def lab(jobs=160, *, seed=1, load=1.0):
    """A made-up lab: sweeps of few users, run times by name, some urgent and some preemptible work."""
    dice, lines, at = random.Random(seed), [], 0.0
    typical = {}
    for number in range(jobs):
        if dice.random() < 0.3:
            at += dice.expovariate(load / 400.0)
        user = f"u{min(int(dice.paretovariate(1.0)), 6)}"
        name = f"{user}-{dice.randrange(3)}"
        seconds, vram = typical.setdefault(name, (dice.lognormvariate(6.5, 1.2), dice.choice([2, 6, 10, 20]) * 1024))
        lasts = max(1.0, seconds * dice.lognormvariate(0, 0.3))
        priority = dice.choices([0, 1, 2], [0.2, 0.75, 0.05])[0]
        estimate = "" if dice.random() < 0.4 else f"{60 * round(lasts * 2.5 / 60 + 1)}"
        gpus = dice.choices([1, 2], [0.9, 0.1])[0]
        asks = f"{gpus},{vram},{priority},{int(priority == 0)},{estimate}"
        lines.append(f"j{number:04d},{user},{name},{at:.1f},{lasts:.1f},{asks},60\n")
    return traced(HEAD + "".join(lines))


def run(jobs, policy="default", **more):
    return simulate(jobs, gpus=2, vram=24576, policy=NAMED[policy], **more)


def check(jobs, segments, *, gpus, vram):
    """An independent look at a schedule: whole runs, whole gangs, nothing early, nothing over-committed."""
    by_id = {one.job.id: one for one in jobs}
    done = [segment.job_id for segment in segments if not segment.preempted]
    assert sorted(done) == sorted(by_id)
    for segment in segments:
        one = by_id[segment.job_id]
        assert segment.start_s >= one.job.submitted_at
        assert len(set(segment.gpus)) == len(segment.gpus) == one.job.request.gpus
        if segment.preempted:
            assert one.job.may_be_evicted
        else:
            assert segment.end_s - segment.start_s == pytest.approx(one.duration_s)
    for card in range(gpus):
        edges = [
            (at, grows, by_id[s.job_id].job.request.vram * (1 if grows else -1))
            for s in segments
            if card in s.gpus
            for at, grows in ((s.end_s, False), (s.start_s, True))
        ]
        used = 0
        for _, _, change in sorted(edges):
            used += change
            assert used <= vram


@pytest.mark.parametrize(
    ("policy", "starts"),
    [
        # c is brief and passes b, which needs both cards; u evicts d, which comes again when u has ended.
        ("default", "a 0, c 2, d 3 evicted, u 20, d 50, b 100"),
        ("fifo", "a 0, u 20, b 100, c 150, d 150"),
        # b's place is kept at once: only c is brief enough to pass it.
        ("backfill", "a 0, c 2, b 100, d 150, u 150"),
    ],
)
def test_golden_decisions_on_a_small_trace(policy, starts):
    segments = simulate(traced(SMALL), gpus=2, vram=1000, policy=NAMED[policy])
    told = [f"{s.job_id} {s.start_s:.0f}{' evicted' * s.preempted}" for s in segments]
    assert ", ".join(sorted(told, key=lambda text: (int(text.split()[1]), text))) == starts


@pytest.mark.parametrize("policy", NAMED)
@pytest.mark.parametrize("contention", [False, True])
def test_every_policy_makes_a_possible_schedule_and_the_same_each_time(policy, contention):
    jobs = lab(90)
    segments = run(jobs, policy, contention=contention)
    if not contention:
        check(jobs, segments, gpus=2, vram=24576)
    assert list(schedule_lines(run(jobs, policy, contention=contention))) == list(schedule_lines(segments))


@pytest.mark.parametrize("cut", [0.3, 0.7])
def test_no_decision_depends_on_how_long_unfinished_jobs_will_run(cut):
    jobs = lab(seed=3, load=1.5)
    moment = sorted(one.job.submitted_at for one in jobs)[int(len(jobs) * cut)]
    first = run(jobs)
    dice = random.Random(7)
    ends = {segment.job_id: segment.end_s for segment in first if not segment.preempted}
    begun = {one.job.id: [s.start_s for s in first if s.job_id == one.job.id and s.start_s < moment] for one in jobs}
    others = [
        replace(one, duration_s=max([moment - at for at in begun[one.job.id]], default=0.0) + dice.uniform(10, 20000))
        if ends[one.job.id] > moment
        else one
        for one in jobs
    ]
    assert sum(other is not one for other, one in zip(others, jobs, strict=True)) > 10

    def before(segments):
        return sorted((s.job_id, s.start_s, s.gpus) for s in segments if s.start_s < moment)

    assert before(run(others)) == before(first)


def test_the_default_completes_sooner_than_the_order_of_submission_and_no_sooner_than_possible():
    jobs = lab(seed=2, load=1.4)
    least = bounds(jobs, gpus=2, vram=24576).completion_s
    ours = score(jobs, run(jobs)).completion_s
    assert least <= ours < 0.7 * score(jobs, run(jobs, "fifo")).completion_s


def test_sharing_processors_costs_time_and_the_limit_keeps_it_bounded():
    text = HEAD + "".join(f"j{n},ann,x,{n},1000,1,100,1,0,,100\n" for n in range(4))
    segments = simulate(traced(text), gpus=1, vram=1000, contention=True)
    together = max(sum(one.start_s <= other.start_s < one.end_s for one in segments) for other in segments)
    assert together == 2
    assert max(segment.end_s for segment in segments) > 2 * 1000
    assert slowdown(1.0, 1) == 1.0
    assert slowdown(2.0, 2) == pytest.approx(2**0.55 * 1.01)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("job_id,user\n", "lacks the columns"),
        (HEAD + "a,ann,x,0,ten,1,10,1,0,,\n", "Line 2"),
        (HEAD + 2 * "a,ann,x,0,10,1,10,1,0,,\n", "two jobs a"),
    ],
)
def test_a_trace_that_cannot_be_read_is_refused_with_its_line(text, said):
    with pytest.raises(BadRequest, match=said):
        traced(text)


def test_a_trace_with_a_job_that_never_fits_is_refused():
    with pytest.raises(NeverFits):
        simulate(traced(SMALL), gpus=1, vram=1000)
