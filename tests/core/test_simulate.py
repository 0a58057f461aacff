"""Traces through the core: golden decisions, the same bytes each time."""

import pytest

from jupyter_gpusched.core.metrics import bounds, score
from jupyter_gpusched.core.model import BadRequest, NeverFits
from jupyter_gpusched.core.policies import NAMED
from jupyter_gpusched.core.simulate import simulate, slowdown
from jupyter_gpusched.core.trace import schedule_lines

from .made_traces import HEAD, lab, traced

SMALL = HEAD + (
    "a,ann,x,0,100,1,600,1,0,,90\n"
    "b,bob,y,1,50,2,800,1,0,,90\n"
    "c,ann,x,2,10,1,300,1,0,60,90\n"
    "d,cid,z,3,40,1,900,0,1,,90\n"
    "u,bob,u,20,30,1,1000,2,0,,90\n"
)

MIXED = HEAD + (
    "low,ann,sweep,0,400,1,700,0,1,,90\n"
    "pin,bob,train,1,300,1,900,1,0,,90\n"
    "wide,cid,model,2,100,2,800,1,0,,90\n"
    "tiny,dan,try,3,20,1,200,1,0,30,90\n"
    "late,ann,sweep,4,50,1,250,0,1,,90\n"
    "now,eve,demo,50,60,1,1000,2,0,,90\n"
    "mine,ann,sweep,60,30,1,600,1,0,60,90\n"
    "his,dan,try,61,30,1,600,1,0,60,90\n"
    "last,bob,train,320,10,2,100,1,0,,90\n"
)
"""A wide job among small ones, and an urgent one that has two others evicted."""


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
        ("default", "a 0, c 2, d 3!, u 20, d 50, b 100"),
        ("fair", "a 0, c 2, d 3!, u 20, d 50, b 100"),
        ("fifo", "a 0, u 20, b 100, c 150, d 150"),
        # b's place is kept at once: only c is brief enough to pass it.
        ("backfill", "a 0, c 2, b 100, d 150, u 150"),
    ],
)
def test_golden_decisions_on_a_small_trace(policy, starts):
    assert told(SMALL, policy) == starts


@pytest.mark.parametrize(
    ("policy", "starts"),
    [
        # now has low and late evicted. his comes before mine, since ann has had more; low, who had most, after mine.
        (
            "default",
            "low 0!, pin 1, tiny 3, late 23!, now 50, his 110, late 110, mine 140, low 170, last 320, wide 570",
        ),
        # ann's share decides between users only: of hers low is the oldest and goes before mine.
        (
            "fair",
            "low 0!, pin 1, tiny 3, late 23!, now 50, his 110, late 110, low 140, mine 301, last 320, wide 540",
        ),
        # now counts as an hour older but evicts nobody; all the others wait for wide.
        ("fifo", "low 0, pin 1, now 301, tiny 400, wide 400, his 500, last 500, late 500, mine 500"),
        # wide's place is kept: tiny is brief enough at once, the others only while low or pin is expected to go on.
        ("backfill", "low 0, pin 1, tiny 3, mine 301, last 320, late 331, now 331, his 391, wide 421"),
    ],
)
def test_golden_decisions_with_a_wide_job_and_an_eviction(policy, starts):
    assert told(MIXED, policy) == starts


def told(trace, policy):
    """Who starts when, in order; a run that was ended for another has a mark."""
    segments = simulate(traced(trace), gpus=2, vram=1000, policy=NAMED[policy])
    words = [f"{s.job_id} {s.start_s:.0f}{'!' * s.preempted}" for s in segments]
    return ", ".join(sorted(words, key=lambda text: (int(text.split()[1].rstrip("!")), text)))


@pytest.mark.parametrize("policy", NAMED)
@pytest.mark.parametrize("contention", [False, True])
def test_every_policy_makes_a_possible_schedule_and_the_same_each_time(policy, contention):
    jobs = lab(90)
    segments = run(jobs, policy, contention=contention)
    if not contention:
        check(jobs, segments, gpus=2, vram=24576)
    assert list(schedule_lines(run(jobs, policy, contention=contention))) == list(schedule_lines(segments))


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
