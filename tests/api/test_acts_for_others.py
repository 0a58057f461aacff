"""What an administrator does to jobs of others: they stay theirs, in their limits, and it is known who did it."""

from __future__ import annotations

import pytest
from many_users import lab
from waiting import wait_for

from jupyter_gpusched.launch.owners import NoSuchOwner


@pytest.fixture
def queue(own_environment, tmp_path):
    with lab(own_environment, tmp_path, groups={"ann": ("students",), "root2": ("staff",)}) as running:
        yield running


def view(queue, job, user="root2"):
    return queue.ask(user, "GET", f"jobs/{job}").json


def ended(queue, user, *argv, **spec):
    job = queue.submit(user, *argv, **spec)
    wait_for(lambda: view(queue, job)["ended_at"] is not None, "it does not end")
    return job


def again(queue, job, changes=None, *, user="root2"):
    return queue.ask(user, "POST", f"jobs/{job}/resubmit", changes or {})


def events_of(queue, kind):
    log = queue.ask("root2", "GET", "admin/events?limit=1000").json["items"]
    return [one for one in log if one["kind"] == kind]


def test_what_an_administrator_resubmits_is_its_owners_again(queue):
    job = ended(queue, "ann", "true", env={"WORD": "of ann"})
    answer = again(queue, job, {"priority": "low", "name": "once more", "idempotency_key": "k"})
    assert answer.status == 201
    new = view(queue, answer.json["id"], "ann")
    assert (new["user"], new["parent_id"], new["priority"], new["name"]) == ("ann", job, "low", "once more")
    stored = queue.desk.engine.store.job(answer.json["id"])
    assert (stored.owner, stored.groups) == ("ann", ("students",)), "with the limits of its owner's groups"
    (entry,) = [one for one in events_of(queue, "submitted") if one["job_id"] == stored.id]
    assert (entry["user"], entry["by"]) == ("ann", "root2")
    assert again(queue, job, {"idempotency_key": "k"}).json["id"] == stored.id


def test_of_ones_own_job_it_is_written_down_as_before(queue):
    new = again(queue, ended(queue, "root2", "true"), {"env": {"A": "1"}}).json["id"]
    assert view(queue, new)["user"] == "root2"
    (entry,) = [one for one in events_of(queue, "submitted") if one["job_id"] == new]
    assert (entry["by"], entry["detail"]) == ("root2", {})


def test_an_array_that_an_administrator_resubmits_is_its_owners_again(queue):
    spec = {"argv": ["false"], "gpus": 0}
    array = queue.ask("ann", "POST", "jobs", {"jobs": [spec, spec], "array": {"throttle": 1}}).json
    for job in array["ids"]:
        wait_for(lambda job=job: view(queue, job)["phase"] == "failed", "it does not end")
    answer = again(queue, array["array_id"])
    assert answer.status == 201
    assert {view(queue, job)["user"] for job in answer.json["ids"]} == {"ann"}
    assert queue.ask("ann", "GET", f"arrays/{answer.json['array_id']}").json["count"] == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"argv": ["id"]}, {"env": {"A": "1"}}, {"cwd": "/tmp"}, {"python": "/usr/bin/python3"}, {"source": None},
        {"payload": "eA=="}, {"path": "x.py"}, {"after": []}, {"kind": "cell"}, {"priority": "low", "args": []},
    ],
    ids=str,
)  # fmt: skip
def test_what_anothers_job_runs_is_not_for_administrators_to_change(queue, changes):
    job = ended(queue, "ann", "true")
    refused = again(queue, job, changes)
    assert refused.status == 403
    assert "runs as ann, and what it runs is for ann alone to change" in refused.error["message"]
    assert refused.error["field"] in changes
    assert "Its terms can be changed" in refused.error["hint"]
    assert again(queue, job, changes, user="ann").status in (201, 422), "to its owner that is no question of rights"


def test_nor_is_it_while_it_waits_but_its_terms_are(queue):
    for _ in range(2):
        queue.submit("bob", "sleep", "600", gpus=1)
    job = queue.submit("ann", "true", gpus=1)
    assert queue.ask("root2", "PATCH", f"jobs/{job}", {"env": {"A": "1"}}).status == 422
    assert queue.ask("root2", "PATCH", f"jobs/{job}", {"priority": "high"}).status == 200
    (entry,) = [one for one in events_of(queue, "amended") if one["job_id"] == job]
    assert (entry["user"], entry["by"], view(queue, job)["user"]) == ("ann", "root2", "ann")


def test_who_is_no_user_of_this_machine_any_more_has_no_jobs_resubmitted(queue):
    job = ended(queue, "ann", "true")

    def gone(user):
        raise NoSuchOwner(f"this machine has no user {user!r} any more")

    queue.desk.admission._owners = gone
    refused = again(queue, job)
    assert (refused.status, refused.error["code"]) == (403, "not_allowed")
    assert "Jobs run as their owner, but this machine has no user 'ann' any more" in refused.error["message"]


def test_a_deleted_job_stays_in_the_report_and_it_is_known_who_deleted_it(queue):
    jobs = [ended(queue, "ann", "false"), ended(queue, "ann", "true", gpus=1, vram="1G")]

    def report():
        (row,) = queue.ask("root2", "GET", "admin/report").json["items"]
        return row

    wait_for(lambda: not queue.desk.engine.state.jobs, "its memory is not freed")
    before = report()
    assert (before["jobs"], before["failed"], before["succeeded"]) == (2, 1, 1)
    for job, user in zip(jobs, ("ann", "root2"), strict=True):
        assert queue.ask(user, "DELETE", f"jobs/{job}").status == 204
        assert report() == before
    assert [(one["job_id"], one["user"], one["by"]) for one in events_of(queue, "deleted")] == [
        (jobs[0], "ann", "ann"),
        (jobs[1], "ann", "root2"),
    ]
    later = queue.ask("root2", "GET", f"admin/report?since={queue.desk.engine.clock() + 3600:.0f}").json
    assert later["items"] == []
