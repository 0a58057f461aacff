"""Real hosts with sick cards: quarantine and its end, and memory that nobody admits to (cases 18, 28, 32)."""

from __future__ import annotations

import os
import subprocess
import sys

import pynvml
import pytest
from waiting import wait_for

from jupyter_gpusched.core.model import GpuSchedError
from jupyter_gpusched.places import state_folder
from jupyter_gpusched.store import SqliteStore
from tests.gpus.test_nvml_hosts import G, card, real_host, training, until_card, until_phase

__all__ = ["real_host", "training"]


def status(client, index):
    return card(client, index)["health"]["status"]


def alert_of(client, kind):
    return next((alert for alert in client.alerts() if alert["kind"] == kind), None)


def events(*kinds):
    store = SqliteStore(state_folder() / "gpusched.sqlite")
    try:
        return [event for event in store.events(after=0, limit=1000) if event.kind in kinds]
    finally:
        store.close()


def test_a_lost_card_that_comes_back_gets_jobs_when_a_person_says_so_and_not_before(machine, start_host, command):
    """Case 28, over a restart of the host."""
    first = start_host(None)
    client = first.client()
    wait_for(client.gpus, "no sample")
    machine.set(1, lost=1)
    wait_for(lambda: status(client, 1) == "lost", "the card looks well")
    with pytest.raises(GpuSchedError, match="still lost"):
        client.release(1)
    lost = alert_of(client, "quarantined")
    assert (lost["gpu_index"], lost["severity"]) == (1, "error")
    first.kill()
    second = start_host(None).client()
    wait_for(lambda: status(second, 1) == "lost", "the next host does not know it")
    assert second.wait(second.submit(command("true", vram="1G")))["phase"] == "succeeded"
    machine.heal()
    wait_for(lambda: status(second, 1) == "quarantined", "it does not come back", deadline_s=100)
    cause = card(second, 1)["health"]["cause"]
    assert cause == "it was lost (the card fell off the bus; reset it or reboot the machine) and can be read again"
    both = second.submit(command("true", vram="1G", gpus=2))
    assert f"GPU 1 is quarantined ({cause})" in wait_for(lambda: second.job(both)["waiting"], "no reason")
    assert second.release(1, "reseated")["health"]["status"] == "ok"
    assert second.wait(both)["phase"] == "succeeded"
    assert [event.detail["by"] for event in events("quarantined", "returned")] == ["gpusched", second.job(both)["user"]]


def test_a_card_that_reports_a_fault_gets_no_new_jobs_and_keeps_those_it_has(machine, real_host, training, command):
    well = {"total": 24564 * machine.MIB, "reserved": 0, "remapunc": 0}
    machine.write(well, well)
    client = real_host()
    running = client.submit(training("--alloc", "1G", vram="2G"))
    view = until_phase(client, running, "running")
    index = view["gpus"][0]["index"]
    machine.set(index, remapfailed=1)
    wait_for(lambda: status(client, index) == "quarantined", "it is still used")
    assert "could not be replaced" in client.health()["causes"][0]
    other = client.wait(client.submit(command("true", vram="1G", preferred_gpus=[str(index)])))
    assert other["attempts"][0]["gpus"][0]["index"] != index
    assert client.job(running)["phase"] == "running"
    client.release(index, "it will do")
    again = client.wait(client.submit(command("true", vram="1G", preferred_gpus=[str(index)])))
    assert again["attempts"][0]["gpus"][0]["index"] == index


