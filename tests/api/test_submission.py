"""Submitting over the socket: what is accepted, what is refused, and that a refusal queues nothing."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from rest import Rest

from jupyter_gpusched import submission
from jupyter_gpusched.core.model import BadRequest, GpuSchedError, Kind, NeverFits, NotAvailable, UnknownJob, Work
from jupyter_gpusched.drafts import refuse_hidden


def test_a_command_runs_on_a_card_and_its_view_says_where(client, command):
    job_id = client.submit(command("sh", "-c", "echo $CUDA_VISIBLE_DEVICES", vram="4G"))
    view = client.wait(job_id)
    assert view["phase"] == "succeeded"
    assert view["exit_code"] == 0
    assert client.log(job_id).decode().strip() == view["gpus"][0]["uuid"]
    assert view["gpus"][0]["uuid"] in {gpu["uuid"] for gpu in client.gpus()}
    assert view["simulated"]


def test_a_job_that_asks_for_no_card_is_not_called_simulated(client):
    assert not client.job(client.submit({"argv": ["true"], "gpus": 0}))["simulated"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("vram", "4"), ("vram", "4g b"), ("vram", "-1G"), ("vram", "0"), ("vram", "0G"), ("vram", "nan"),
        ("vram", "1e99G"), ("vram", 4), ("gpus", "2"), ("gpus", -1), ("cpus", 0), ("memory", "lots"),
        ("time_limit", "90"), ("grace", "soon"), ("priority", "urgent"), ("retries", -1), ("env", {"A": 1}),
        ("cwd", "relative/folder"), ("cwd", "/no/such/folder"), ("python", "/no/such/python"), ("tags", "x"),
        ("gpu_model", "H100"), ("argv", []), ("argv", ""), ("surprise", 1),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_its_field_and_queues_nothing(client, command, field, value):
    with pytest.raises(BadRequest) as refused:
        client.submit(command("true") | {field: value})
    assert refused.value.field == field
    assert client.jobs() == []


@pytest.mark.parametrize(
    "fields",
    [{"notify": "mail"}],
)
def test_an_option_that_is_not_built_is_refused_and_never_ignored(client, command, fields):
    with pytest.raises(NotAvailable) as refused:
        client.submit(command("true") | fields)
    assert refused.value.field == next(iter(fields))
    assert client.jobs() == []


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"kind": "function"}, "payload"),
        ({"kind": "function", "payload": ""}, "payload"),
        ({"kind": "function", "payload": "eA==", "source": "1"}, "payload"),
        ({"kind": "function", "payload": "eA==", "outputs": ["x"]}, "outputs"),
        ({"kind": "notebook", "argv": ["x.ipynb"]}, "path"),
        ({"kind": "notebook", "path": "x.py"}, "path"),
        ({"path": "x.py", "parameters": {"n": 1}}, "parameters"),
        ({"path": "x.ipynb", "parameters": {"not a name": 1}}, "parameters"),
        ({"path": "x.ipynb", "parameters": {"class": 1}}, "parameters"),
        ({"path": "x.ipynb", "args": ["1"]}, "args"),
        ({"path": "x.ipynb"}, "path"),
    ],
)
def test_a_function_or_notebook_that_cannot_be_run_is_refused_by_its_field(client, tmp_path, fields, named):
    with pytest.raises(BadRequest) as refused:
        client.submit({"vram": "1G", "cwd": str(tmp_path), **fields})
    assert refused.value.field == named
    assert client.jobs() == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{broken", "JSON is broken"),
        ("[]", "format 4"),
        ('{"nbformat": 3, "worksheets": []}', "format 4"),
        ('{"nbformat": 4, "metadata": {}, "cells": []}', "no code cell"),
    ],
)
def test_a_file_that_is_no_notebook_is_refused(client, tmp_path, content, words):
    (tmp_path / "x.ipynb").write_text(content)
    with pytest.raises(BadRequest, match=words):
        client.submit({"vram": "1G", "cwd": str(tmp_path), "path": "x.ipynb"})
    assert client.jobs() == []


def test_parameters_for_a_notebook_of_another_language_are_refused(client, tmp_path):
    content = (
        '{"nbformat": 4, "metadata": {"kernelspec": {"name": "ir", "language": "R"}}, "cells": [{"cell_type": "code"}]}'
    )
    (tmp_path / "x.ipynb").write_text(content)
    with pytest.raises(BadRequest, match="only Python notebooks"):
        client.submit({"vram": "1G", "cwd": str(tmp_path), "path": "x.ipynb", "parameters": {"n": 1}})


@pytest.mark.parametrize("vram", ["24G", "24GB", "99G"])
def test_a_request_that_no_card_can_hold_is_refused_with_the_largest_amount(client, command, vram):
    with pytest.raises(NeverFits) as refused:
        client.submit(command("true", vram=vram))
    assert "24564 MiB" in refused.value.hint
    assert client.jobs() == []


def test_more_cards_than_there_are_is_refused(client, command):
    with pytest.raises(NeverFits) as refused:
        client.submit(command("true", gpus=3))
    assert refused.value.field == "gpus"


def test_vram_without_a_card_is_refused(client, command):
    with pytest.raises(BadRequest) as refused:
        client.submit(command("true", gpus=0))
    assert refused.value.field == "vram"


def test_a_missing_script_is_refused_with_the_place_where_it_was_looked_for(client, tmp_path):
    with pytest.raises(BadRequest) as refused:
        client.submit({"path": "train.py", "cwd": str(tmp_path), "vram": "1G"})
    assert refused.value.field == "path"
    assert str(tmp_path / "train.py") in refused.value.message


def test_a_folder_or_script_that_the_job_would_not_see_is_refused_before_anything_is_queued(tmp_path):
    (tmp_path / "t.py").write_text("")
    hides = lambda path: "lies in /tmp" if path.startswith(str(tmp_path)) else None  # noqa: E731
    script = Work(Kind.SCRIPT, "/", {}, path=str(tmp_path / "t.py"))
    for work, field in ((Work(Kind.COMMAND, str(tmp_path), {}, argv=("true",)), "cwd"), (script, "path")):
        with pytest.raises(BadRequest, match="lies in /tmp") as refused:
            refuse_hidden(work, hides)
        assert refused.value.field == field
    refuse_hidden(Work(Kind.SCRIPT, "/", {}, path="t.py"), hides)


def test_an_empty_cell_is_refused(client):
    with pytest.raises(BadRequest) as refused:
        client.submit({"source": " \n", "vram": "1G"})
    assert refused.value.field == "source"


def test_a_batch_is_queued_whole_or_not_at_all(client, command):
    good, bad = command("true"), command("true", vram="99G")
    with pytest.raises(NeverFits) as refused:
        client.submit_many([good, good, bad])
    assert "2" in refused.value.message
    assert client.jobs() == []
    assert len(set(client.submit_many([good] * 20))) == 20


def test_a_submission_that_is_sent_twice_is_queued_once(client, command):
    spec = command("true", idempotency_key="once")
    assert client.submit(spec) == client.submit(spec)
    assert len(client.jobs()) == 1


def test_submissions_at_the_same_moment_get_different_ids(host, command):
    def one(_number: int) -> str:
        return host.client().submit(command("true", gpus=0) | {"vram": None})

    with ThreadPoolExecutor(20) as pool:
        ids = list(pool.map(one, range(200)))
    assert len(set(ids)) == 200


def test_an_unknown_id_and_a_malformed_one_are_answered_alike(client):
    for job_id in ("abcdefgh", "..%2f..", "a" * 300, "x'--"):
        for call in (client.job, client.log, client.cancel, client.outputs):
            with pytest.raises(UnknownJob):
                call(job_id)


def test_without_cards_a_job_with_vram_is_refused_and_one_without_a_gpu_runs(start_host, command):
    client = start_host(None).client()
    cause = client.health()["gpu_cause"]
    assert cause
    with pytest.raises(BadRequest) as refused:
        client.submit(command("true", vram="1G"))
    assert cause in refused.value.message
    job_id = client.submit({k: v for k, v in command("true", gpus=0).items() if k != "vram"})
    assert client.wait(job_id)["phase"] == "succeeded"


def test_a_client_that_asks_for_another_simulation_is_refused_naming_both(host, monkeypatch):
    from jupyter_gpusched.client import Client

    monkeypatch.setenv("GPUSCHED_SIMULATE", "1x8G")
    with pytest.raises(GpuSchedError) as refused:
        Client.connect().gpus()
    assert "1x8G" in refused.value.message
    assert "2x24564M" in refused.value.message


def test_arguments_reach_the_process_as_they_were_given(client, command):
    argv = ["My File.txt", 'Mc\'L "x"', "$HOME", "*", "", "é 中"]
    job_id = client.submit(command(sys.executable, "-c", "import sys;print(sys.argv[1:])", *argv))
    client.wait(job_id)
    assert client.log(job_id).decode().strip() == str(argv)


def test_a_string_goes_to_the_shell_and_the_record_says_so(client, command):
    job_id = client.submit(command() | {"argv": "echo $((1 + 1)) | cat"})
    assert client.wait(job_id)["phase"] == "succeeded"
    assert client.log(job_id) == b"2\n"
    assert client.spec(job_id)["argv"] == "echo $((1 + 1)) | cat"


def test_the_list_is_newest_first_and_can_be_paged_and_filtered(client, command):
    ids = [client.submit(command("true", name=f"job {n}")) for n in range(5)]
    for job_id in ids:
        client.wait(job_id)
    assert [view["id"] for view in client.jobs()] == ids[::-1]
    assert [view["id"] for view in client.jobs(limit=2)] == ids[:2:-1]
    assert [view["name"] for view in client.jobs(name="job 3")] == ["job 3"]
    assert client.jobs(phase="failed") == []


def test_a_batch_queues_in_the_order_in_which_it_was_given(client, command):
    blockers = client.submit_many([command("sleep", "60", vram="24564M")] * 2)
    ids = client.submit_many([command("true", gpus=2, vram="24564M", name=f"n{n}") for n in range(6)])
    assert [client.job(job_id)["position"] for job_id in ids] == [1, 2, 3, 4, 5, 6]
    for job_id in blockers:
        client.cancel(job_id, grace="0s")
    ends = [client.wait(job_id)["started_at"] for job_id in ids]
    assert ends == sorted(ends)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("# first\nimport x\nmodel = train(data)  # on all of it", "model = train(data)"),
        ("f('#1', \"a # b\")#c", "f('#1', \"a # b\")"),
        ("f('it\\'s # 1') # c", "f('it\\'s # 1')"),
        ("!make # all", "!make # all"),
    ],
)
def test_a_cell_job_is_called_by_its_first_line_without_the_comment(source, name):
    job, *_ = submission.read_job({"source": source}, job_id="1", owner="me", now=0.0, home="/")
    assert job.name == name


@pytest.mark.parametrize("array", [None, {}])
def test_more_jobs_at_a_time_than_can_be_written_down_at_once_are_refused(client, array):
    """All others would wait meanwhile."""
    asked = {"jobs": [{"argv": ["true"], "gpus": 0}] * 10_001} | ({} if array is None else {"array": array})
    refused = Rest(client.health()["socket"])("POST", "jobs", asked)
    assert (refused.status, refused.error["field"]) == (422, "jobs")
    assert "at most 10000" in refused.error["message"]
    assert client.jobs() == []
