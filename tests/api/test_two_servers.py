"""Several servers on one state folder: one schedules, and another goes on when it dies. Case 24."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import wait_for

import jupyter_gpusched
from jupyter_gpusched.client import Client
from jupyter_gpusched.core.model import GpuSchedError
from jupyter_gpusched.places import read_host_record

CANDIDATE = str(Path(__file__).parents[1] / "bench" / "candidate.py")
"""What a Jupyter server does for us, without the rest of it."""


@pytest.fixture
def start_server(own_environment, monkeypatch):
    monkeypatch.setenv("GPUSCHED_SIMULATE", "2x24G")
    monkeypatch.setenv("GPUSCHED_AUTOSTART", "0")
    started = []

    def start() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, CANDIDATE], stdin=subprocess.DEVNULL))
        return started[-1]

    yield start
    for server in started:
        server.kill()
        server.wait()


def connected() -> Client:
    def connect():
        try:
            return Client.connect()
        except GpuSchedError:
            return None

    return wait_for(connect, "no server hosts")


def test_200_jobs_run_once_each_although_the_scheduling_server_is_killed_in_the_middle(start_server, command, tmp_path):
    servers = {server.pid: server for server in (start_server(), start_server())}
    runs = tmp_path / "runs"
    runs.touch()
    client = connected()
    first = client.health()
    spec = command("sh", "-c", f"echo $GPUSCHED_JOB_ID >> {runs}", vram="12G")
    ids = [client.submit(spec) for _ in range(100)] + client.submit_many([spec] * 100)
    wait_for(lambda: len(runs.read_text().split()) > 20, "the jobs do not run")
    servers.pop(first["pid"]).send_signal(signal.SIGKILL)
    killed = time.monotonic()
    phases = {client.wait(job_id, timeout=90)["phase"] for job_id in ids}
    (second,) = servers
    health = client.health()
    assert phases == {"succeeded"}
    assert sorted(runs.read_text().split()) == sorted(ids)
    assert len(set(ids)) == 200
    # Who schedules is told, and that it is another one than before.
    assert (health["pid"], health["kind"], health["epoch"]) == (second, "server", first["epoch"] + 1)
    assert health["instance"] != first["instance"]
    assert time.monotonic() - killed < 90


def test_another_server_takes_over_within_a_moment(start_server):
    servers = {server.pid: server for server in (start_server(), start_server())}
    first = connected().health()["pid"]
    time.sleep(0.5)  # the other one has found out that it must wait
    servers[first].kill()
    killed = time.monotonic()
    wait_for(lambda: connected().health()["pid"] != first, "nobody takes over")
    assert time.monotonic() - killed < 30


def test_a_server_that_joins_schedules_nothing_while_the_other_one_lives(start_server, command):
    first = start_server()
    client = connected()
    start_server()
    jobs = [client.submit(command("true")) for _ in range(20)]
    assert {client.wait(job_id)["phase"] for job_id in jobs} == {"succeeded"}
    record = read_host_record(Path(os.environ["GPUSCHED_HOME"]))
    assert (record.pid, record.epoch) == (first.pid, 1)


@pytest.fixture
def other_environment(tmp_path):
    """The package as another environment has it: another place, another version."""
    folder = tmp_path / "other"
    shutil.copytree(Path(jupyter_gpusched.__file__).parent, folder / "jupyter_gpusched")
    (folder / "jupyter_gpusched" / "_version.py").write_text('__version__ = "0.0.7"\n')
    return folder


def test_a_host_of_another_environment_adopts_what_this_one_started_and_back(
    start_host, command, other_environment, tmp_path
):
    environ = os.environ | {"PYTHONPATH": str(other_environment), "GPUSCHED_SIMULATE": "1x8G"}
    theirs = subprocess.Popen(
        [sys.executable, "-m", "jupyter_gpusched.hosts.daemon", "--auto"], env=environ, cwd=other_environment
    )
    client = connected()
    gate = tmp_path / "gate"
    job_id = client.submit(command("sh", "-c", f"until test -e {gate}; do sleep 0.02; done; exit 6", vram="8G"))
    waiting = client.submit(command("true", vram="8G"))
    wait_for(lambda: client.job(job_id)["phase"] == "running", "the job does not start")
    assert client.health()["version"] == "0.0.7"
    theirs.kill()
    theirs.wait()
    shutil.rmtree(other_environment)  # that environment is deleted while its job runs
    client = start_host("1x8G").client()
    assert client.health()["version"] == jupyter_gpusched.__version__
    assert client.job(job_id)["phase"] == "running"
    gate.touch()
    assert client.wait(job_id)["exit_code"] == 6
    assert client.wait(waiting)["phase"] == "succeeded"


def test_health_and_the_command_line_say_which_server_schedules(start_server):
    server = start_server()
    connected()
    told = subprocess.run(
        [sys.executable, "-m", "jupyter_gpusched.cli", "doctor", "--json"], capture_output=True, text=True, check=False
    )
    (host,) = (check for check in json.loads(told.stdout)["checks"] if check["name"] == "host")
    assert f"server in process {server.pid}" in host["summary"]
