"""Real hosts on the fake driver, with jobs that take memory: cases 2, 18, 26 to 31 and 35."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pynvml
import pytest
from fake_nvml import fakegpu
from waiting import wait_for

from jupyter_gpusched.core.model import GpuSchedError
from jupyter_gpusched.launch.attempt import read_claim

G = 1024


@pytest.fixture
def real_host(machine, start_host):
    """A host on the fake machine as the test left it, and its client."""

    def start(**environ):
        return start_host(None, environ=environ).client()

    return start


@pytest.fixture
def training(machine, command):
    """A job that takes memory of its card and keeps it."""

    def make(*arguments, hold="600", **fields):
        return command(*machine.job("--hold", hold, *arguments), **fields)

    return make


def until_phase(client, job_id, *phases):
    return wait_for(
        lambda: view if (view := client.job(job_id))["phase"] in phases else None,
        f"the job is {client.job(job_id)['phase']}, not {phases}: {client.log(job_id)!r}",
    )


def card(client, index=0):
    return next(gpu for gpu in client.gpus() if gpu["index"] == index)


def until_card(client, what, why, index=0):
    return wait_for(lambda: gpu if what(gpu := card(client, index)) else None, why)


# --- real memory -----------------------------------------------------------------------


def test_a_host_of_ones_own_says_when_it_is_not_alone_with_its_cards(start_host, machine):
    host = start_host(None, environ={"container": "docker"})
    wait_for(host.client().gpus, "no card is seen")
    assert host.client().health()["unseen"] == "containers"
    host.kill()
    assert start_host("1x8G", environ={"container": "docker"}).client().health()["unseen"] is None, "no real card"


def test_a_job_is_measured_and_its_memory_is_free_for_the_next_one_at_once(real_host, training):
    client = real_host()
    first = client.submit(training("--alloc", "2G", vram="3G"))
    used = 2 * G + 420
    seen = until_card(client, lambda gpu: gpu["used_mib"] == used and gpu["holders"], "the job is not measured")
    (holder,) = seen["holders"]
    assert (holder["vram_mib"], holder["estimated"], holder["promised_mib"]) == (used, False, 3 * G)
    assert (seen["foreign_mib"], seen["promised_mib"]) == (0, 3 * G)
    assert seen["available_mib"] == 24564 - 256 - 3 * G
    wait_for(lambda: client.job(first)["used_vram_mib"] == used, "the job does not know its use")
    client.cancel(first, grace="1s")
    after = until_card(client, lambda gpu: not gpu["holders"], "the grant stays")
    assert after["used_mib"] == 0
    assert client.job(first)["peak_vram_mib"] == used


def test_a_job_that_runs_out_of_memory_says_so(real_host, training):
    client = real_host()
    view = client.wait(client.submit(training("--alloc", "40G", vram="4G")))
    assert (view["phase"], view["reason"]) == ("failed", "cuda_oom")


def test_what_a_job_takes_above_its_promise_is_not_given_to_others(real_host, training, machine):
    machine.write({"total": 24564 * machine.MIB, "reserved": 0})
    client = real_host()
    client.submit(training("--alloc", "10G", vram="4G"))
    until_card(client, lambda gpu: (gpu["used_mib"] or 0) > 10 * G, "it does not grow")
    second = client.submit(training("--alloc", "1G", vram="18G"))
    waiting = wait_for(lambda: client.job(second)["waiting"], "no reason")
    assert "promised to 1 job" in waiting
    assert card(client)["available_mib"] == 24564 - 256 - 10 * G - 420


def test_a_job_above_what_any_card_can_hold_is_refused_with_the_largest_amount(real_host, command):
    """Case 33 on real cards."""
    client = real_host()
    with pytest.raises(GpuSchedError, match="can ever give") as refusal:
        client.submit(command("true", vram="24G"))
    assert "24308" in str(refusal.value.hint)


def test_an_ended_jobs_share_stays_until_the_card_shows_it_freed(real_host, training, machine):
    """Case 18."""
    machine.write({"total": 24564 * machine.MIB, "reserved": 0})
    client = real_host()
    first = client.submit(training("--alloc", "20G", vram="20.5G"))
    until_card(client, lambda gpu: (gpu["used_mib"] or 0) > 20 * G, "it does not grow")
    wait_for(lambda: client.job(first)["used_vram_mib"], "it is not measured")
    with machine.change() as state:
        (process,) = state.all("proc")
        process["sticky"] = "1"
    os.kill(process.num("pid"), signal.SIGKILL)
    second = client.submit(training("--alloc", "20G", vram="20.5G"))
    until_phase(client, first, "failed")
    held = until_card(client, lambda gpu: gpu["holders"] and gpu["holders"][0]["state"] == "releasing", "not releasing")
    assert held["holders"][0]["vram_mib"] == 20 * G + 420
    assert "not released yet" in client.job(second)["waiting"]
    with machine.change() as state:
        state.remove("proc")
    until_phase(client, second, "running")


# --- case 2 ----------------------------------------------------------------------------


def test_mig_instances_are_given_out_one_by_one_and_never_two_to_a_job(real_host, training, command, machine):
    machine.write({"mig": 1, "uuid": "GPU-p"})
    with machine.change() as state:
        for number, size in enumerate((20096, 9856)):
            state.add("mig", gpu=0, index=number, gi=7 + number, ci=0, uuid=f"MIG-{'ab'[number]}", reserved=0,
                      total=size * machine.MIB)  # fmt: skip
    client = real_host()
    first, second = (client.submit(training("--alloc", "7G", vram="8G")) for _ in range(2))
    third = client.submit(command("sh", "-c", "echo $CUDA_VISIBLE_DEVICES", vram="15G"))
    for job_id in (first, second):
        until_phase(client, job_id, "running")
    used = {view["gpus"][0]["uuid"] for view in map(client.job, (first, second))}
    assert used == {"MIG-a", "MIG-b"}
    assert client.job(third)["phase"] == "queued"
    with pytest.raises(GpuSchedError, match="MIG"):
        client.submit(command("true", gpus=2, vram="1G"))
    held = next(job_id for job_id in (first, second) if client.job(job_id)["gpus"][0]["uuid"] == "MIG-a")
    client.cancel(held, grace="1s")
    assert client.wait(third)["phase"] == "succeeded"
    assert client.log(third) == b"MIG-a\n"
    parent = next(gpu for gpu in client.gpus() if gpu["uuid"] == "GPU-p")
    assert (parent["available_mib"], parent["holders"]) == (None, [])


# --- case 26 ---------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["no driver", "no card", "mismatch", "no permission"])
def test_without_a_card_the_host_starts_says_why_and_runs_what_needs_none(real_host, command, machine, trouble):
    if trouble == "no driver":
        machine.path.unlink()
    elif trouble == "no card":
        machine.write()
    else:
        codes = {
            "mismatch": pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
            "no permission": pynvml.NVML_ERROR_NO_PERMISSION,
        }
        machine.fail(codes[trouble])
    client = real_host()
    health = client.health()
    assert health["gpu_cause"].endswith(".")
    assert health["status"] == ("ok" if trouble == "no card" else "degraded")
    with pytest.raises(GpuSchedError) as refusal:
        client.submit(command("true"))
    assert health["gpu_cause"] in str(refusal.value)
    without = command("true", gpus=0)
    del without["vram"]
    assert client.wait(client.submit(without))["phase"] == "succeeded"


# --- case 27 ---------------------------------------------------------------------------


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, pynvml.NVML_ERROR_UNKNOWN])
def test_while_the_driver_is_broken_nothing_starts_and_nothing_fails(real_host, training, command, machine, code):
    client = real_host()
    running = client.submit(training("--alloc", "1G", vram="2G"))
    until_card(client, lambda gpu: gpu["used_mib"] == G + 420, "the job takes no memory")
    machine.fail(code)
    wait_for(lambda: client.health()["status"] == "degraded", "health does not show it")
    used = card(client)["used_mib"]
    queued = [client.submit(command("true", vram="1G")) for _ in range(2)]
    waiting = wait_for(lambda: client.job(queued[0])["waiting"], "no reason")
    assert "nothing starts there meanwhile" in waiting
    stale = until_card(client, lambda gpu: gpu["health"]["status"] == "unknown", "the card looks well")
    assert (stale["used_mib"], stale["sampled_at"] < time.time()) == (used, True)
    assert client.job(running)["phase"] == "running"
    assert {client.job(job_id)["phase"] for job_id in queued} == {"queued"}
    machine.heal()
    for job_id in queued:
        view = client.wait(job_id)
        assert (view["phase"], len(view["attempts"])) == ("succeeded", 1)
    assert client.job(running)["phase"] == "running"
    wait_for(lambda: client.health()["status"] == "ok", "it stays degraded")


# --- case 28 ---------------------------------------------------------------------------


def test_a_card_that_falls_off_the_bus_takes_only_its_own_job_along(real_host, training, machine, start_host):
    size = {"total": 24564 * machine.MIB, "reserved": 0}
    machine.write(size, size, size)
    client = real_host()
    jobs = [client.submit(training("--alloc", "1G", vram="20G", grace="1s")) for _ in range(2)]
    retried = client.submit(training("--alloc", "1G", vram="20G", grace="1s", retries=1))
    for job_id in [*jobs, retried]:
        until_phase(client, job_id, "running")
    at = {client.job(job_id)["gpus"][0]["index"]: job_id for job_id in [*jobs, retried]}
    gone = next(index for index, job_id in at.items() if job_id == jobs[0])
    machine.set(gone, lost=1)
    view = until_phase(client, jobs[0], "failed")
    assert view["reason"] == "gpu_lost"
    assert f"GPU {gone}" in view["message"]
    assert card(client, gone)["health"]["status"] == "lost"
    assert any("fell off the bus" in cause for cause in client.health()["causes"])
    other = next(index for index, job_id in at.items() if job_id == retried)
    machine.set(other, lost=1)
    view = until_phase(client, retried, "queued")
    assert view["attempts"][0]["reason"] == "gpu_lost"
    assert client.job(jobs[1])["phase"] == "running"
    client.cancel(jobs[1], grace="1s")
    until_phase(client, retried, "running")
    assert client.job(retried)["gpus"][0]["index"] not in {gone, other}


# --- case 30 ---------------------------------------------------------------------------


def test_pids_of_elsewhere_get_no_name_no_job_and_no_signal(real_host, training, machine):
    client = real_host()
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        job_id = client.submit(training("--alloc", "1G", vram="3G", grace="0.2s"))
        until_card(client, lambda gpu: gpu["used_mib"] == G + 420, "the job takes no memory")
        with machine.change() as state:  # the driver calls the job by its number outside, and by the bystander's
            for record in state.all("proc"):
                record["show"] = "4171234"
        machine.hold(500, pid=bystander.pid)
        seen = until_card(client, lambda gpu: len(gpu["holders"]) == 3, "the processes are not shown")
        elsewhere = next(holder for holder in seen["holders"] if holder["pid"] == 4171234)
        assert (elsewhere["kind"], elsewhere["user"], elsewhere["vram_mib"]) == ("foreign", None, G + 420)
        client.cancel(job_id)
        until_phase(client, job_id, "cancelled")
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.communicate()


def test_a_job_whose_pids_the_driver_does_not_know_is_shown_by_its_promise(real_host, training, machine):
    with machine.change() as state:
        state.add("proc", gpu=0, pid=4171000, bytes=2**20, sticky=1)
        state.add("proc", gpu=1, pid=4171000, bytes=2**20, sticky=1)
    client = real_host()
    client.submit(training("--alloc", "1G", "--context", "1M", vram="3G"))
    wait_for(lambda: len(fakegpu.read(machine.path).all("proc")) > 2, "the job takes no memory")
    with machine.change() as state:
        for record in state.all("proc"):
            record["show"] = "4171000"
    seen = until_card(
        client,
        lambda gpu: any(holder["kind"] == "job" and holder["estimated"] for holder in gpu["holders"]),
        "the use is not marked as estimated",
    )
    mine = next(holder for holder in seen["holders"] if holder["kind"] == "job")
    assert mine["vram_mib"] == mine["promised_mib"] == 3 * G


# --- case 31 ---------------------------------------------------------------------------


def test_a_driver_call_that_hangs_does_not_hold_up_the_host(real_host, command, machine):
    client = real_host()
    until_card(client, lambda gpu: gpu["used_mib"] == 0, "no sample")
    machine.hang(0)
    stuck = until_card(client, lambda gpu: gpu["health"]["status"] == "unknown", "the card looks well")
    with ThreadPoolExecutor(8) as pool:
        ages = list(pool.map(lambda _n: time.time() - card(client)["sampled_at"], range(50)))
    assert min(ages) > 0
    assert card(client)["sampled_at"] == stuck["sampled_at"]
    view = client.wait(client.submit(command("true", vram="1G")))
    assert (view["phase"], view["attempts"][0]["gpus"][0]["index"]) == ("succeeded", 1)


def test_fifty_viewers_cost_the_driver_no_more_samples_than_one(real_host):
    client = real_host()
    until_card(client, lambda gpu: gpu["health"]["status"] == "ok", "no sample")
    begun = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        samples = set(pool.map(lambda _n: card(client)["sampled_at"], range(400)))
    assert len(samples) <= (time.monotonic() - begun) / 1.0 + 2, "one a second, and those under way at both ends"


def test_a_host_that_ends_while_a_call_hangs_ends_at_once_and_leaves_nothing(machine, start_host):
    host = start_host(None)
    machine.hang(0)
    machine.hang(1)
    client = host.client()
    until_card(client, lambda gpu: gpu["health"]["status"] == "unknown", "the card looks well")
    assert host.terminate() == 0


# --- case 35 ---------------------------------------------------------------------------


def test_use_outside_the_queue_is_shown_with_its_owner_and_makes_jobs_wait_in_words(real_host, training, machine):
    machine.hold(22 * G, card=0)
    machine.hold(12 * G, card=1)
    client = real_host()
    seen = until_card(client, lambda gpu: gpu["foreign_mib"] == 22 * G, "the stranger is not seen")
    (holder,) = seen["holders"]
    assert (holder["kind"], holder["pid"], holder["vram_mib"]) == ("foreign", os.getpid(), 22 * G)
    assert holder["user"]
    assert holder["since"] <= time.time()
    job_id = client.submit(training("--alloc", "1G", vram="20G"))
    waiting = wait_for(lambda: client.job(job_id)["waiting"], "no reason")
    assert waiting == "needs 20.0G on 1 GPU; best is GPU 1: 11.7G free, 12.0G in use outside the queue"
    with machine.change() as state:
        state.remove("proc", gpu=1)
    until_phase(client, job_id, "running")
    assert client.job(job_id)["gpus"][0]["index"] == 1


# --- what has escaped ------------------------------------------------------------------

ESCAPES = """
import subprocess, sys, time
driver = ["FAKE_NVML_STATE=" + sys.argv[1], "LD_LIBRARY_PATH=" + sys.argv[2]]
leave = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:], start_new_session=True).pid, flush=True)"
subprocess.run(["env", "-i", *driver, sys.executable, "-c", leave, *sys.argv[3:]])
time.sleep(600)
"""


def test_what_escapes_without_a_cgroup_is_named_as_foreign_use_and_not_signalled(machine, start_host, command):
    """A child without environment, its parents gone, its supervisor killed: its use of the card tells of it."""
    client = start_host(None, "--GpuSched.cgroups=False", "--GpuSched.release_timeout_s=1").client()
    driver = [os.environ["FAKE_NVML_STATE"], os.environ["LD_LIBRARY_PATH"]]
    job_id = client.submit(
        command(sys.executable, "-c", ESCAPES, *driver, *machine.job("--alloc", "3G", "--hold", "600"), vram="8G")
    )
    pid = int(wait_for(lambda: client.log(job_id), "nothing escapes"))
    try:
        until_card(client, lambda gpu: (gpu["used_mib"] or 0) > 3 * G, "it takes no memory")
        os.kill(read_claim(Path(os.environ["GPUSCHED_HOME"], "jobs", job_id), 1)["pid"], signal.SIGKILL)
        assert client.wait(job_id)["phase"] == "lost"
        shown = until_card(
            client,
            lambda gpu: [h for h in gpu["holders"] if h["kind"] == "foreign"],
            "nobody is named for the memory",
        )
        foreign = [holder for holder in shown["holders"] if holder["kind"] == "foreign"]
        assert [(holder["pid"], holder["user"]) for holder in foreign] == [(pid, "root")]
        assert foreign[0]["vram_mib"] > 3 * G
        os.kill(pid, 0)  # it lives
    finally:
        os.kill(pid, signal.SIGKILL)