def test_memory_that_an_ended_job_never_gives_back_is_nobodys_and_an_alert(machine, training, command, start_host):
    """Case 18, third run."""
    machine.write({"total": 24564 * machine.MIB, "reserved": 0})
    client = start_host(None, "--GpuSched.release_timeout_s=2").client()
    first = client.submit(training("--alloc", "20G", vram="20.5G"))
    wait_for(lambda: (client.job(first)["used_vram_mib"] or 0) > 20 * G, "it does not grow")
    with machine.change() as state:
        (process,) = state.all("proc")
        pid = process.num("pid")
        machine_use = 20 * G * machine.MIB
        state.device(0)["base"] = str(machine_use)  # what is left stands for no process
        state.remove("proc")
    os.kill(pid, 9)
    second = client.submit(command("true", vram="20G"))
    until_phase(client, first, "failed")
    alert = wait_for(lambda: alert_of(client, "unattributed"), "no alert")
    assert "20.0G in use that no process admits to" in alert["message"]
    assert card(client)["unattributed_mib"] == 20 * G
    assert "20.0G unattributed, that no process admits to" in client.job(second)["waiting"]
    with machine.change() as state:
        state.device(0)["base"] = "0"
    assert client.wait(second)["phase"] == "succeeded"
    wait_for(lambda: alert_of(client, "unattributed") is None, "it does not resolve")
    assert [event.kind for event in events("alert_raised", "alert_resolved")] == ["alert_raised", "alert_resolved"]


def test_an_idle_kernel_is_named_with_its_notebook_and_pid(machine, start_host):
    with machine.change() as state:
        state.device(0)["util"] = "0"
    kernel = subprocess.Popen(
        [sys.executable, "-c", "input()", "-f", "/run/kernel-1b2c.json"],
        stdin=subprocess.PIPE,
        env=os.environ | {"JPY_SESSION_NAME": "/home/ann/train.ipynb"},
    )
    try:
        machine.hold(12 * G, pid=kernel.pid)
        client = start_host(None, "--GpuSched.idle_after_s=2").client()
        alert = wait_for(lambda: alert_of(client, "idle_kernel"), "no alert")
        assert alert["message"] == (
            f"The kernel of /home/ann/train.ipynb (pid {kernel.pid}) holds 12.0G of GPU 0, "
            "on which nothing has run for more than 2s."
        )
        (holder,) = card(client)["holders"]
        assert (holder["kind"], holder["notebook"]) == ("foreign", "/home/ann/train.ipynb")
    finally:
        kernel.kill()
        kernel.communicate()
    wait_for(lambda: alert_of(client, "idle_kernel") is None, "it does not resolve")


def test_in_exclusive_process_mode_two_jobs_take_two_cards(machine, real_host, training):
    for index in range(2):
        machine.set(index, computemode=pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
    client = real_host()
    until_card(client, lambda gpu: gpu["compute_mode"] == "exclusive_process", "another mode")
    jobs = [client.submit(training("--alloc", "1G", vram="2G")) for _ in range(3)]
    for job_id in jobs[:2]:
        until_phase(client, job_id, "running")
    assert sorted(client.job(job_id)["gpus"][0]["index"] for job_id in jobs[:2]) == [0, 1]
    assert "taken whole" in wait_for(lambda: client.job(jobs[2])["waiting"], "no reason")


def test_a_card_in_prohibited_mode_gets_nothing(machine, real_host, command):
    machine.set(0, computemode=pynvml.NVML_COMPUTEMODE_PROHIBITED)
    client = real_host()
    done = client.wait(client.submit(command("true", vram="1G", preferred_gpus=["0"])))
    assert done["attempts"][0]["gpus"][0]["index"] == 1
    both = client.submit(command("true", vram="1G", gpus=2))
    assert "compute mode `prohibited`" in wait_for(lambda: client.job(both)["waiting"], "no reason")


def test_a_broken_driver_is_one_alert_that_resolves_when_it_works_again(machine, real_host):
    client = real_host()
    until_card(client, lambda gpu: gpu["health"]["status"] == "ok", "no sample")
    machine.fail(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    alert = wait_for(lambda: (found := alert_of(client, "driver")) and found["id"] == "driver" and found, "no alert")
    assert "reboot, or reload" in alert["message"]
    machine.heal()
    wait_for(lambda: client.alerts() == [], "it does not resolve")
