"""What ``vram="auto"`` makes of earlier runs, and what a job's owner is told about what it asked for."""

from dataclasses import replace

import pytest

from jupyter_gpusched.core.advice import advice
from jupyter_gpusched.core.learn import learned_amount
from jupyter_gpusched.core.model import Attempt, BadRequest, Outcome, Phase, Shortage
from tests.core.conftest import G, grant, job


def run_of(peak, *, promised=8 * G, at=0.0, lasted=100.0, reason="exit", vram=8 * G, shortage=None):
    """A run that ended: well, or out of memory."""
    one = job(at=at, vram=vram)
    good = reason == "exit"
    attempt = Attempt(
        1,
        (grant(one, promised=promised),),
        started_at=at,
        ended_at=at + lasted,
        outcome=Outcome.SUCCEEDED if good else Outcome.FAILED,
        reason=reason,
        peak_vram_mib=peak,
        shortage=shortage,
    )
    return replace(one, phase=Phase.SUCCEEDED if good else Phase.FAILED, attempts=(attempt,), submitted_at=at)


def learn(*runs, simulated=False, largest=24 * G):
    return learned_amount(runs, name="train.py", simulated=simulated, largest=largest)


def test_the_largest_peak_of_the_last_five_runs_counts_with_a_tenth_and_a_margin():
    runs = [run_of(peak, at=9.0 - age) for age, peak in enumerate((6000, 6451, 6100, 5000, 6000, 20000))]
    amount, words = learn(*runs)
    assert amount == 7424  # 6451 * 1.1 + 256 = 7352.1
    assert words == (
        "vram auto: 7424 MiB (7.2G), from the peak of the last 5 runs of 'train.py', 6.3G, with a tenth and 256M on top"
    )


def test_after_a_run_that_ran_out_it_is_more_than_that_run_had():
    amount, words = learn(run_of(4000, at=2.0, promised=4 * G, reason="cuda_oom"), run_of(2000, at=1.0))
    assert amount == 5 * G
    assert "more than what a later run ran out of memory with" in words
    asked = run_of(4000, at=2.0, promised=4 * G, reason="cuda_oom", shortage=Shortage(6000))
    assert learn(asked, run_of(2000, at=1.0))[0] == 11008


def test_a_run_that_ran_out_before_a_good_one_teaches_nothing():
    assert learn(run_of(2000, at=2.0), run_of(4000, at=1.0, promised=20 * G, reason="cuda_oom"))[0] == 2560


def test_only_runs_that_ran_out_teach_too():
    assert learn(run_of(None, promised=4 * G, reason="cuda_oom"))[0] == 5 * G


def test_it_is_never_more_than_a_card_can_hold_unless_more_is_needed():
    assert learn(run_of(23 * G))[0] == 24 * G
    assert learn(run_of(23 * G, promised=24 * G, reason="cuda_oom"))[0] == 30 * G, "which is then refused as such"


@pytest.mark.parametrize("runs", [(), (run_of(None),), (run_of(2000, reason="signal_9"),)])
def test_without_a_measured_peak_it_is_refused_with_what_to_do(runs):
    with pytest.raises(BadRequest, match=r"no earlier run of 'train.py' has a measured peak") as refused:
        learn(*runs)
    assert "--vram 8G" in refused.value.hint


def test_on_simulated_cards_it_does_not_grow_from_run_to_run_and_says_so():
    amount, words = learn(run_of(4 * G), simulated=True)
    assert amount == 4 * G
    assert "simulated cards measure nothing" in words


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (run_of(6451, promised=12 * G), "asked 12.0G, peak 6.3G: ask for 7.0G next time"),
        (run_of(6451, promised=12 * G, vram=None), "had a whole card of 12.0G, peak 6.3G: ask for 7.0G next time"),
        (run_of(0), "asked 8.0G and never used the GPU: with --gpus 0 it would not wait for one"),
        (run_of(8300, promised=8 * G), "asked 8.0G, peak 8.1G: ask for 9.0G next time"),
        (run_of(7 * G), None),
        (run_of(6451, promised=12 * G, lasted=59.0), None),
        (run_of(9216, promised=4 * G, lasted=5.0), "asked 4.0G, peak 9.0G: ask for 10.0G next time"),
        (run_of(9216, promised=4 * G, reason="cancelled"), "asked 4.0G, peak 9.0G: ask for 10.0G next time"),
        (run_of(9216, promised=4 * G, reason="vram_exceeded"), None),
        (run_of(9216, promised=4 * G, lasted=5.0, vram=None), None),
        (run_of(None), None),
        (run_of(1000, reason="cuda_oom"), None),
    ],
)
def test_advice_is_given_where_request_and_peak_differ_much_and_the_run_was_long_enough(run, said):
    assert advice(run, simulated=False) == said
    assert advice(run, simulated=True) is None


def test_where_an_amount_comes_from_is_said_unless_there_is_better_advice():
    one = replace(run_of(6451, promised=12 * G), learned="vram auto: ...")
    assert advice(replace(one, phase=Phase.QUEUED), simulated=False) == "vram auto: ..."
    assert advice(one, simulated=False).startswith("asked 12.0G")
