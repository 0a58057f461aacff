"""Jobs that start after others, against a real host."""

from __future__ import annotations

import json

import pytest
from waiting import wait_for

from jupyter_gpusched import cli
from jupyter_gpusched.core.model import BadRequest, UnknownJob


@pytest.fixture
def gated(client, command, tmp_path):
    """A job that runs until its gate is opened with an exit code, and the function that opens it."""
    gate = tmp_path / "gate"
    script = f"until [ -s {gate} ]; do sleep 0.05; done; exit $(cat {gate})"
    job_id = client.submit(command("sh", "-c", script, name="train"))
    wait_for(lambda: client.job(job_id)["phase"] == "running", "the first job does not start")

    def opened(code):
        (tmp_path / "gate.new").write_text(str(code))
        (tmp_path / "gate.new").rename(gate)

    return job_id, opened


def test_a_job_starts_when_the_one_that_it_is_after_has_succeeded(client, command, gated):
    parent, opened = gated
    child = client.submit(command("true", after=[parent]))
    view = client.job(child)
    assert (view["phase"], view["waiting"], view["after"]) == ("queued", f"waits for job {parent} (running)", [parent])
    opened(0)
    view = client.wait(child)
    assert view["phase"] == "succeeded"
    assert view["started_at"] >= client.job(parent)["ended_at"]


def test_a_chain_ends_with_the_job_that_failed_and_says_so(client, command, gated):
    parent, opened = gated
    ids = client.submit_many([command("true", after=[parent]), command("true", after=["#0"], name="report")])
    opened(7)
    first, second = [client.wait(job_id) for job_id in ids]
    assert {(view["phase"], view["reason"]) for view in (first, second)} == {("cancelled", "dependency_failed")}
    assert first["message"].startswith(f"not started: it was to start after job {parent} (train), which failed")
    assert "exit code 7" in first["message"]
    assert f"after job {first['id']} (true), which was cancelled" in second["message"]
    assert [event["kind"] for event in client.job_events(second["id"])] == ["submitted", "dependency_failed"]
    again = client.resubmit(parent)
    assert client.job(first["id"])["phase"] == "cancelled"
    client.cancel(again, "0s")


def test_dependents_are_kept_over_a_death_of_the_host(client, command, gated, host, start_host):
    parent, opened = gated
    children = [client.submit(command("true", after=[parent], after_when=when)) for when in ("succeeded", "finished")]
    host.kill()
    opened(1)
    again = start_host().client()
    assert [again.wait(child)["phase"] for child in children] == ["cancelled", "succeeded"]
    again.close()


def test_a_job_that_has_ended_long_ago_decides_at_once(client, command):
    good, bad = client.submit_many([command("true"), command("false")])
    client.wait(good)
    client.wait(bad)
    wait_for(lambda: client.health()["live_jobs"] == 0, "they do not leave")
    after_good, after_bad = [client.submit(command("true", after=[parent])) for parent in (good, bad)]
    assert client.wait(after_good)["phase"] == "succeeded"
    assert client.job(after_bad)["reason"] == "dependency_failed"
    again = client.resubmit(after_bad)
    assert (client.wait(again)["phase"], client.job(again)["after"]) == ("succeeded", [])


def test_after_many_jobs_it_waits_for_all(client, command, gated):
    parent, opened = gated
    others = client.submit_many([command("true")] * 20)
    child = client.submit(command("true", after=[*others, parent]))
    for other in others:
        client.wait(other)
    assert client.job(child)["waiting"] == f"waits for job {parent} (running)"
    opened(0)
    assert client.wait(child)["phase"] == "succeeded"


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"after": ["zzzzzzzz"]}, "after", "there is no job 'zzzzzzzz'"),
        ({"after": ["#0"]}, "after", "#0 does not stand before job 0"),
        ({"after": ["#1"]}, "after", "#1 does not stand before job 0"),
        ({"after": ["x"], "after_when": "started"}, "after_when", "there is no 'started'"),
        ({"after_when": "finished"}, "after_when", "named by `after`"),
        ({"after": "x"}, "after", "Expected"),
    ],
)
def test_what_cannot_be_waited_for_is_refused(client, command, fields, field, words):
    with pytest.raises(BadRequest, match=words) as refused:
        client.submit(command("true", **fields))
    assert refused.value.field == field
    assert client.jobs() == []


def test_a_repeated_request_names_the_jobs_of_the_first(client, command, gated):
    parent, _ = gated
    batch = [
        command("true", after=[parent], idempotency_key="one"),
        command("true", after=["#0"], idempotency_key="two"),
    ]
    first = client.submit_many(batch)
    more = command("true", after=["#0"], idempotency_key="three")
    ids = client.submit_many([batch[0], more])
    assert ids[0] == first[0]
    assert client.job(ids[1])["after"] == [first[0]]
    assert client.submit_many(batch) == first


def test_a_terminal_says_what_a_job_is_to_start_after(client, command, gated, capsys):
    parent, opened = gated
    assert cli.main(["submit", "--gpus", "0", "--after", parent, "--after-when", "finished", "true"]) == 0
    child = capsys.readouterr().out.strip()
    assert cli.main(["show", child]) == 0
    assert f"after:     {parent}" in capsys.readouterr().out
    opened(1)
    client.wait(child)
    assert cli.main(["show", "--json", child]) == 0
    view = json.loads(capsys.readouterr().out)
    assert (view["phase"], view["after"]) == ("succeeded", [parent])


def test_who_waits_can_be_cancelled_and_its_record_deleted_before_the_parent_ends(client, command, gated):
    parent, opened = gated
    child = client.submit(command("true", after=[parent]))
    client.cancel(child)
    client.delete(child)
    opened(0)
    assert client.wait(parent)["phase"] == "succeeded"
    with pytest.raises(UnknownJob):
        client.job(child)
