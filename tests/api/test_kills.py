"""Random kills of hosts, supervisors and jobs: some of the rounds of ``tests/bench/kills.py``."""

from __future__ import annotations

import pytest
from bench.kills import one_round


@pytest.mark.parametrize("seed", range(20))
def test_every_acknowledged_job_ends_once_truly_and_runs_once_whatever_is_killed(seed, tmp_path):
    assert one_round(seed, tmp_path) == []
