"""Who hosts: one at a time, hand-over, take-over, and nothing lost or run twice in between."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from waiting import wait_for

from jupyter_gpusched.client import Client
from jupyter_gpusched.core.model import GpuSchedError
from jupyter_gpusched.places import host_alive, read_host_record


def test_a_second_serve_ends_with_2_and_names_pid_and_socket(host, start_host):
    second = start_host(wait=False)
    assert second.process.wait(timeout=30) == 2
    said = second.log.read_text()
    assert str(host.pid) in said
    assert host.client().health()["socket"] in said


def test_an_auto_started_daemon_gives_way_quietly_to_any_other_host(host, start_host):
    assert start_host("2x24564M", "--auto", wait=False).process.wait(timeout=30) == 0
    assert host.client().health()["pid"] == host.pid


def test_serve_takes_the_place_of_an_auto_started_daemon_and_its_jobs_go_on(start_host, command, tmp_path):
    daemon = start_host("2x24564M", "--auto")
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    job_id = daemon.client().submit(command("sh", "-c", f"cat {gate}; exit 5"))
    wait_for(lambda: daemon.client().job(job_id)["phase"] == "running", "the job does not start")
    serve = start_host()
    assert daemon.process.wait(timeout=30) == 0
    assert serve.client().job(job_id)["phase"] == "running"
    gate.write_text("go")
    assert serve.client().wait(job_id)["exit_code"] == 5


def test_an_auto_started_daemon_ends_when_idle_and_its_records_stay(start_host, command):
    daemon = start_host("1x8G", "--auto", environ={"GPUSCHED_IDLE_EXIT": "0.5"})
    job_id = daemon.client().submit(command("true"))
    daemon.client().wait(job_id)
    assert daemon.process.wait(timeout=30) == 0
    assert read_host_record(Path(os.environ["GPUSCHED_HOME"])) is None
    assert start_host("1x8G").client().job(job_id)["phase"] == "succeeded"


def test_a_client_starts_a_host_when_there_is_none_and_it_ends_by_itself(monkeypatch, command):
    monkeypatch.setenv("GPUSCHED_SIMULATE", "1x8G")
    monkeypatch.setenv("GPUSCHED_IDLE_EXIT", "0.5")
    client = Client.connect(start=True)
    pid = client.health()["pid"]
    assert client.wait(client.submit(command("true")))["phase"] == "succeeded"
    client.close()
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text(), "it stays")


def test_two_clients_that_start_a_host_at_once_end_up_with_the_same(monkeypatch):
    monkeypatch.setenv("GPUSCHED_SIMULATE", "1x8G")
    with ThreadPoolExecutor(4) as pool:
        pids = set(pool.map(lambda _n: Client.connect(start=True).health()["pid"], range(4)))
    assert len(pids) == 1


def test_sigterm_stops_a_host_and_takes_back_its_announcement(host):
    assert host.terminate() == 0
    assert read_host_record(Path(os.environ["GPUSCHED_HOME"])) is None


@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_the_end_of_a_host_with_three_jobs_loses_nothing_and_runs_nothing_twice(start_host, command, tmp_path, how):
    """Case 23: one ends during the outage with code 5, one after it, one is still queued."""
    first = start_host("1x8G")
    client = first.client()
    gates = [tmp_path / name for name in ("during", "after")]
    runs, counter = tmp_path / "runs", tmp_path / "counter.py"
    counter.write_text(
        "import os, sys, time\n"
        "number = 0\n"
        "while not os.path.exists(sys.argv[1]):\n"
        "    print(number, flush=True)\n"
        "    number += 1\n"
        "    time.sleep(0.01)\n"
    )
    job = f"echo $GPUSCHED_JOB_ID >> {runs}; "
    until = f"{sys.executable} {counter} "
    during = client.submit(command("sh", "-c", job + until + f"{gates[0]}; exit 5", vram="4G"))
    after = client.submit(command("sh", "-c", job + until + f"{gates[1]}", vram="4G"))
    queued = client.submit(command("sh", "-c", job, vram="8G"))
    wait_for(lambda: client.job(during)["phase"] == client.job(after)["phase"] == "running", "the jobs do not start")
    wait_for(lambda: len(client.log(after).split()) > 3 and client.log(during), "they print nothing")
    followed: list[bytes] = []
    following = threading.Thread(target=lambda: followed.extend(first.client().follow(after)), daemon=True)
    following.start()
    wait_for(lambda: followed, "nothing is followed")
    getattr(first, how)()
    gates[0].touch()
    jobs = Path(os.environ["GPUSCHED_HOME"], "jobs")
    wait_for((jobs / during / "attempt-1/exit.json").exists, "the supervisor does not write down the end")
    time.sleep(1)  # an outage in which the other one goes on printing
    client = start_host("1x8G").client()
    assert client.wait(during)["exit_code"] == 5
    assert client.job(after)["phase"] == "running"
    assert client.job(queued)["phase"] == "queued"  # the memory of `after` still counts
    gates[1].touch()
    assert client.wait(after)["phase"] == client.wait(queued)["phase"] == "succeeded"
    assert sorted(runs.read_text().split()) == sorted([during, after, queued])
    following.join(30)
    for job_id in (during, after):  # without a gap, and nothing twice
        lines = client.log(job_id).split()
        assert lines == [str(number).encode() for number in range(len(lines))]
    assert b"".join(followed) == client.log(after)


def test_200_jobs_run_once_each_while_hosts_are_killed(start_host, command, tmp_path):
    """Case 24, from the outside: every acknowledged job has one final phase and ran once."""
    runs = tmp_path / "runs"
    hosts = [start_host("2x24G")]
    spec = command("sh", "-c", f"echo $GPUSCHED_JOB_ID >> {runs}", gpus=0, cpus=1)
    del spec["vram"]
    ids = hosts[0].client().submit_many([spec] * 200)
    for _round in range(3):
        ran = len(runs.read_text().split()) if runs.exists() else 0
        wait_for(lambda at=ran: runs.exists() and len(runs.read_text().split()) > at + 20, "the queue stands still")
        hosts[-1].kill()
        hosts.append(start_host("2x24G"))
    client = hosts[-1].client()
    views = [client.wait(job_id) for job_id in ids]
    assert {view["phase"] for view in views} == {"succeeded"}
    assert sorted(runs.read_text().split()) == sorted(ids)


def test_a_waiting_client_lives_through_the_death_of_its_host(start_host, command, tmp_path):
    first = start_host("1x8G")
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    client = first.client()
    job_id = client.submit(command("sh", "-c", f"cat {gate}"))
    wait_for(lambda: client.job(job_id)["phase"] == "running", "the job does not start")
    answer: list[dict] = []
    waiting = threading.Thread(target=lambda: answer.append(client.wait(job_id)), daemon=True)
    waiting.start()
    first.kill()
    start_host("1x8G")
    gate.write_text("")
    waiting.join(30)
    assert answer[0]["phase"] == "succeeded"


def test_a_stopped_host_that_wakes_up_after_a_takeover_can_write_nothing(start_host, command):
    """The epoch fences it: its lock is broken here by force, as a file system without locks would."""
    old = start_host("1x8G")
    state = Path(os.environ["GPUSCHED_HOME"])
    (state / "host.lock").unlink()
    new = start_host("1x8G")
    old_client = Client({**os.environ, "GPUSCHED_SOCKET": new.client().health()["socket"]}, start=False)
    assert old_client.health()["pid"] == new.pid
    assert new.client().wait(new.client().submit(command("true")))["phase"] == "succeeded"
    assert old.process.poll() is None or old.process.returncode == 0
    with contextlib.suppress(subprocess.TimeoutExpired):
        old.process.wait(timeout=5)
    record = read_host_record(state)
    assert record is not None
    assert record.pid == new.pid
    assert host_alive(record)


def test_no_host_and_none_may_be_started(monkeypatch):
    monkeypatch.setenv("GPUSCHED_AUTOSTART", "0")
    ended = subprocess.run(
        [sys.executable, "-m", "jupyter_gpusched.cli", "submit", "--vram", "1G", "true"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 3
    assert "GPUSCHED_AUTOSTART" in ended.stderr


def test_other_users_cannot_enter_the_folders(host):
    state = Path(os.environ["GPUSCHED_HOME"])
    socket = Path(host.client().health()["socket"])
    for folder in (state, state / "jobs", socket.parent):
        assert folder.stat().st_mode & 0o077 == 0, folder
    for file in (socket, state / "gpusched.sqlite", state / "host.json", state / "host.lock"):
        assert file.stat().st_mode & 0o077 == 0, file


def test_an_idle_daemon_gives_way_to_a_client_that_asks_for_other_cards(start_host, monkeypatch):
    daemon = start_host("1x8G", "--auto")
    monkeypatch.setenv("GPUSCHED_SIMULATE", "2x24G")
    assert len(Client.connect(start=True).gpus()) == 2
    assert daemon.process.wait(timeout=30) == 0


def test_a_daemon_with_jobs_does_not_give_way_and_says_how_to_end_it(start_host, command, monkeypatch):
    daemon = start_host("1x8G", "--auto")
    daemon.client().submit(command("sleep", "60"))
    monkeypatch.setenv("GPUSCHED_SIMULATE", "2x24G")
    with pytest.raises(GpuSchedError) as refused:
        Client.connect(start=True)
    assert f"kill {daemon.pid}" in refused.value.hint
    assert daemon.process.poll() is None


def test_who_waits_starts_a_host_when_nobody_takes_over(start_host, command, tmp_path, monkeypatch):
    monkeypatch.setenv("GPUSCHED_SIMULATE", "1x8G")
    host = start_host("1x8G")
    client = Client.connect(start=True)
    queued = [client.submit(command("true", vram="8G")) for _ in range(2)]
    host.kill()
    assert client.wait(queued[-1])["phase"] == "succeeded"


def test_a_job_that_waits_for_simulated_cards_on_a_host_without_any_says_so(start_host, command):
    first = start_host("1x8G")
    blocker = first.client().submit(command("sleep", "60", vram="8G"))
    job_id = first.client().submit(command("true", vram="8G"))
    first.terminate()
    client = start_host(None).client()
    assert client.health()["gpu_cause"] in client.job(job_id)["waiting"]
    client.cancel(blocker, grace="0s")


def test_a_fault_of_ours_does_not_end_hosting_for_good(own_environment, monkeypatch, caplog):
    from jupyter_gpusched.hosts import host_thread

    tries = []

    async def serve(self, until, **_):
        tries.append(1)
        raise UnicodeEncodeError("utf-8", "x", 0, 1, "nobody thought of this")

    monkeypatch.setattr(host_thread, "RETRY_S", 0.02)
    monkeypatch.setattr(host_thread.Host, "serve", serve)
    thread = host_thread.HostThread(own_environment, host_thread.GpuSched())
    thread.start()
    wait_for(lambda: len(tries) > 2, "it does not try again")
    thread.stop()
    assert sum("nobody thought of this" in record.getMessage() for record in caplog.records) == 1


def test_an_end_that_a_job_has_forged_reaches_the_journal_and_the_next_host(start_host, command):
    host = start_host()
    code = (
        "import json, os, signal, sys; place = os.path.dirname(os.environ['GPUSCHED_STOP_FILE']);"
        'bad = \'{"code": \' + \'9\' * 30 + \', "ended_at": NaN, "reason": "\\\\ud800", "message": "\\\\ud800"}\';'
        "open(place + '/exit.json', 'w').write(bad); os.kill(os.getppid(), signal.SIGKILL)"
    )
    client = host.client()
    job_id = client.submit(command(sys.executable, "-c", code))
    assert client.wait(job_id, timeout=30)["phase"] == "failed"
    host.kill()
    assert start_host().client().job(job_id)["reason"] == "?"
