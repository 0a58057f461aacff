"""Arrays, sweeps, holds and what acts on many, against a real host."""

from __future__ import annotations

import json
import os
import re

import pytest
from rest import Rest
from waiting import wait_for

import jupyter_gpusched as gs
from jupyter_gpusched import cli
from jupyter_gpusched.core.model import BadRequest, UnknownJob, WrongPhase
from jupyter_gpusched.sweeps import common_name


@pytest.fixture
def blocked(client, command):
    """All of both cards is taken; returns the job that has them."""
    first = client.submit(command("sleep", "60", vram="24564M", gpus=2, name="blocker"))
    wait_for(lambda: client.job(first)["phase"] == "running", "the first job does not start")
    return first


@pytest.fixture
def rest(client):
    rest = Rest(client.health()["socket"])
    yield rest
    rest.close()


def elements(count):
    return [{"sweep": {"n": number}} for number in range(count)]


def phases(client, array_id):
    return client.array(array_id)["phases"]


def test_elements_know_their_array_their_number_and_their_values(client, command):
    array_id, ids = client.submit_array(
        command("sh", "-c", "echo $GPUSCHED_ARRAY_ID $GPUSCHED_ARRAY_INDEX $GPUSCHED_SWEEP_N {n}", name="show-{n}"),
        [{"sweep": {"n": 7}}, {"sweep": {"n": "x y"}}],
    )
    assert [client.wait(job_id)["phase"] for job_id in ids] == ["succeeded"] * 2
    assert [client.log(job_id) for job_id in ids] == [
        f"{array_id} 0 7 7\n".encode(),
        f"{array_id} 1 x y x y\n".encode(),
    ]
    views = [client.job(job_id) for job_id in ids]
    assert [(view["array_id"], view["array_index"], view["sweep"], view["name"]) for view in views] == [
        (array_id, 0, {"n": 7}, "show-7"),
        (array_id, 1, {"n": "x y"}, "show-x y"),
    ]
    assert client.job(f"{array_id}[1]")["id"] == ids[1]
    assert [view["id"] for view in client.jobs(array=array_id)] == ids[::-1]


def test_no_more_run_at_a_time_than_the_throttle_says(client, command, tmp_path):
    (tmp_path / "in").mkdir()
    script = "touch in/$GPUSCHED_JOB_ID; ls in | wc -l; sleep 0.2; rm in/$GPUSCHED_JOB_ID"
    array_id, ids = client.submit_array(command("sh", "-c", script, vram="1G"), elements(8), throttle=2)
    assert [client.wait(job_id)["phase"] for job_id in ids] == ["succeeded"] * 8
    assert {int(client.log(job_id)) for job_id in ids} <= {1, 2}
    assert client.array(array_id)["throttle"] == 2


def test_an_array_is_kept_over_a_death_of_the_host(client, command, blocked, host, start_host):
    array_id, ids = client.submit_array(command("true"), elements(5), throttle=1)
    client.hold(f"{array_id}[3]", "later")
    host.kill()
    again = start_host().client()
    again.cancel(blocked, "0s")
    for number in (0, 1, 2, 4):
        assert again.wait(ids[number])["phase"] == "succeeded"
    held = again.job(ids[3])
    assert (held["phase"], held["held"]["cause"]) == ("queued", "later")
    again.release_job(array_id)
    assert again.wait(ids[3])["phase"] == "succeeded"
    again.close()


def test_all_or_some_of_an_array_are_acted_on(client, command, blocked):
    array_id, ids = client.submit_array(command("true"), elements(10))
    assert client.hold(array_id) == {"ids": ids}
    assert client.array(array_id) | {"user": "", "submitted_at": 0.0} == {
        "id": array_id, "name": "true", "user": "", "kind": "command", "count": 10, "phases": {"queued": 10},
        "held": 10, "throttle": None, "submitted_at": 0.0,
    }  # fmt: skip
    assert client.release_job(f"{array_id}[0-2,5]") == {"ids": [ids[0], ids[1], ids[2], ids[5]]}
    assert client.cancel(f"{array_id}[7]") == {"ids": [ids[7]]}
    assert client.cancel(array_id) == {"ids": [job_id for job_id in ids if job_id != ids[7]]}
    assert phases(client, array_id) == {"cancelled": 10}
    assert client.cancel(array_id) == {"ids": []}


