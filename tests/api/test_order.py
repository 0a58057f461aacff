"""The owner's order of waiting jobs, over REST and by the client."""

from __future__ import annotations

import pytest
from rest import Rest
from waiting import wait_for

from jupyter_gpusched.core.model import BadRequest, GpuSchedError

WHOLE = "24564M"


@pytest.fixture
def waiting(client, command):
    """Three jobs that wait behind one which has all of both cards."""
    first = client.submit(command("sleep", "60", vram=WHOLE, gpus=2))
    wait_for(lambda: client.job(first)["phase"] == "running", "the first job does not start")
    return client.submit_many([command("true", vram="2G", name=name) for name in "abc"])


def order(client):
    queued = client.jobs(phase="queued")
    return "".join(view["name"] for view in sorted(queued, key=lambda view: view["position"]))


def test_waiting_jobs_are_put_before_and_after_each_other_and_stay_so(client, waiting, host, start_host):
    a, b, c = waiting
    assert client.reorder(c, before=a)["position"] == 1
    assert order(client) == "cab"
    client.reorder(c, after=b)
    assert order(client) == "abc"
    client.reorder(b, before=a)
    host.kill()
    again = start_host().client()
    assert order(again) == "bac"
    again.close()


@pytest.mark.parametrize(
    "body",
    [{"before": ["x"]}, {"after": 7}, {"before": None}, {"before": "x", "after": "y"}, {"before": "x", "name": "n"}],
)
def test_an_order_that_means_nothing_is_refused(client, waiting, body):
    rest = Rest(client.health()["socket"])
    refused = rest("PATCH", f"jobs/{waiting[0]}", body)
    assert (refused.status, bool(refused.json["error"]["hint"])) == (422, True)
    assert order(client) == "abc"
    rest.close()


def test_a_job_has_no_place_before_itself_nor_beside_one_that_runs_or_is_unknown(client, waiting):
    with pytest.raises(BadRequest, match="itself"):
        client.reorder(waiting[0], before=waiting[0])
    with pytest.raises(GpuSchedError, match="no job"):
        client.reorder(waiting[0], after="zzzzzzzz")
    running = next(view["id"] for view in client.jobs(phase="running"))
    with pytest.raises(GpuSchedError, match="only jobs that wait have an order"):
        client.reorder(waiting[0], before=running)
