"""For how long a job's cards did nothing while it ran: only what samples show, on each of its cards."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from jupyter_gpusched.core.idle import idled
from jupyter_gpusched.core.model import Attempt, Phase
from jupyter_gpusched.core.report import tallies
from tests.core.conftest import SETTINGS, G, card, grant, job


def seen(at, *loads):
    """The cards at one moment, by how busy they are."""
    cards = [card(number, at=float(at), utilization_pct=load) for number, load in enumerate(loads)]
    return {gpu.uuid: gpu for gpu in cards}


def running(*, cards=1, since=0.0):
    made = job(vram=4 * G)
    grants = tuple(grant(made, number, since=since) for number in range(cards))
    attempt = Attempt(1, grants, started_at=since)
    return replace(made, phase=Phase.RUNNING, attempts=(attempt,), grants=grants)


def after(looks, watched):
    for before, now in pairwise(looks):
        watched = next(iter(idled([watched], before, now, SETTINGS)), watched)
    return watched.watched_gpu_s, watched.idle_gpu_s


def test_idle_time_is_that_of_samples_which_show_nothing():
    assert after([seen(0, 0.0), seen(10, 0.0), seen(20, 90.0), seen(30, 1.0)], running()) == (30.0, 20.0)


def test_each_card_counts_by_itself():
    assert after([seen(0, 0.0, 0.0), seen(10, 0.0, 50.0)], running(cards=2)) == (20.0, 10.0)


@pytest.mark.parametrize("load", [None, 0.0])
def test_what_a_card_does_not_tell_is_neither_busy_nor_idle(load):
    looks = [seen(0, load), seen(10, load)]
    looks[1] = {uuid: replace(gpu, health="ok" if load is None else "unknown") for uuid, gpu in looks[1].items()}
    assert after(looks, running()) == (0.0, 0.0)


def test_time_before_the_start_and_long_gaps_are_not_the_jobs():
    assert after([seen(0, 0.0), seen(10, 0.0)], running(since=7.0)) == (3.0, 3.0)
    assert after([seen(0, 0.0), seen(1000, 0.0)], running()) == (0.0, 0.0)


def test_a_job_that_waits_has_none():
    waiting = replace(running(), phase=Phase.QUEUED)
    assert idled([waiting], seen(0, 0.0), seen(10, 0.0), SETTINGS) == []


def test_the_report_adds_it_up():
    jobs = [replace(running(), watched_gpu_s=30.0, idle_gpu_s=20.0), replace(running(), watched_gpu_s=10.0)]
    (tally,) = tallies(jobs, 0.0).values()
    assert (tally.watched_gpu_s, tally.idle_gpu_s) == (40.0, 20.0)
