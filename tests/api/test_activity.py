"""Case 14: a server whose owner has jobs counts as active, and stops doing so when they have ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from waiting import wait_for

from jupyter_gpusched.client import Client
from jupyter_gpusched.places import read_host_record, state_folder

INTERVAL_S = 0.5


class Server:
    """A real Jupyter server that nobody looks at but by its own status endpoint, which is no activity."""

    def __init__(self, folder: Path, *options: str) -> None:
        with (folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "jupyter_server", "--allow-root", "--ip=127.0.0.1", "--port=0",
                    "--ServerApp.jpserver_extensions={'jupyter_gpusched': True}", f"--ServerApp.root_dir={folder}",
                    "--IdentityProvider.token=secret", f"--GpuSched.activity_interval_s={INTERVAL_S}", *options,
                ],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, cwd=folder,
            )  # fmt: skip
        file = Path(os.environ["JUPYTER_RUNTIME_DIR"]) / f"jpserver-{self.process.pid}.json"
        self.url = json.loads(wait_for(lambda: file.exists() and file.read_text(), "no server"))["url"]
        wait_for(self.answers, "the server does not answer")

    def answers(self) -> bool:
        try:
            return bool(self.last_activity())
        except OSError:
            return False

    def last_activity(self) -> str:
        request = Request(self.url + "api/status", headers={"Authorization": "token secret"})
        with urlopen(request) as answer:
            return str(json.load(answer)["last_activity"])

    def advances(self) -> None:
        before = self.last_activity()
        wait_for(lambda: self.last_activity() > before, "the server does not count as active")

    def stands_still(self, intervals: int = 3) -> bool:
        before = self.last_activity()
        time.sleep(intervals * INTERVAL_S)  # that nothing happens shows only in time
        return self.last_activity() == before


@pytest.fixture
def serve(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUSCHED_SIMULATE", "1x8G")
    started = []

    def start(*options):
        started.append(Server(tmp_path, *options))
        return started[-1]

    yield start
    for server in started:
        server.process.kill()
        server.process.wait()


def hosted_by(pid):
    return (record := read_host_record(state_folder())) is not None and record.pid == pid


def begin(command):
    client = Client.connect()
    job_id = client.submit(command("sleep", "600", vram="1G", env=dict(os.environ)))
    wait_for(lambda: client.job(job_id)["phase"] == "running", "the job does not start")
    return client, job_id


def end(client, job_id):
    client.cancel(job_id, grace="0s")
    client.wait(job_id)
    client.close()


def test_a_server_that_hosts_is_active_for_three_intervals_of_a_job_and_for_none_after_it(serve, command):
    server = serve()
    wait_for(lambda: hosted_by(server.process.pid), "the server does not host")
    client, job_id = begin(command)
    queued = client.submit(command("true", vram="8G", env=dict(os.environ)))
    for _ in range(3):
        server.advances()
    client.cancel(queued)
    end(client, job_id)
    wait_for(lambda: server.stands_still(1), "it goes on counting as active")
    assert server.stands_still()


def test_a_server_that_joined_a_daemon_is_active_too_and_does_not_keep_the_daemon_from_its_end(
    serve, command, start_host
):
    daemon = start_host("1x8G", "--auto", "--idle-exit=3")
    client, job_id = begin(command)
    server = serve()
    for _ in range(3):
        server.advances()
    assert hosted_by(daemon.pid)
    end(client, job_id)
    wait_for(lambda: hosted_by(server.process.pid), "the daemon does not end, or the server does not take over")
    wait_for(lambda: server.stands_still(1), "it goes on counting as active")


def test_whoever_does_not_want_it_turns_it_off(serve, command):
    server = serve("--GpuSched.report_activity=False")
    wait_for(lambda: hosted_by(server.process.pid), "the server does not host")
    client, job_id = begin(command)
    assert server.stands_still()
    end(client, job_id)