@pytest.mark.parametrize("target", ["zzzzzzzz", "zzzzzzzz[0]", "ARRAY[99]"])
def test_what_is_not_there_cannot_be_acted_on(client, command, blocked, target):
    array_id, _ = client.submit_array(command("true"), elements(2))
    with pytest.raises(UnknownJob):
        client.cancel(target.replace("ARRAY", array_id))
    assert phases(client, array_id) == {"queued": 2}


def test_who_names_an_array_where_one_job_is_meant_is_told_so(client, command, blocked):
    array_id, _ = client.submit_array(command("true"), elements(2))
    for ask in (client.job, client.log, client.spec):
        with pytest.raises(UnknownJob, match="is no job but an array") as refused:
            ask(array_id)
        named = re.search(r"such as (\S+);", refused.value.hint)[1]
        assert client.job(named)["array_id"] == array_id


def test_of_elements_that_were_resubmitted_only_numbers_that_there_are_are_named(client, command, blocked):
    array_id, _ = client.submit_array(command("true"), elements(3))
    again = client.resubmit_any(f"{array_id}[2]", {})["array_id"]
    with pytest.raises(UnknownJob) as refused:
        client.log(again)
    assert f"such as {again}[2];" in refused.value.hint


def test_numbers_that_cannot_be_read_are_refused(client, command, blocked):
    array_id, _ = client.submit_array(command("true"), elements(2))
    with pytest.raises(BadRequest, match=r"\[x\] cannot be read"):
        client.cancel(f"{array_id}[x]")
    with pytest.raises(BadRequest, match="goes backwards"):
        client.cancel(f"{array_id}[1-0]")
    with pytest.raises(BadRequest, match="names 2 jobs, not one"):
        client.job(f"{array_id}[0-1]")


def test_the_rest_of_an_array_is_changed_in_one_call_or_not_at_all(client, command, blocked):
    array_id, ids = client.submit_array(command("true"), elements(4), throttle=2)
    client.cancel(ids[1])
    assert client.amend(array_id, {"priority": "low", "vram": "2G"}) == {"ids": [ids[0], ids[2], ids[3]]}
    assert [(view["priority"], view["vram_mib"]) for view in client.jobs(array=array_id)] == [
        ("low", 2048), ("low", 2048), ("normal", 1024), ("low", 2048),
    ]  # fmt: skip
    with pytest.raises(BadRequest, match="vram"):
        client.amend(array_id, {"vram": "99G"})
    assert client.amend(f"{array_id}[3]", {"priority": "high"}) == {"ids": [ids[3]]}
    assert gs.array(array_id).amend(priority="low")[3].view["priority"] == "low"
    assert gs.job(ids[0]).amend(name="first").view["name"] == "first"


def test_jobs_are_cancelled_by_a_pattern_of_their_names(client, command, blocked):
    ids = client.submit_many([command("true", name=f"run-{n}") for n in range(6)])
    other = client.submit(command("true", name="other"))
    assert client.act_by_name("hold", "run-[0-2]") == ids[:3]
    assert client.act_by_name("release", "*") == ids[:3]
    assert client.act_by_name("cancel", "run-*") == ids
    assert client.job(other)["phase"] == client.job(other)["phase"] == "queued"
    assert client.job(blocked)["phase"] == "running"


def test_only_jobs_that_wait_are_held(client, command, blocked):
    with pytest.raises(WrongPhase, match="only a job that waits can be held") as refused:
        client.hold(blocked)
    assert "cancel" in refused.value.hint
    waiting = client.submit(command("true"))
    view = client.hold(waiting, "first the other")
    assert view["held"]["cause"] == "first the other"
    assert f": first the other; `jupyter gpusched release {waiting}`" in view["waiting"]
    assert f"`%gpurelease {waiting}`" in view["waiting"]
    assert client.hold(waiting, "later")["held"]["cause"] == "later"
    assert client.release_job(waiting)["held"] is None


