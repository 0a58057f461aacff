"""The baselines of tests/bench/habits.py against what was recorded of them, and our policy on fresh traces."""

import csv
import sys
from pathlib import Path

import pytest

from jupyter_gpusched.core.metrics import score
from jupyter_gpusched.core.simulate import simulate

BENCH = Path(__file__).resolve().parents[1] / "bench"
sys.path.insert(0, str(BENCH))

import fresh_traces  # noqa: E402
import habits  # noqa: E402
import policy_table  # noqa: E402

RECORDED = {row["file"]: row for row in csv.DictReader((BENCH / "baselines.csv").open())}


@pytest.mark.parametrize("name", ["lab-L070-s1.csv.gz", "lab2g-L095-s2.csv.gz"])
def test_the_habits_of_today_have_the_measures_that_were_recorded(name):
    traced = policy_table.load(BENCH / "traces" / name)
    gpus, vram = policy_table.machine(name)
    naive = score(traced, habits.run(traced, habits.Retry(), gpus=gpus, vram=vram))
    easy = score(traced, habits.run(traced, habits.Easy(), gpus=gpus, vram=vram))
    recorded = RECORDED[name]
    assert naive.completion_s == pytest.approx(float(recorded["naive_completion_s"]), rel=1e-6)
    assert naive.longest_wait_s == pytest.approx(float(recorded["naive_longest_wait_s"]), rel=1e-6)
    assert naive.slowdown == pytest.approx(float(recorded["naive_slowdown"]), rel=1e-4)
    assert easy.completion_s == pytest.approx(float(recorded["easy_completion_s"]), rel=1e-6)
    assert easy.longest_wait_s == pytest.approx(float(recorded["easy_longest_wait_s"]), rel=1e-6)


@pytest.mark.parametrize("family", fresh_traces.FAMILIES)
def test_a_fresh_trace_is_the_same_for_the_same_seed_and_fits_its_cards(family):
    traced, gpus, vram = fresh_traces.make(family, 0.95, 7, jobs=200)
    assert fresh_traces.make(family, 0.95, 7, jobs=200)[0] == traced
    assert fresh_traces.make(family, 0.95, 8, jobs=200)[0] != traced
    assert all(one.job.request.gpus <= gpus and one.job.request.vram <= vram for one in traced)


@pytest.mark.parametrize("family", ["lab2g", "wide"])
def test_on_fresh_traces_nothing_is_lost_and_jobs_end_sooner_than_by_todays_habits(family):
    traced, gpus, vram = fresh_traces.make(family, 0.95, 7, jobs=300)
    ours = simulate(traced, gpus=gpus, vram=vram)
    assert sorted(run.job_id for run in ours if not run.preempted) == sorted(one.job.id for one in traced)
    found = score(traced, ours)
    for habit in (habits.Retry(), habits.Easy()):
        assert found.completion_s < score(traced, habits.run(traced, habit, gpus=gpus, vram=vram)).completion_s
