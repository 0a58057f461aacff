"""Random kills of two hosts on one state folder: some of the rounds of ``tests/bench/kills.py``."""

from __future__ import annotations

import pytest
from bench.kills import one_round


@pytest.mark.parametrize("seed", range(20))
def test_every_acknowledged_job_ends_once_and_runs_once_whatever_host_is_killed(seed, tmp_path):
    assert one_round(seed, tmp_path) == []
