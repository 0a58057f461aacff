"""How long a queue is without its host; ``tests/bench/recovery.py`` measures it with 1,000 queued jobs."""

from __future__ import annotations

import pytest
from bench.recovery import recover
from waiting import within


@pytest.mark.parametrize("waiting", [True, False], ids=["a server that waited", "a host started afterwards"])
def test_the_next_host_has_adopted_all_jobs_and_starts_the_next_one_within_2_s(waiting):
    found = recover(300, 20, waiting=waiting)
    assert found.answer_s < within(2)
    assert found.placement_s < within(2)
    assert found.running in {19, 20}
