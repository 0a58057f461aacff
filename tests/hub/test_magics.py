"""Case 39 by magics and Python through the Hub: what owner, administrator and anybody else come to with an id."""

from __future__ import annotations

import json

import pytest
from waiting import wait_for

pytestmark = pytest.mark.hub

UNKNOWN = "zzzzzzzz"
SECRET = "only-for-the-owner"


@pytest.fixture(scope="module")
def busy(ann):
    """CPUs enough are taken that jobs which ask for most of them wait."""
    job_id = ann.submit("sleep", "600", gpus=0, cpus=4)
    wait_for(lambda: ann.job(job_id)["phase"] == "running", "the job does not start")
    yield
    ann("POST", f"jobs/{job_id}/cancel", {"grace": "0s"})


@pytest.fixture
def waiting(ann, busy):
    job_id = ann.submit("true", name=SECRET, gpus=0, cpus=6)
    yield job_id
    ann("POST", f"jobs/{job_id}/cancel", {})


@pytest.fixture(scope="module")
def ended(ann):
    """It says as whom it runs."""
    job_id = ann.submit("sh", "-c", f"id -u; echo {SECRET}", name=SECRET, gpus=0)
    assert ann.wait(job_id)["phase"] == "succeeded"
    return job_id


@pytest.fixture(scope="module")
def left(ann):
    """A job of ann's with a value that it left."""
    told = ann.kernel.run("%%gpujob --gpus 0 --out found --wait\nfound = 'ma' + 'rk'")
    assert "Error" not in told, told
    job_id = ann("GET", "jobs?limit=1").json["items"][0]["id"]
    assert ann.job(job_id)["phase"] == "succeeded"
    return job_id


def held_by(user, job_id):
    held = user.job(job_id)["held"]
    return None if held is None else held["by"]


def run(user, code):
    told = user.kernel.run(code)
    assert "Error" not in told, told
    return told.strip()


WAYS = [
    "%gpulogs {}", "%gpulogs {} -f", "%gpucancel {}", "%gpuresult {}", "%gpuhold {}", "%gpurelease {}",
    *(f"jupyter_gpusched.job('{{}}').{act}()" for act in ("logs", "result", "show", "wait", "cancel", "resubmit")),
    "jupyter_gpusched.array('{}')",
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_foreign_id_is_as_unknown_as_one_that_never_was_and_nothing_happens_to_it(ann, bob, waiting, way):
    foreign, unknown = (bob.kernel.run(way.format(one)) for one in (waiting, UNKNOWN))
    assert "There is no " in foreign
    assert foreign.replace(waiting, UNKNOWN) == unknown
    view = ann.job(waiting)
    assert (view["phase"], view["held"]) == ("queued", None)


@pytest.mark.parametrize("act", ["resubmit", "%gpuresult"])
def test_nor_is_one_that_has_ended(ann, bob, ended, act):
    way = f"{act} {{}}" if act.startswith("%") else f"jupyter_gpusched.job('{{}}').{act}()"
    count = len(ann("GET", "jobs?limit=1000").json["items"])
    foreign, unknown = (bob.kernel.run(way.format(one)) for one in (ended, UNKNOWN))
    assert foreign.replace(ended, UNKNOWN) == unknown
    assert len(ann("GET", "jobs?limit=1000").json["items"]) == count


def test_its_owner_does_all_of_it(ann, waiting, ended, left):
    run(ann, f"%gpuhold {waiting}")
    assert held_by(ann, waiting) == ann.name
    run(ann, f"%gpurelease {waiting}")
    assert held_by(ann, waiting) is None
    run(ann, f"%gpucancel {waiting}")
    assert ann.wait(waiting)["phase"] == "cancelled"
    assert SECRET in run(ann, f"%gpulogs {ended}")
    assert run(ann, f"values = %gpuresult {left}\nprint(values['found'])") == "mark"
    again = run(ann, f"print(jupyter_gpusched.job('{ended}').resubmit().id)")
    assert ann.wait(again)["user"] == ann.name


def test_an_administrator_holds_releases_and_ends_it_and_its_owner_reads_who_did(ann, adm, waiting):
    run(adm, f"%gpuhold {waiting} --cause 'a word first'")
    assert held_by(ann, waiting) == adm.name
    run(adm, f"%gpurelease {waiting}")
    assert held_by(ann, waiting) is None
    run(adm, f"%gpucancel {waiting}")
    assert adm.name in ann.wait(waiting)["message"]
    events = ann("GET", f"jobs/{waiting}/events").json["items"]
    assert {event["kind"] for event in events if event["detail"].get("by") == adm.name} >= {
        "held",
        "hold_released",
        "cancel_requested",
    }


def test_what_an_administrator_resubmits_runs_as_its_owner_and_is_the_owners(ann, bob, adm, ended):
    again = run(adm, f"print(jupyter_gpusched.job('{ended}').resubmit(priority='low').id)")
    view = ann.wait(again)
    assert (view["phase"], view["user"], view["parent_id"]) == ("succeeded", ann.name, ended)
    assert ann.log(again).split() == [str(ann.account.pw_uid), SECRET]
    assert bob("GET", f"jobs/{again}").status == 404
    log = adm("GET", "admin/events?limit=1000").json["items"]
    (entry,) = [one for one in log if one["kind"] == "submitted" and one["job_id"] == again]
    assert (entry["user"], entry["by"]) == (ann.name, adm.name)
    refused = adm.kernel.run(f"jupyter_gpusched.job('{ended}').resubmit(argv=['id'])")
    assert "what it runs is for" in refused


def test_a_result_is_never_made_into_a_value_for_an_administrator(ann, bob, adm, left):
    """To read it would run the owner's code as the administrator; so would what a page runs."""
    told = adm.kernel.run(f"%gpuresult {left}")
    assert f"would run {ann.name}'s code as {adm.name}" in told
    assert "mark" not in told
    assert "There is no job" in bob.kernel.run(f"%gpuresult {left}")


def test_the_lists_of_an_administrators_notebook_are_of_the_own_jobs_too(adm, ended):
    assert ended not in run(adm, "%gpujobs")
    assert ended in json.dumps(adm("GET", "jobs?all_users=1&limit=1000").json)
