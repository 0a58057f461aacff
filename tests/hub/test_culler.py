"""Case 14 with JupyterHub's idle culler: it stops no server that hosts unfinished jobs, and all others when idle."""

from __future__ import annotations

import time

import pytest
from bed import Hub, fifo_of
from waiting import wait_for

pytestmark = pytest.mark.hub

IDLE_S = 10

CULLER = f"""
import sys
c.JupyterHub.services.append(dict(name="culler", command=[
    sys.executable, "-m", "jupyterhub_idle_culler", "--timeout={IDLE_S}", "--cull-every=1"]))
c.JupyterHub.load_roles.append(dict(name="culler", services=["culler"],
    scopes=["list:users", "read:users:activity", "read:servers", "delete:servers"]))
c.Spawner.environment["JUPYTERHUB_ACTIVITY_INTERVAL"] = "1"
c.Spawner.args = ["--GpuSched.activity_interval_s=1", "--allow-root"]
"""


@pytest.fixture
def culling(bed, people, place):
    """Starts a Hub with the culler on, with our service or with a host in each user's server."""
    started = []

    def start(name, **how):
        started.append(Hub(bed, place / name, (people["ann"],), more=CULLER, **how))
        return started[-1]

    yield start
    for hub in started:
        hub.close()


def test_a_server_that_hosts_its_users_jobs_is_not_stopped_before_they_end(culling, people):
    own = 'c.Spawner.environment = {"GPUSCHED_SIMULATE": "1x8G", "GPUSCHED_IDLE_EXIT": "5"}'
    hub = culling("culled-host", service=False, before=own)
    ann = hub.start_server(people["ann"])
    with fifo_of(ann, "culler-gate") as gate:
        job_id = ann.submit("cat", str(gate))
        wait_for(lambda: ann.job(job_id)["phase"] == "running", "the job does not start")
        until = time.monotonic() + 3 * IDLE_S
        while time.monotonic() < until:  # that a server is left alone shows only in time
            assert hub.server_of(ann.name), "the server was stopped during the job"
            time.sleep(0.5)
        gate.write_text("")
    wait_for(lambda: not hub.server_of(ann.name), "the idle server is not stopped", deadline_s=60)
    again = hub.start_server(people["ann"])
    assert again.job(job_id)["phase"] == "succeeded"


def test_with_a_service_the_server_is_stopped_as_ever_and_the_job_goes_on(culling, people):
    hub = culling("culled-service")
    hub.wait_for_service()
    ann = hub.start_server(people["ann"])
    with fifo_of(ann, "culler-gate") as gate:
        job_id = ann.submit("cat", str(gate))
        wait_for(lambda: not hub.server_of(ann.name), "the idle server is not stopped", deadline_s=60)
        assert hub.service("GET", f"jobs/{job_id}", ann.token).json["phase"] == "running"
        gate.write_text("")
    ended = lambda: hub.service("GET", f"jobs/{job_id}", ann.token).json["phase"] == "succeeded"  # noqa: E731
    wait_for(ended, "the job does not end")