def test_those_that_failed_are_repeated_in_one_call_and_successes_are_not(client, command, tmp_path):
    array_id, ids = client.submit_array(
        command("sh", "-c", "test -e fixed || exit $(({n} % 2))", after=[]), elements(4)
    )
    for job_id in ids:
        client.wait(job_id)
    assert phases(client, array_id) == {"succeeded": 2, "failed": 2}
    (tmp_path / "fixed").touch()
    again = client.resubmit_any(array_id)
    views = [client.wait(job_id) for job_id in again["ids"]]
    assert [(view["phase"], view["array_index"], view["sweep"], view["parent_id"]) for view in views] == [
        ("succeeded", 1, {"n": 1}, ids[1]),
        ("succeeded", 3, {"n": 3}, ids[3]),
    ]
    assert {view["array_id"] for view in views} == {again["array_id"]} != {array_id}
    with pytest.raises(WrongPhase, match="nothing to be repeated"):
        client.resubmit_any(again["array_id"])
    third = client.resubmit_any(f"{array_id}[0]", {"name": "again"})
    assert client.wait(third["ids"][0])["name"] == "again"


def test_three_that_fail_at_once_hold_the_rest_until_they_are_released(client, command):
    array_id, ids = client.submit_array(command("false"), elements(10), throttle=1)
    wait_for(lambda: client.array(array_id)["held"] == 7, "the rest is not held")
    assert phases(client, array_id) == {"failed": 3, "queued": 7}
    view = client.job(ids[9])
    assert view["held"]["by"] == "gpusched"
    assert "3 jobs of its batch failed within 30s of their start in the same way" in view["waiting"]
    client.release_job(array_id)
    wait_for(lambda: phases(client, array_id)["failed"] == 6, "the released ones do not start")
    wait_for(lambda: client.array(array_id)["held"] == 4, "the rest is not held again")


def test_a_dependent_of_an_array_waits_for_all_of_it(client, command, blocked):
    array_id, ids = client.submit_array(command("true"), elements(3))
    child = client.submit(command("true", after=[array_id]))
    assert client.job(child)["after"] == ids
    client.cancel(blocked, "0s")
    assert client.wait(child)["phase"] == "succeeded"
    assert all(client.job(job_id)["phase"] == "succeeded" for job_id in ids)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"jobs": [{"argv": ["true"]}], "array": {"throttle": 0}}, "throttle"),
        ({"jobs": [{"argv": ["true"]}], "array": {"throttle": "2"}}, "array"),
        ({"jobs": [{"argv": ["true"]}], "array": {"surprise": 1}}, "array"),
        ({"jobs": [], "array": {}}, "jobs"),
        ({"jobs": [{"argv": ["true"]}], "more": 1}, "jobs"),
        ({"jobs": [{"argv": ["true"]}] * 10_001, "array": {}}, "jobs"),
        ({"jobs": [{}], "array": {"common": {"argv": ["true"], "vram": "4"}}}, "vram"),
        ({"jobs": [{"sweep": {"a b": 1}}], "array": {"common": {"argv": ["true"], "gpus": 0}}}, "sweep"),
        ({"jobs": [{"item": 1}], "array": {"common": {"argv": ["true"], "gpus": 0}}}, "item"),
    ],
)
def test_what_is_no_array_is_refused_and_queues_nothing(client, rest, body, field):
    refused = rest("POST", "jobs", body)
    assert (refused.status, refused.error["field"]) == (422, field)
    assert client.jobs() == []


def test_a_repeated_request_is_answered_with_the_first_array(client, command, blocked):
    own = [element | {"idempotency_key": f"k{number}"} for number, element in enumerate(elements(3))]
    first = client.submit_array(command("true"), own)
    assert client.submit_array(command("true"), own) == first


def test_what_all_bring_along_is_stored_once(client, host, own_environment):
    def area(item, big):
        return item * len(big)

    gs.map(area, [1], kwargs={"big": b""}, vram="1G")  # finds the host
    jobs = gs.map(area, range(20), kwargs={"big": os.urandom(2_000_000)}, vram="1G")
    files = [own_environment / "jobs" / job.id / "payload.pkl" for job in jobs]
    assert len({file.stat().st_ino for file in files}) == 1
    assert jobs.results() == [2_000_000 * number for number in range(20)]
    again = jobs[3].resubmit()
    assert again.result() == 6_000_000
    client.delete(jobs[3].id)
    assert jobs[4].resubmit().result() == 8_000_000


