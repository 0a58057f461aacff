"""How often the driver is asked: once per interval, whoever looks, submits and ends; sooner only for one who waits.

Counted in calls of the driver's library. With an interval of an hour every further call has a reason of its own.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest
from rest import Rest
from waiting import DEADLINE_S, wait_for

HOURLY = ("--GpuSched.sample_interval_s=3600", "--GpuSched.stale_after_s=7200")
VIEWERS = 30
LOOKS = 8


@pytest.fixture
def calls(machine, tmp_path):
    """The number of calls so far; ``calls.path`` is told to the host."""

    class Calls:
        path = tmp_path / "calls"

        def __call__(self) -> int:
            return self.path.stat().st_size if self.path.exists() else 0

    return Calls()


@pytest.fixture
def hourly(start_host, calls):
    """A host that has just looked at its two cards."""
    host = start_host(None, *HOURLY, environ={"FAKE_NVML_CALLS": str(calls.path)})
    client = host.client()
    wait_for(lambda: len(client.gpus()) == 2, "the cards are not seen")
    return client


def test_neither_viewers_nor_submissions_nor_ends_that_nobody_waits_for_cost_a_call(hourly, calls, command):
    before = calls()
    assert before
    with ExitStack() as open_ones:
        socket = hourly.health()["socket"]
        for _ in range(VIEWERS):
            stream = open_ones.enter_context(Rest(socket).events())
            assert next(iter(stream))["type"] == "snapshot"
        looking = [threading.Thread(target=look, args=(socket,)) for _ in range(VIEWERS)]
        for thread in looking:
            thread.start()
        jobs = [hourly.submit(command("true", vram="100M")) for _ in range(10)]
        assert {hourly.wait(job)["phase"] for job in jobs} == {"succeeded"}
        for thread in looking:
            thread.join(DEADLINE_S)
        assert calls() == before


def look(socket: str) -> None:
    rest = Rest(socket)
    for path in ("gpus", "jobs", "alerts", "gpus/history", "health"):
        assert rest("GET", path).status == 200
    rest.close()


def test_memory_that_is_freed_is_looked_for_at_once_when_a_job_waits_for_it(hourly, calls, command):
    first = hourly.submit(command("sleep", "600", gpus=2, vram="20G"))
    wait_for(lambda: hourly.job(first)["phase"] == "running", "it does not start")
    second = hourly.submit(command("true", gpus=2, vram="20G"))
    before = calls()
    hourly.cancel(first, grace="0s")
    assert hourly.wait(second)["phase"] == "succeeded"
    one_look = calls() - before
    assert one_look > 0
    third = hourly.submit(command("true", gpus=2, vram="20G"))  # what the second had is not seen to be free yet
    assert hourly.wait(third)["phase"] == "succeeded"
    assert calls() - before <= 3 * one_look


def test_the_interval_is_kept_whatever_happens(start_host, calls, command):
    host = start_host(None, "--GpuSched.sample_interval_s=0.5", environ={"FAKE_NVML_CALLS": str(calls.path)})
    client, looks = host.client(), set()
    wait_for(lambda: len(client.gpus()) == 2, "the cards are not seen")
    with Rest(client.health()["socket"]).events() as events:
        for frame in events:
            if cards := frame.get("gpus"):
                looks.add(cards[0]["sampled_at"])
                client.submit(command("true", vram="100M"))
            if len(looks) == LOOKS:
                break
    # Over all of them: one look that the machine brought late stands closer to the next.
    took = max(looks) - min(looks)
    assert took > (LOOKS - 2) * 0.5, sorted(looks)
