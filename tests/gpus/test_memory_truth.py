"""Real hosts on the fake driver: overuse, out of memory, histories and learned amounts (cases 18, 22, 34, 36, 37)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from waiting import wait_for

from jupyter_gpusched.core.model import BadRequest
from tests.gpus.test_nvml_hosts import G, card, training, until_card, until_phase

__all__ = ["training"]

OOM = (
    "echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of "
    "23.99 GiB of which 2.50 GiB is free.'; exit 1"
)


@pytest.fixture
def one_card(machine, start_host):
    """A host on one card of 24564 MiB."""

    def start(*arguments):
        machine.write({"total": 24564 * machine.MIB, "reserved": 0})
        return start_host(None, *arguments).client()

    return start


def told(client, job_id, kind):
    return [event for event in client.job_events(job_id) if event["kind"] == kind]


# --- case 36 ---------------------------------------------------------------------------


def overrun(client, training):
    """A asks for 4G and takes 9G, B has 10G beside it; then C asks for 8G."""
    first = client.submit(
        training("--alloc", "2G", "--grow", "7G", "--every", "1", "--max", "9G", vram="4G", grace="1s")
    )
    second = client.submit(training("--alloc", "8G", vram="10G", grace="1s"))
    until_phase(client, second, "running")
    wait_for(lambda: told(client, first, "overuse"), "the overrun is not told")
    return first, second, client.submit(training("--alloc", "4G", vram="8G", grace="1s"))


def test_an_overrun_is_marked_told_and_named_to_those_who_wait(one_card, training):
    client = one_card()
    first, second, third = overrun(client, training)
    view = client.job(first)
    above = 9 * G + 420 - 4 * G
    assert (view["overuse_mib"], view["peak_vram_mib"], view["phase"]) == (above, 9 * G + 420, "running")
    assert view["advice"] == ("uses 9.4G on GPU 0, 5.4G more than the 4.0G it asked for: ask for 10.5G next time")
    assert client.job(third)["waiting"] == (
        "needs 8.0G on 1 GPU; best is GPU 0: 4.3G free, 19.4G promised to 2 jobs "
        "(one took 9.4G where it had asked for 4.0G)"
    )
    (event,) = told(client, first, "overuse")
    assert event["detail"]["promised_mib"] == 4 * G
    assert client.job(second)["overuse_mib"] is None


def test_with_kill_the_overrunner_ends_and_its_neighbour_does_not(one_card, training):
    client = one_card("--GpuSched.overuse=kill")
    first, second, third = overrun(client, training)
    view = until_phase(client, first, "failed")
    assert (view["reason"], view["peak_vram_mib"]) == ("vram_exceeded", 9 * G + 420)
    assert view["message"].endswith("where it had asked for 4.0G; submit it with --vram 10.5G")
    until_phase(client, third, "running")
    assert client.job(second)["phase"] == "running"


# --- case 37 ---------------------------------------------------------------------------


def test_out_of_memory_is_tried_again_only_when_there_is_more_and_never_for_ever(
    machine, start_host, command, tmp_path
):
    machine.write({"total": 24564 * machine.MIB, "reserved": 0})
    host = start_host(None)
    client = host.client()
    machine.hold(20 * G)
    until_card(client, lambda gpu: gpu["foreign_mib"] == 20 * G, "the stranger is not seen")
    hungry = client.submit(command("sh", "-c", OOM, vram="2G", retries=3))
    wait_for(lambda: client.job(hungry)["attempts"][:1] and client.job(hungry)["phase"] == "queued", "it did not fail")
    others = [client.submit(command("true", vram="2G")) for _ in range(3)]
    for job_id in others:
        assert client.wait(job_id)["phase"] == "succeeded"
    wait_for(lambda: "it ran out of memory on GPU 0" in (client.job(hungry)["waiting"] or ""), "it does not say why")
    view = client.job(hungry)
    assert (len(view["attempts"]), view["attempts"][0]["reason"]) == (1, "cuda_oom")
    assert "asked for 8.00 GiB" in view["attempts"][0]["message"]
    rows = client.timeline(hungry, attempt=1)
    assert {"kind": "foreign", "user": rows[-1]["holders"][-1]["user"], "job_id": None, "vram_mib": 20 * G,
            "promised_mib": None} in rows[-1]["holders"]  # fmt: skip
    assert rows[-1]["free_mib"] == 24564 - 20 * G
    kept = tmp_path / "state" / "jobs" / hungry / "attempt-1" / "timeline.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    show = [sys.executable, "-m", "jupyter_gpusched.cli", "show", hungry, "--explain"]
    printed = subprocess.run(show, capture_output=True, text=True, check=True).stdout
    assert "GPU 0 before attempt 1 ran out of memory:" in printed
    assert "4.0G free" in printed
    assert "20.0G" in printed
    host.kill()
    client = start_host(None).client()
    assert len(client.job(hungry)["attempts"]) == 1
    machine.free()
    view = until_phase(client, hungry, "failed")
    assert 2 <= len(view["attempts"]) <= 4
    assert view["attempts"][1]["started_at"] - view["attempts"][0]["ended_at"] >= 5
    assert view["message"].endswith("since no GPU here can have more available than there was")


def test_with_on_oom_retry_a_job_gets_what_it_needs(one_card, machine, command):
    client = one_card()
    line = " ".join(machine.job("--alloc", "5G", "--hold", "0")) + " --limit ${GPUSCHED_VRAM_MIB}M"
    view = client.wait(client.submit(command(vram="4G", on_oom="retry") | {"argv": line}))
    assert view["phase"] == "succeeded", client.log(view["id"])
    assert [attempt["reason"] for attempt in view["attempts"]] == ["cuda_oom", "exit"]
    assert view["vram_mib"] >= 5 * G + 420
    assert "it is tried again with" in view["attempts"][0]["message"]


def test_a_wish_that_is_none_of_the_known_is_refused(client, command):
    with pytest.raises(BadRequest, match="on_oom"):
        client.submit(command("true", on_oom="pray"))


# --- what is kept ----------------------------------------------------------------------


def test_what_a_job_used_over_its_life_outlives_the_host(machine, start_host, training):
    machine.write({"total": 24564 * machine.MIB, "reserved": 0})
    host = start_host(None)
    client = host.client()
    job_id = client.submit(training("--alloc", "1G", "--grow", "1G", "--every", "1.5", "--max", "2G", vram="4G"))
    wait_for(lambda: (client.job(job_id)["used_vram_mib"] or 0) > 2 * G, "it does not grow")
    before = client.memory(job_id)
    assert {point["used_mib"] for point in before} >= {G + 420, 2 * G + 420}
    history = client.gpu_history()
    assert {point["uuid"] for point in history} == {card(client)["uuid"]}
    assert history[-1]["used_mib"] == 2 * G + 420
    assert client.gpu_history(since=history[-1]["at"] + 0.01)[:1] != history[:1]
    assert host.terminate() == 0
    client = start_host(None).client()
    client.cancel(job_id, grace="1s")
    until_phase(client, job_id, "cancelled")
    after = client.memory(job_id)
    assert after[: len(before)] == before
    kinds = [event["kind"] for event in client.job_events(job_id)]
    assert [kind for kind in kinds if kind != "measured"][:3] == ["submitted", "placed", "started"]


# --- auto ------------------------------------------------------------------------------


def test_auto_is_what_earlier_runs_of_the_same_were_seen_to_use(one_card, machine, command):
    client = one_card()
    words = machine.job("--alloc", "2G", "--hold", "2.5")
    auto = command(*words, vram="auto", name="train")
    with pytest.raises(BadRequest, match="no earlier run of 'train' has a measured peak") as refused:
        client.submit(auto)
    assert (refused.value.field, "Give --vram once" in refused.value.hint) == ("vram", True)
    client.wait(client.submit(command(*words, vram="8G", name="first")))
    view = client.job(client.submit(auto))
    assert view["vram_mib"] == 3072  # (2048 + 420) * 1.1 + 256 in steps of 256
    assert view["advice"] == (
        "vram auto: 3072 MiB (3.0G), from the peak of the last run of 'train', 2.4G, with a tenth and 256M on top"
    )
    assert client.spec(view["id"])["vram"] == "auto"
    other = client.submit(command("true", vram="auto", name="first"))
    assert client.job(other)["vram_mib"] == 3072


# --- cases 18, 22 and 34 -----------------------------------------------------------------


def ended_with_memory_left(client, machine, training):
    first = client.submit(training("--alloc", "20G", vram="20.5G"))
    wait_for(lambda: client.job(first)["used_vram_mib"] == 20 * G + 420, "it is not measured")
    with machine.change() as state:
        (process,) = state.all("proc")
        process["sticky"] = "1"
    second = client.submit(training("--alloc", "20G", vram="20.5G"))
    os.kill(process.num("pid"), signal.SIGKILL)
    until_phase(client, first, "failed")
    return second


def test_memory_that_never_leaves_the_card_is_named_after_its_time(one_card, machine, training):
    """Case 18, third run."""
    client = one_card("--GpuSched.release_timeout_s=2")
    second = ended_with_memory_left(client, machine, training)
    assert "not released yet" in client.job(second)["waiting"]
    wait_for(lambda: "not released" not in client.job(second)["waiting"], "it is never given up", deadline_s=20)
    assert "20.4G" in client.job(second)["waiting"]
    assert client.job(second)["phase"] == "queued"


def test_when_memory_drops_at_once_the_next_job_starts_at_once(one_card, training):
    """Case 18, second run."""
    client = one_card()
    first = client.submit(training("--alloc", "20G", hold="2", vram="20.5G"))
    second = client.submit(training("--alloc", "1G", hold="0", vram="20.5G"))
    ended, begun = client.wait(first), client.wait(second)
    assert begun["started_at"] - ended["ended_at"] < 5  # 2 s on a machine that has nothing else to do


def test_a_job_that_is_killed_for_host_memory_fails_soon_and_says_what_is_likely(client, command):
    """Case 22."""
    source = "import os, signal, time; print('x', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    view = client.wait(client.submit(command(sys.executable, "-c", source)))
    assert (view["phase"], view["reason"], view["signal"], len(view["attempts"])) == ("failed", "signal_9", 9, 1)
    assert "ran out of host memory" in view["message"]
    assert "it had used at most" in view["message"]
    assert view["ended_at"] - view["started_at"] < 5
    wait_for(lambda: not card(client)["holders"], "its share is not freed")


def test_jobs_that_have_not_allocated_yet_are_packed_by_their_promises(machine, start_host, command, tmp_path):
    """Case 34."""
    client = start_host(None).client()
    until = f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done"
    jobs = client.submit_many([command("sh", "-c", until, vram="5G") for _ in range(20)])
    wait_for(lambda: len(client.jobs(phase="running")) == 8, "eight do not run")
    for gpu in client.gpus():
        assert len(gpu["holders"]) == 4
    (tmp_path / "go").touch()
    assert {client.wait(job_id)["phase"] for job_id in jobs} == {"succeeded"}
