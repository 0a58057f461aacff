"""The baselines of tests/bench/habits.py against what was recorded of them, and our policy on fresh traces."""

import csv
import sys
from pathlib import Path

import pytest

from jupyter_gpusched.core.metrics import score
from jupyter_gpusched.core.policies import Priority
from jupyter_gpusched.core.simulate import simulate

BENCH = Path(__file__).resolve().parents[1] / "bench"
sys.path.insert(0, str(BENCH))

import fresh_traces  # noqa: E402
import habits  # noqa: E402
import policy_table  # noqa: E402

RECORDED = {row["file"]: row for row in csv.DictReader((BENCH / "baselines.csv").open())}


@pytest.mark.parametrize("name", ["lab-L070-s1.csv.gz", "lab-L120-s4.csv.gz", "lab2g-L095-s2.csv.gz"])
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


def asked(traced, gpus, vram):
    """How much of the cards' memory and time jobs ask for between the first submission and the last."""
    at = [one.job.submitted_at for one in traced]
    return sum(areas(traced)) / (gpus * vram * (max(at) - min(at)))


def areas(traced):
    return [one.duration_s * one.job.request.gpus * one.job.request.vram for one in traced]


@pytest.mark.parametrize("load", fresh_traces.LOADS)
@pytest.mark.parametrize("family", fresh_traces.FAMILIES)
def test_a_fresh_trace_has_the_load_it_is_made_for_as_the_recorded_ones_have(family, load):
    assert asked(*fresh_traces.make(family, load, 7)) == pytest.approx(load, rel=0.01)
    recorded = f"lab-L{100 * load:03.0f}-s1.csv.gz"
    assert asked(policy_table.load(BENCH / "traces" / recorded), 8, 81920) == pytest.approx(load, rel=0.01)


@pytest.mark.parametrize("family", fresh_traces.FAMILIES)
def test_in_a_fresh_trace_no_few_jobs_decide_and_only_low_priority_gives_way_as_in_the_recorded_ones(family):
    traced, *_ = fresh_traces.make(family, 0.95, 7)
    work, at = sorted(areas(traced)), [one.job.submitted_at for one in traced]
    assert sum(work[-len(work) // 100 :]) < 0.45 * sum(work)
    assert max(one.duration_s for one in traced) < 0.8 * (max(at) - min(at))
    assert all(one.job.preemptible == (one.job.priority is Priority.LOW) for one in traced)


@pytest.mark.parametrize(
    ("family", "low", "brief", "wide"),
    [  # ranges of the recorded seeds with some room: of low priority, of under a minute, on four cards or more
        ("openb", (0.25, 0.65), (0.04, 0.15), (0.0, 0.03)),
        ("phillyB", (0.38, 0.45), (0.30, 0.56), (0.15, 0.28)),
        ("lab", (0.70, 0.90), (0.07, 0.20), (0.0, 0.08)),
        ("lab2g", (0.70, 0.90), (0.07, 0.32), (0.0, 0.0)),
    ],
)
def test_fresh_traces_of_recorded_families_have_their_shape(family, low, brief, wide):
    traced = [one for seed in (7, 8, 9) for one in fresh_traces.make(family, 0.95, seed)[0]]
    for wanted, holds in (
        (low, lambda one: one.job.priority is Priority.LOW),
        (brief, lambda one: one.duration_s < 60),
        (wide, lambda one: one.job.request.gpus >= 4),
    ):
        assert wanted[0] <= sum(map(holds, traced)) / len(traced) <= wanted[1]


@pytest.mark.parametrize("family", ["lab2g", "wide"])
def test_on_fresh_traces_nothing_is_lost_and_jobs_end_sooner_than_by_todays_habits(family):
    traced, gpus, vram = fresh_traces.make(family, 0.95, 7, jobs=300)
    ours = simulate(traced, gpus=gpus, vram=vram)
    assert sorted(run.job_id for run in ours if not run.preempted) == sorted(one.job.id for one in traced)
    found = score(traced, ours)
    for habit in (habits.Retry(), habits.Easy()):
        assert found.completion_s < score(traced, habits.run(traced, habit, gpus=gpus, vram=vram)).completion_s
