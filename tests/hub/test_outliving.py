"""Servers, services and Hubs come and go; jobs stay, and their owners find them again."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from bed import Hub, User, fifo_of
from waiting import wait_for

pytestmark = pytest.mark.hub

RESTART_S = 60.0
"""JupyterHub looks after its services every 30 s."""


def running(user: User, job_id: str) -> bool:
    return user.job(job_id)["phase"] == "running"


def test_a_users_server_may_be_stopped_during_a_job(hub, people):
    eve = hub.start_server(people["eve"])
    with fifo_of(eve, "gate") as gate:
        job_id = eve.submit("sh", "-c", f"echo before; cat {gate}; echo after; exit 3")
        wait_for(lambda: running(eve, job_id), "the job does not start")
        hub.stop_server(eve.name)
        view = hub.service("GET", f"jobs/{job_id}", eve.token).json
        assert view["phase"] == "running"
        gate.write_text("")
    again = hub.start_server(people["eve"])
    view = again.wait(job_id)
    assert (view["phase"], view["exit_code"], len(view["attempts"])) == ("failed", 3, 1)
    assert again.log(job_id) == "before\nafter\n"
    assert again.kernel.run(f"%gpulogs {job_id}").split() == ["before", "after"]


def test_a_killed_service_is_started_again_and_knows_its_jobs(hub, ann):
    first = hub.wait_for_service()
    with fifo_of(ann, "gate") as gate, ann.stream() as frames:
        frames.until(lambda frame: frame["type"] == "snapshot")
        job_id = ann.submit("sh", "-c", f"echo once; cat {gate}")
        wait_for(lambda: running(ann, job_id), "the job does not start")
        os.kill(first, signal.SIGKILL)
        lost = frames.until(lambda frame: frame["type"] == "status" and not frame["connected"] and frame["cause"])
        assert "The hub's GPU service does not answer" in lost["cause"]
        meanwhile = ann("GET", "gpus")
        assert meanwhile.status == 503
        assert meanwhile.json["error"]["code"] == "no_host"
        second = hub.wait_for_service(other_than=first)
        assert second != first
        back = frames.until(lambda frame: frame["type"] == "status" and frame["connected"])
        assert back["cause"] is None
        gate.write_text("")
        ended = frames.until(lambda frame: frame["type"] == "job" and frame["job"]["phase"] == "succeeded")
        assert ended["job"]["id"] == job_id
    assert ann.log(job_id) == "once\n"
    assert len(ann.job(job_id)["attempts"]) == 1


def test_a_hub_that_is_restarted_finds_the_queue_as_it_was(bed, people, place):
    hub = Hub(bed, place / "again", (people["ann"],), simulate="1x8G")
    try:
        hub.wait_for_service()
        ann = hub.start_server(people["ann"])
        with fifo_of(ann, "hub-gate") as gate:
            first = ann.submit("cat", str(gate), vram="8G")
            second = ann.submit("true", vram="8G")
            wait_for(lambda: running(ann, first), "the job does not start")
            before = hub.wait_for_service()
            hub.close()
            hub.start()
            hub.wait_for_service(other_than=before)
            ann = hub.start_server(people["ann"])
            assert running(ann, first)
            assert ann.job(second)["phase"] == "queued"
            gate.write_text("")
        assert ann.wait(first)["phase"] == ann.wait(second)["phase"] == "succeeded"
    finally:
        hub.close()


def test_no_token_reaches_a_job_a_command_line_or_a_file_of_the_queue(hub, ann):
    asked = "import os; print(os.environ['JUPYTERHUB_API_TOKEN'], os.environ['GPUSCHED_SERVICE_URL'])"
    token, url = ann.kernel.run(asked).split()
    inside = ann.kernel.run("%%gpujob --wait --quiet --gpus 0\nimport os\nprint(sorted(os.environ.items()))")
    newest = ann("GET", "jobs?limit=1").json["items"][0]
    told = ann.log(newest["id"]) + inside
    assert url in told
    secrets = [token, ann.token, _token_of(hub.wait_for_service())]
    places = [told, hub.log.read_text(errors="replace"), *_command_lines()]
    places += [file.read_bytes().decode(errors="replace") for file in hub.state.rglob("*") if file.is_file()]
    assert not [secret for secret in secrets for text in places if secret in text]


def _token_of(pid: int) -> str:
    variables = dict(entry.partition("=")[::2] for entry in Path(f"/proc/{pid}/environ").read_text().split("\0"))
    return variables["JUPYTERHUB_API_TOKEN"]


def _command_lines() -> list[str]:
    """Of all processes; of one that ends meanwhile nothing."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(file.read_bytes().decode(errors="replace"))
    return found
