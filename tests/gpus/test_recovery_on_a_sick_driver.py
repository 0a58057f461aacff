"""Who restarts a host because the driver hangs gets their jobs back at once, not when the driver is given up."""

from __future__ import annotations

import time

import pytest
from waiting import wait_for, within


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetMemoryInfo_v2"])
def test_running_jobs_are_adopted_within_2_s_while_the_driver_hangs(machine, start_host, command, call, tmp_path):
    first = start_host(None)
    client = first.client()
    gate = tmp_path / "gate"
    job_id = client.submit(command("sh", "-c", f"until test -e {gate}; do sleep 0.02; done; exit 5", vram="20G"))
    wait_for(lambda: client.job(job_id)["phase"] == "running", "the job does not start")
    first.kill()
    for card in (0, 1):
        machine.hang(card, fn=call)
    if call == "nvmlInit":
        with machine.change() as state:
            state.remove("delay")
            state.add("delay", fn=call, us=600_000_000)
    started = time.monotonic()
    client = start_host(None).client()
    assert client.job(job_id)["phase"] == "running"
    took_s = time.monotonic() - started
    gate.touch()
    assert client.wait(job_id, timeout=30)["exit_code"] == 5
    assert took_s < within(2.5)  # of which the start of a Python takes its part


def test_a_submission_to_a_host_that_still_looks_for_its_cards_waits_for_them(machine, start_host, command):
    first = start_host(None)
    running = first.client().submit(command("sleep", "60", vram="1G"))
    wait_for(lambda: first.client().job(running)["phase"] == "running", "the job does not start")
    first.kill()
    with machine.change() as state:
        state.add("delay", fn="nvmlInit", us=8_000_000)  # as a driver does that has much to do
    client = start_host(None).client()
    assert client.gpus() == []
    assert client.wait(client.submit(command("true", vram="2G")), timeout=90)["phase"] == "succeeded"
    assert client.cancel(running, grace="0s")["phase"] in {"stopping", "cancelled"}
