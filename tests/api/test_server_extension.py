"""The Jupyter server extension: it hosts, relays, checks who asks, and leaves nobody's jobs behind."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from pytest_jupyter.jupyter_server import *  # noqa: F403  (its fixtures, for this module alone: see conftest.py)
from tornado.httpclient import HTTPClientError
from waiting import wait_for

from jupyter_gpusched.client import Client
from jupyter_gpusched.places import host_alive, read_host_record, state_folder

API = ("gpusched", "api", "v1")


@pytest.fixture(autouse=True)
def simulated(own_environment, monkeypatch):
    monkeypatch.setenv("GPUSCHED_SIMULATE", "2x24564M")


@pytest.fixture
def jp_server_config():
    return {"ServerApp": {"jpserver_extensions": {"jupyter_gpusched": True}}}


def hosting() -> bool:
    record = read_host_record(state_folder())
    return record is not None and host_alive(record)


async def test_the_server_hosts_on_a_thread_and_relays_to_it(jp_fetch):
    wait_for(hosting, "the server does not host")
    health = json.loads((await jp_fetch(*API, "health")).body)
    assert health["kind"] == "server"
    assert health["pid"] == os.getpid()
    spec = {"argv": ["sh", "-c", "echo relayed"], "vram": "1G", "env": {"GPUSCHED_HOME": health["state_dir"]}}
    body = json.dumps(spec)
    created = await jp_fetch(*API, "jobs", method="POST", body=body)
    assert created.code == HTTPStatus.CREATED
    job_id = json.loads(created.body)["id"]
    view = json.loads((await jp_fetch(*API, "jobs", job_id, params={"wait": "final"})).body)
    assert view["phase"] == "succeeded"
    log = await jp_fetch(*API, "jobs", job_id, "log")
    assert log.body == b"relayed\n"
    assert log.headers["X-Gpusched-Log-Size"] == log.headers["X-Gpusched-Log-Next"] == "8"


async def test_the_page_is_told_where_the_servers_files_lie(jp_serverapp, jp_root_dir):
    page = jp_serverapp.web_app.settings["page_config_data"]
    assert page["gpuschedRoot"] == str(jp_root_dir)


async def test_errors_of_the_host_pass_through_with_their_status(jp_fetch):
    wait_for(hosting, "the server does not host")
    with pytest.raises(HTTPClientError) as refused:
        await jp_fetch(*API, "jobs", method="POST", body=json.dumps({"argv": ["true"], "vram": "99G"}))
    assert refused.value.code == HTTPStatus.UNPROCESSABLE_ENTITY
    assert json.loads(refused.value.response.body)["error"]["code"] == "never_fits"
    with pytest.raises(HTTPClientError) as unknown:
        await jp_fetch(*API, "jobs", "abcdefgh")
    assert unknown.value.code == HTTPStatus.NOT_FOUND


async def test_in_a_server_that_the_hub_shares_only_its_owner_is_served(jp_fetch, monkeypatch):
    wait_for(hosting, "the server does not host")
    monkeypatch.setenv("JUPYTERHUB_USER", "somebody-else")
    with pytest.raises(HTTPClientError) as refused:
        await jp_fetch(*API, "gpus")
    assert refused.value.code == HTTPStatus.FORBIDDEN


async def test_a_server_joins_a_host_that_is_there_and_takes_over_when_it_dies(host, jp_fetch):
    health = json.loads((await jp_fetch(*API, "health")).body)
    assert health["pid"] == host.pid
    host.kill()
    wait_for(lambda: (r := read_host_record(state_folder())) and r.pid == os.getpid(), "it does not take over")
    assert json.loads((await jp_fetch(*API, "health")).body)["pid"] == os.getpid()


class RealServer:
    """A Jupyter server in a process of its own, as a user starts it."""

    def __init__(self, tmp_path: Path) -> None:
        self.log = tmp_path / "server.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "jupyter_server", "--allow-root", "--ip=127.0.0.1", "--port=0",
                    "--ServerApp.jpserver_extensions={'jupyter_gpusched': True}", f"--ServerApp.root_dir={tmp_path}",
                    "--IdentityProvider.token=secret", "--ServerApp.base_url=/user/u%40x.org/",
                ],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, cwd=tmp_path,
            )  # fmt: skip
        wait_for(lambda: (record := read_host_record(state_folder())) and record.pid == self.process.pid, "no host")


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUSCHED_SIMULATE", "1x8G")
    server = RealServer(tmp_path)
    yield server
    server.process.kill()
    server.process.wait()


def test_a_stopping_server_leaves_unfinished_jobs_in_the_care_of_the_daemon(server, command, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    client = Client.connect()
    first = client.submit(command("sh", "-c", f"cat {gate}; exit 5", vram="8G"))
    second = client.submit(command("true", vram="8G"))
    wait_for(lambda: client.job(first)["phase"] == "running", "the job does not start")
    server.process.terminate()
    server.process.wait(timeout=30)
    record = wait_for(lambda: (r := read_host_record(state_folder())) and r.kind == "daemon" and r, "no daemon comes")
    assert host_alive(record)
    gate.write_text("")
    assert client.wait(first)["exit_code"] == 5
    assert client.wait(second)["phase"] == "succeeded"


def test_a_stopping_server_without_jobs_starts_nothing(server):
    server.process.terminate()
    server.process.wait(timeout=30)
    assert read_host_record(state_folder()) is None


def test_a_killed_server_leaves_jobs_running_and_the_next_host_knows_their_end(server, command, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    client = Client.connect(start=True)
    job_id = client.submit(command("sh", "-c", f"cat {gate}; exit 7"))
    wait_for(lambda: client.job(job_id)["phase"] == "running", "the job does not start")
    server.process.kill()
    server.process.wait()
    gate.write_text("")
    assert Client.connect(start=True).wait(job_id)["exit_code"] == 7


def test_the_extension_is_enabled_by_the_installation(tmp_path):
    listed = subprocess.run(
        [sys.executable, "-m", "jupyter", "server", "extension", "list"], capture_output=True, text=True, check=True
    )
    assert "jupyter_gpusched" in listed.stdout + listed.stderr
    assert "enabled" in (listed.stdout + listed.stderr).split("jupyter_gpusched")[1].split("\n")[0]


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 403), ({"Authorization": "token wrong"}, 403), ({"Authorization": "token secret"}, 201)],
)
def test_only_the_servers_token_opens_the_door_under_an_escaped_base_url(server, headers, status):
    """Case 40: no token, a wrong one, the right one; XSRF protection stays on for browsers."""
    runtime = Path(os.environ["JUPYTER_RUNTIME_DIR"])
    record = json.loads(wait_for(lambda: "".join(f.read_text() for f in runtime.glob("jpserver-*.json")), "no server"))
    assert "/user/u%40x.org/" in record["url"]
    wait_for(lambda: _listens(record["port"]), "the server does not listen")
    request = Request(
        record["url"] + "gpusched/api/v1/jobs",
        data=b'{"argv": ["true"], "vram": "1G"}',
        headers={"Content-Type": "application/json"} | headers,
        method="POST",
    )
    assert _status(request) == status
    assert len(Client.connect().jobs()) == (status == HTTPStatus.CREATED)


def _listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def _status(request: Request) -> int:
    try:
        with urlopen(request) as answer:
            return answer.status
    except HTTPError as refused:
        return refused.code
