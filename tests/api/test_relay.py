"""The same interface through a Jupyter server: with its token, over TCP, as curl and browsers ask."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import closing, suppress
from pathlib import Path

import pytest
import schemathesis
from conftest import end_everything_of
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from waiting import wait_for

from jupyter_gpusched.client import Client
from jupyter_gpusched.openapi import document
from jupyter_gpusched.wire import PREFIX

TOKEN = {"Authorization": "token secret"}


class JupyterServer:
    """A Jupyter server in a process of its own, on a free port of this machine, with a state folder of its own."""

    def __init__(self, folder: Path, runtime: str) -> None:
        self.state = folder / "state"
        others = ("GPUSCHED_", "JUPYTER")
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        self.environ |= {"GPUSCHED_HOME": str(self.state), "GPUSCHED_SIMULATE": "2x24564M", "XDG_RUNTIME_DIR": runtime}
        self.environ |= {f"JUPYTER_{kind}_DIR": str(folder / kind) for kind in ("CONFIG", "DATA", "RUNTIME")}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = folder / "server.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "jupyter_server", "--allow-root", "--ip=127.0.0.1", f"--port={self.port}",
                    "--ServerApp.jpserver_extensions={'jupyter_gpusched': True}", f"--ServerApp.root_dir={folder}",
                    "--IdentityProvider.token=secret", "--ServerApp.port_retries=0",
                ],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, cwd=folder, env=self.environ,
            )  # fmt: skip
        self.url = f"http://127.0.0.1:{self.port}{PREFIX}"
        wait_for(self._answers, "the server does not answer")

    def _answers(self) -> bool:
        try:
            return self.ask("GET", "health")[0] == 200
        except OSError:
            return False

    def connect(self, method, path, body=None, headers=TOKEN):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, f"{PREFIX}/{path}", body=body, headers=headers)
        return connection, connection.getresponse()

    def ask(self, method, path, body=None, headers=TOKEN):
        """Status and JSON of one answer."""
        connection, answer = self.connect(method, path, body, headers)
        with closing(connection):
            text = answer.read()
            return answer.status, json.loads(text) if text else None


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with tempfile.TemporaryDirectory(prefix="gs-") as runtime:
        server = JupyterServer(tmp_path_factory.mktemp("server"), runtime)
        yield server
        server.process.kill()
        server.process.wait()
        end_everything_of(server.state)


@pytest.fixture
def client(server):
    """The host behind the server; jobs of the test are ended, and what it decided is taken back, afterwards."""
    client = Client.connect(environ=server.environ)
    yield client
    for view in client.jobs():
        client.cancel(view["id"], "0s")
    if client.health()["drained"]:  # made-up requests may be an administrator's too
        client.resume("the test is over")
    for gpu in client.gpus():
        if gpu["health"]["status"] == "quarantined":
            client.release(gpu["uuid"], "the test is over")
    client.close()


@pytest.fixture
def command(server, tmp_path):
    return lambda *argv, **more: {"argv": list(argv), "cwd": str(tmp_path), "vram": "1G", "env": server.environ} | more


def connections(path: str) -> int:
    lines = Path("/proc/net/unix").read_text().splitlines()
    return sum(line.endswith(f" {path}") and line.split()[5] == "03" for line in lines)


def test_every_answer_is_as_the_document_says(server, client, command):
    """Bounded and repeatable: well-formed and ill-formed requests at every address but the endless one."""
    health = client.health()
    everything = {"vram": None, "gpus": 2, "exclusive": True, "cpus": health["cpus"]}
    client.submit(command("sleep", "600", **everything))  # nothing that is made up here gets to run
    known = client.submit(command("true"))
    schema = schemathesis.openapi.from_dict(json.loads(document()))
    checks = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)
    asked = set()
    bounded = settings(
        max_examples=6, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip

    def check(operation, mode):
        @bounded
        @given(case=operation.as_strategy(generation_mode=mode))
        def answers(case):
            if "id" in (case.path_parameters or {}):
                case.path_parameters["id"] = known
            if (case.query or {}).get("wait"):
                case.query["timeout"] = 0
            answer = case.call_and_validate(base_url=server.url, headers=TOKEN, checks=checks)
            asked.add((operation.label, answer.status_code))

        with suppress(Unsatisfiable):  # nothing can be ill-formed where nothing is sent
            answers()

    for found in schema.get_all_operations():
        if found.ok().path != "/events":
            for mode in GenerationMode:
                check(found.ok(), mode)
    good = {label for label, status in asked if status < 300}
    assert {"GET /jobs", "PATCH /jobs/{id}", "POST /jobs/{id}/resubmit", "GET /jobs/{id}/log"} <= good, asked


def test_without_the_token_every_door_is_closed_and_the_answer_says_how_to_open_it(server):
    for method, path in (("GET", "health"), ("GET", "events"), ("POST", "jobs"), ("DELETE", "jobs/abcd1234")):
        status, answer = server.ask(method, path, headers={})
        assert status == 403
        assert answer["error"]["code"] == "not_allowed"
        assert "token" in answer["error"]["hint"]


def test_methods_and_errors_pass_through(server, client, command):
    assert server.ask("PUT", "jobs", b"{}")[1]["error"]["code"] == "method_not_allowed"
    assert server.ask("GET", "leases")[0] == 404
    job_id = client.submit(command("true", gpus=2, vram="1G"))
    client.wait(job_id)
    wait_for(lambda: not any(gpu["holders"] for gpu in client.gpus()), "the memory is not freed")
    status, answer = server.ask("PATCH", f"jobs/{job_id}", b'{"name": "x"}')
    assert (status, answer["error"]["code"]) == (409, "wrong_phase")
    assert server.ask("DELETE", f"jobs/{job_id}") == (204, None)


def test_an_escaped_slash_stays_part_of_its_name_on_the_way(server):
    for path in ("jobs/a%2Flog", "jobs/a%0Ab", "jobs/%00"):
        status, answer = server.ask("GET", path)
        assert (status, answer["error"]["code"]) == (404, "unknown_job")


def test_events_stream_through_the_server_as_they_happen(server, client, command):
    connection, answer = server.connect("GET", "events")
    with closing(connection):
        assert answer.headers["Content-Type"] == "application/x-ndjson"
        assert json.loads(answer.readline())["type"] == "snapshot"
        job_id = client.submit(command("true"))
        frames = (json.loads(line) for line in iter(answer.readline, b"") if line.strip())
        end = next(f for f in frames if f["type"] == "job" and f["job"]["phase"] == "succeeded")
    assert end["job"]["id"] == job_id
    again, answer = server.connect("GET", f"events?after={end['seq'] - 1}")
    with closing(again):
        assert json.loads(answer.readline())["seq"] == end["seq"]


def test_a_wrong_after_is_refused_through_the_server_too(server):
    status, answer = server.ask("GET", "events?after=soon")
    assert (status, answer["error"]["field"]) == (422, "after")


def test_a_browser_that_leaves_ends_the_stream_at_the_host(server, client):
    path = client.health()["socket"]
    before = connections(path)
    streams = [server.connect("GET", "events") for _ in range(3)]
    wait_for(lambda: connections(path) == before + 3, "the streams do not reach the host")
    for connection, answer in streams:
        answer.close()
        connection.close()
    wait_for(lambda: connections(path) == before, "the server holds on to streams that nobody reads")


def test_a_browser_that_leaves_in_the_middle_of_an_answer_is_no_error_of_the_server(server, client, command):
    path = client.health()["socket"]
    job = client.submit(command("head", "-c", "8000000", "/dev/zero"))
    wait_for(lambda: client.job(job)["phase"] == "succeeded", "the job does not end")
    before = connections(path)
    for _ in range(10):
        connection, answer = server.connect("GET", f"jobs/{job}/log")
        assert answer.status == 200
        answer.close()
        connection.close()
    wait_for(lambda: connections(path) == before, "the server holds on to answers that nobody reads")
    assert "Uncaught exception" not in server.log.read_text()