def test_a_terminal_submits_a_sweep_and_acts_on_it(client, host, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import sys; print(sys.argv[1:]); sys.exit(float(sys.argv[1]) > 1)")
    words = ["--vram", "1G", "--sweep", "lr=0.5,2", "seed=1..2", "--throttle", "1", "train.py", "{lr}", "{seed}"]
    assert cli.main(["submit", "--wait", *words]) == 1
    said = capsys.readouterr()
    array_id = said.out.strip()
    assert f"2 of 4 jobs of array {array_id} did not succeed" in said.err
    assert client.log(f"{array_id}[3]").startswith(b"['2', '2']")
    assert cli.main(["show", array_id]) == 0
    assert "4: 2 failed, 2 succeeded" in capsys.readouterr().out
    assert cli.main(["show", "--explain", array_id]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == f"{array_id}: 2 succeeded · 2 failed"
    assert told[1].startswith("2 failed ([2-3]): exit code 1; the first says: ['2', '1']")
    assert cli.main(["ls", "--array", array_id]) == 0
    assert "train.py[3]" in capsys.readouterr().out
    assert cli.main(["ls", "--array", array_id, "--phase", "running"]) == 0
    assert cli.main(["ls", "--array", "zzz"]) == 2
    assert "There is no job 'zzz'" in capsys.readouterr().err
    assert cli.main(["resubmit", "--gpus", "0", array_id]) == 2  # vram together with gpus 0
    assert "vram" in capsys.readouterr().err
    assert cli.main(["resubmit", "--json", array_id]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["count"] == 2
    assert cli.main(["cancel", again["id"]]) == 0
    assert "cancelled" in capsys.readouterr().out


def test_a_terminal_holds_and_releases_jobs_and_gives_cards_back(client, command, blocked, capsys):
    job_id = client.submit(command("true", name="run-1"))
    assert cli.main(["hold", "--cause", "wait", job_id]) == 0
    assert capsys.readouterr().out == f"{job_id} held\n"
    assert cli.main(["release", job_id, "zzzzzzzz"]) == 2
    said = capsys.readouterr()
    assert said.out == f"{job_id} released\n"
    assert "zzzzzzzz" in said.err
    assert cli.main(["hold", "--name", "run-*"]) == 0
    assert capsys.readouterr().out == "run-* 1 job held\n"
    assert cli.main(["quarantine", "1"]) == cli.main(["release", "1"]) == 0
    assert capsys.readouterr().out.endswith("ok SIMULATED\n")
    assert client.job(job_id)["held"] is not None
    assert cli.main(["hold"]) == 2


@pytest.mark.parametrize(
    ("names", "common"),
    [
        (["fit"] * 3, "fit"),
        (["run-1", "run-8"], "run"),
        (["fit 0.001", "fit 0.01"], "fit"),
        (["train lr=1", "train lr=2"], "train lr"),
        (["a", "b"], "a"),
    ],
)
def test_an_array_is_called_by_what_the_names_of_its_elements_have_in_common(names, common):
    assert common_name(names) == common


@pytest.mark.parametrize("numbers", ["0-999999", ",".join(["0-99999"] * 2000), "0-9" * 3])
def test_no_id_makes_the_host_count_to_a_billion(client, numbers):
    """All of the host would wait meanwhile."""
    for method in ("GET", "POST"):
        path = f"jobs/abcdefgh[{numbers}]" + ("/cancel" if method == "POST" else "")
        refused = Rest(client.health()["socket"])(method, path, {} if method == "POST" else None)
        assert (refused.status, refused.error["field"]) == (422, "id")


def test_no_pattern_of_names_is_longer_than_names_are(client):
    refused = Rest(client.health()["socket"])("POST", "jobs/cancel", {"name": "*a" * 10_000_000})
    assert (refused.status, refused.error["field"]) == (422, "name")
