"""The REST interface to the letter: what can be asked, and that every refusal says what to do."""

from __future__ import annotations

import json
import os
import re

import pytest
from rest import Rest
from waiting import wait_for

from jupyter_gpusched.api import PATHS
from jupyter_gpusched.openapi import OPERATIONS, document

WHOLE = "24564M"


@pytest.fixture
def rest(host):
    rest = Rest(host.client().health()["socket"])
    yield rest
    rest.close()


@pytest.fixture
def waiting_job(client, command):
    """A job that cannot start, since another one has all of both cards."""
    client.submit(command("sleep", "60", vram=WHOLE, gpus=2))
    return client.submit(command("true", vram="2G", name="waits", priority="low", time_limit="1000000s"))


def ended(client, spec):
    """A job that has ended and whose memory is freed."""
    job_id = client.submit(spec)
    client.wait(job_id)
    wait_for(lambda: not any(gpu["holders"] for gpu in client.gpus()), "the memory is not freed")
    return job_id


# --- what is there ------------------------------------------------------------------------


def test_health_says_who_hosts(rest, host):
    health = rest("GET", "health").json
    assert health["status"] == "ok"
    assert health["pid"] == host.pid
    wanted = {"status", "version", "api", "instance", "pid", "state_dir", "simulated", "causes", "cpus", "memory_mib"}
    assert wanted <= set(health)


def test_the_document_and_the_paths_that_are_served_are_the_same():
    served = {
        (method.lower(), re.sub(r"\(\[\^/\]\+\)", "{}", path)) for path, kind in PATHS for method in kind.methods()
    }
    described = {(operation.method, re.sub(r"{\w+}", "{}", operation.path)) for operation in OPERATIONS}
    assert served == described


def test_the_document_is_served_and_names_every_type_it_uses(rest):
    served = rest("GET", "openapi.json")
    assert served.json == json.loads(document())
    used = set(re.findall(r"#/components/schemas/(\w+)", served.body.decode()))
    assert used <= set(served.json["components"]["schemas"])


@pytest.mark.parametrize("path", ["leases", "metrics/x", "", "jobs/", "jobs/a/b/c/d"])
def test_what_is_not_there_answers_404_in_json(rest, path):
    refused = rest("GET", path)
    assert refused.status == 404
    assert refused.error["code"] == "not_found"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("POST", "health", "GET"), ("PUT", "jobs", "GET, POST"), ("DELETE", "jobs", "GET, POST"),
     ("PATCH", "events", "GET")],
)  # fmt: skip
def test_another_method_is_refused_with_the_ones_that_are_answered(rest, method, path, allowed):
    refused = rest(method, path, {})
    assert (refused.status, refused.headers["Allow"]) == (405, allowed)
    assert allowed in refused.error["hint"]


# --- what is sent -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [b"{", b"null", b"[]", b"7", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"argv": ["\\ud800"]}', b'{"gpus": NaN}',
     b"argv=true", b'{"jobs": {}}', b'{"jobs": [1]}', b'{"jobs": []}', b'{"jobs": [], "vram": "1G"}',
     b'{"argv": ["a\\u0000b"]}',
     b'{"argv": ["true"], "cwd": "/a\\u0000b"}', b'{"path": "a\\u0000.py"}', b'{"argv": ["x"], "gpus": 1e400}',
     b'{"argv": ["x"], "gpus": 99999999999999999999999}', b'{"argv": ["true"], "cwd": "/' + b"x" * 5000 + b'"}',
     b'{"path": "' + b"x" * 5000 + b'.py"}', b'{"argv": ["true"], "env": {"A\\u0000": "b"}}'],
    ids=lambda body: body[:30].decode(errors="replace"),
)  # fmt: skip
def test_a_body_that_is_no_job_is_refused_and_queues_nothing(rest, client, body):
    refused = rest("POST", "jobs", body)
    assert refused.status == 422
    assert refused.error["message"]
    assert client.jobs() == []


def test_a_body_that_is_too_large_is_read_to_its_end_and_refused(rest):
    size = 513 * 2**20
    pieces = (b" " * 2**20 for _ in range(size // 2**20))
    rest._connection.request(
        "POST", "/gpusched/api/v1/jobs", body=pieces, headers={"Content-Length": str(size)}, encode_chunked=False
    )
    answer = rest._connection.getresponse()
    assert answer.status == 413
    assert json.loads(answer.read())["error"]["code"] == "too_large"
    assert rest("GET", "health").status == 200


@pytest.mark.parametrize("part", [b"[],", b"{},", b"1,1,1,1,"])
def test_a_body_of_very_many_parts_is_refused_without_being_decoded(rest, client, part):
    refused = rest("POST", "jobs", b'{"argv": ["true"], "x": [' + part * 2**20 + b"1]}")
    assert (refused.status, refused.error["code"]) == (413, "too_large")
    assert client.jobs() == []


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("jobs?phase=asleep", "phase"), ("jobs?limit=many", "limit"), ("jobs?limit=-1", "limit"),
        ("jobs?cursor=x", "cursor"), ("jobs?cursor=nan~a", "cursor"), ("events?after=soon", "after"),
        ("jobs/ID?wait=running", "wait"), ("jobs/ID/log?attempt=7", "attempt"), ("jobs/ID/outputs?after=-1", "after"),
    ],
)  # fmt: skip
def test_a_query_that_means_nothing_is_refused_by_its_name(rest, waiting_job, path, field):
    refused = rest("GET", path.replace("ID", waiting_job))
    assert (refused.status, refused.error["field"]) == (422, field)


def test_pages_give_every_job_once_newest_first_while_others_come(rest, client, command):
    ids = client.submit_many([command("true", gpus=0, vram=None, name="n") for _ in range(25)])
    seen, cursor = [], ""
    while cursor is not None:
        page = rest("GET", f"jobs?limit=10&name=n{cursor and '&cursor='}{cursor}").json
        seen += [view["id"] for view in page["items"]]
        cursor = page["next_cursor"]
        client.submit(command("true", gpus=0, vram=None, name="n"))
    assert seen == ids[::-1]


def test_the_jobs_of_another_user_are_not_listed(rest, waiting_job):
    assert rest("GET", "jobs?user=somebody").json == {"items": [], "next_cursor": None}


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "jobs/zzzz9999"), ("PATCH", "jobs/zzzz9999"), ("DELETE", "jobs/zzzz9999"),
     ("POST", "jobs/zzzz9999/cancel"),
     ("POST", "jobs/zzzz9999/resubmit"), ("GET", "jobs/zzzz9999/log"), ("GET", "jobs/zzzz9999/spec"),
     ("GET", "jobs/..%2F..%2Fx/log"), ("GET", "jobs/%00")],
)  # fmt: skip
def test_an_unknown_id_answers_404(rest, method, path):
    refused = rest(method, path, {} if method != "GET" else None)
    assert (refused.status, refused.error["code"]) == (404, "unknown_job")


def test_a_result_is_found_by_a_name_and_never_by_a_path(rest, waiting_job):
    for name in ("x", "..%2F..%2Fspec", "..%2Fpayload"):
        assert rest("GET", f"jobs/{waiting_job}/result/{name}").error["code"] == "unknown_result"


# --- PATCH --------------------------------------------------------------------------------


def test_a_queued_job_can_be_changed(rest, client, waiting_job):
    before = client.job(waiting_job)
    changes = {"name": "new", "vram": "3G", "priority": "high", "tags": ["a"], "retries": 2, "time_limit": "5m"}
    answer = rest("PATCH", f"jobs/{waiting_job}", changes)
    assert answer.status == 200
    assert answer.json == client.job(waiting_job)
    expected = {"name": "new", "vram_mib": 3072, "priority": "high", "tags": ["a"]}
    assert {key: answer.json[key] for key in expected} == expected
    assert answer.json["submitted_at"] == before["submitted_at"]
    spec = client.spec(waiting_job)
    assert (spec["retries"], spec["time_limit"]) == (2, "300s")
    assert [view["id"] for view in rest("GET", "jobs?name=new").json["items"]] == [waiting_job]


def test_what_is_not_mentioned_stays_and_null_is_the_default(rest, client, waiting_job):
    rest("PATCH", f"jobs/{waiting_job}", {"name": "other"})
    assert client.spec(waiting_job)["time_limit"] == "1000000s"
    rest("PATCH", f"jobs/{waiting_job}", {"time_limit": None, "vram": None, "priority": None})
    assert "time_limit" not in client.spec(waiting_job)
    view = client.job(waiting_job)
    assert (view["vram_mib"], view["priority"], view["name"]) == (None, "normal", "other")


def test_a_change_lets_a_job_start_that_could_not(rest, client, command):
    client.submit(command("sleep", "60", vram="20G", gpus=2))
    job_id = client.submit(command("true", vram="20G"))
    assert client.job(job_id)["phase"] == "queued"
    rest("PATCH", f"jobs/{job_id}", {"vram": "1G"})
    assert client.wait(job_id)["phase"] == "succeeded"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"argv": ["false"]}, "argv"), ({"cwd": "/"}, "cwd"), ({"env": {}}, "env"), ({"vram": "4"}, "vram"),
        ({"vram": "99G"}, "vram"), ({"gpus": 0}, "vram"), ({"surprise": 1}, "surprise"), ({"retries": -1}, "retries"),
        ({"vram": "auto"}, "vram"), ({"name": ""}, "name"), ([], None), ("x", None),
    ],
)  # fmt: skip
def test_a_change_that_cannot_be_is_refused_and_changes_nothing(rest, client, waiting_job, changes, field):
    before = client.spec(waiting_job)
    refused = rest("PATCH", f"jobs/{waiting_job}", changes)
    assert (refused.status, refused.error["field"]) == (422, field)
    assert client.spec(waiting_job) == before


def test_a_job_that_waits_no_more_cannot_be_changed_and_the_hint_says_what_to_do(rest, client, command):
    running = client.submit(command("sleep", "60"))
    wait_for(lambda: client.job(running)["phase"] == "running", "it does not start")
    refused = rest("PATCH", f"jobs/{running}", {"vram": "2G"})
    assert (refused.status, refused.error["code"]) == (409, "wrong_phase")
    assert "resubmit" in refused.error["hint"]
    client.cancel(running, "0s")
    client.wait(running)
    assert rest("PATCH", f"jobs/{running}", {"vram": "2G"}).status == 409


# --- DELETE -------------------------------------------------------------------------------


def test_a_final_job_is_deleted_with_its_files(rest, client, command, own_environment):
    job_id = ended(client, command("echo", "hello"))
    folder = own_environment / "jobs" / job_id
    assert folder.exists()
    answer = rest("DELETE", f"jobs/{job_id}")
    assert (answer.status, answer.body) == (204, b"")
    assert not folder.exists()
    assert rest("GET", f"jobs/{job_id}").status == rest("DELETE", f"jobs/{job_id}").status == 404
    assert client.jobs() == []


def test_a_live_job_is_not_deleted(rest, client, waiting_job):
    refused = rest("DELETE", f"jobs/{waiting_job}")
    assert (refused.status, refused.error["code"]) == (409, "wrong_phase")
    assert "Cancel it first" in refused.error["hint"]
    assert client.job(waiting_job)["phase"] == "queued"


def test_listeners_hear_of_a_deletion_and_learn_nothing_of_what_it_was(rest, client, command):
    job_id = ended(client, command("echo", "hello", name="secret"))
    with rest.events() as events:
        stream = iter(events)
        assert next(stream)["type"] == "snapshot"
        rest("DELETE", f"jobs/{job_id}")
        frame = next(frame for frame in stream if frame["type"] == "job")
    assert (frame["event"], frame["job"]["id"], frame["job"]["name"]) == ("deleted", job_id, "")
    with rest.events(after=0) as again:
        assert "secret" not in json.dumps(next(iter(again)))


# --- resubmit -----------------------------------------------------------------------------


def test_the_same_work_runs_again_as_a_child_of_the_old_job(rest, client, command, tmp_path):
    old = ended(
        client, command("sh", "-c", f"echo $STAGE >> {tmp_path}/out", name="n", env=dict(os.environ) | {"STAGE": "1"})
    )
    answer = rest("POST", f"jobs/{old}/resubmit")
    assert answer.status == 201
    view = client.wait(answer.json["id"])
    assert (view["phase"], view["parent_id"], view["name"], view["vram_mib"]) == ("succeeded", old, "n", 1024)
    assert (tmp_path / "out").read_text() == "1\n1\n"


def test_a_live_job_can_be_resubmitted_with_changes(rest, client, waiting_job):
    new = rest("POST", f"jobs/{waiting_job}/resubmit", {"vram": "5G", "name": None, "time_limit": "1h"}).json["id"]
    view = client.job(new)
    assert (view["vram_mib"], view["name"], view["parent_id"]) == (5120, "true", waiting_job)
    assert client.job(waiting_job)["vram_mib"] == 2048


def test_captured_values_come_along(rest, client, command, tmp_path):
    import base64

    import cloudpickle

    payload = base64.b64encode(cloudpickle.dumps({"x": 20})).decode()
    cell = {"source": "y = x + 1", "payload": payload, "outputs": ["y"], "cwd": str(tmp_path), "env": dict(os.environ)}
    old = client.submit(cell | {"vram": "1G"})
    assert client.wait(old)["phase"] == "succeeded"
    new = client.resubmit(old, {"source": "y = x + 2"})
    assert client.wait(new)["phase"] == "succeeded", client.log(new)
    assert rest("GET", f"jobs/{new}/result/y").status == 200


def test_a_resubmission_whose_values_are_gone_is_refused(rest, client, own_environment, command, tmp_path):
    old = client.submit({"source": "x", "payload": "eA==", "cwd": str(tmp_path), "gpus": 0})
    client.wait(old)
    (own_environment / "jobs" / old / "payload.pkl").unlink()
    refused = rest("POST", f"jobs/{old}/resubmit")
    assert (refused.status, refused.error["field"]) == (422, "payload")


@pytest.mark.parametrize("changes", [{"vram": "99G"}, {"surprise": 1}, {"argv": []}, {"argv": None}, [], 3])
def test_a_resubmission_is_checked_like_a_submission(rest, client, waiting_job, changes):
    count = len(client.jobs())
    assert rest("POST", f"jobs/{waiting_job}/resubmit", changes).status == 422
    assert len(client.jobs()) == count


def test_a_resubmission_may_be_repeated_by_its_key(rest, waiting_job):
    first, second = (rest("POST", f"jobs/{waiting_job}/resubmit", {"idempotency_key": "k"}).json for _ in range(2))
    assert first == second


def test_a_notebook_runs_again_as_it_was_although_the_file_has_gone(client, command, tmp_path):
    import nbformat

    cells = [nbformat.v4.new_code_cell("print('as it was')")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "report.ipynb")
    spec = command(path="report.ipynb", kind="notebook", gpus=0, vram=None)
    old = client.submit({field: value for field, value in spec.items() if field != "argv"})
    (tmp_path / "report.ipynb").unlink()
    new = client.resubmit(old)
    assert client.wait(new)["phase"] == "succeeded", client.log(new)
    assert b"as it was" in client.log(new)


# --- text that is none --------------------------------------------------------------------

HALF = "\ud83d"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("source", f"x=1 # {HALF}"), ("argv", ["true", "\udcff"]), ("argv", HALF), ("name", HALF), ("env", {HALF: "a"}),
        ("env", {"A": HALF}), ("cwd", f"/{HALF}"), ("idempotency_key", HALF), ("tags", [HALF]), ("notebook", HALF),
        ("python", HALF), ("args", [HALF]), ("source", "x\0"), ("argv", "echo \0"), ("idempotency_key", "\0"),
        ("python", "/\0"),
    ],
)  # fmt: skip
def test_what_is_no_text_is_refused_by_its_field(field, value):
    from jupyter_gpusched.core.model import BadRequest
    from jupyter_gpusched.submission import read_spec

    with pytest.raises(BadRequest) as refused:
        read_spec({field: value})
    assert refused.value.field == field
    refused.value.message.encode()


def test_half_a_character_leaves_the_host_at_work(rest, client, host, command):
    body = json.dumps({"source": f"x=1 # {HALF}", "vram": "1G", "name": "a longer rest of the body"}).encode()
    assert rest("POST", "jobs", body).status == 422
    assert rest("POST", "jobs", json.dumps({HALF + "xxxxxxxx": 1, "vram": "1G"}).encode()).status == 422
    assert client.wait(client.submit(command("true")))["phase"] == "succeeded"
    assert client.health()["pid"] == host.pid


def read(raw):
    from jupyter_gpusched.submission import read_job

    return read_job(raw, job_id="a", owner="o", now=0.0, home="/")


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"argv": ["x", "a" * 131072]}, "argv"), ({"argv": "a" * 131072}, "argv"),
        ({"path": "x", "args": ["é" * 66000]}, "args"),
        ({"argv": ["x"], "env": {"A": "b" * 131070}}, "env"), ({"argv": ["a" * 100_000] * 200}, "argv"),
        ({"argv": ["x"], "env": {str(n): "b" * 100_000 for n in range(200)}}, "env"),
    ],
    ids=range(6),
)  # fmt: skip
def test_what_no_program_can_be_given_is_refused_at_once(raw, field):
    from jupyter_gpusched.core.model import BadRequest

    with pytest.raises(BadRequest) as refused:
        read(raw)
    assert refused.value.field == field
    assert "KiB" in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize("source", ["x = (", "\nfor x in y\n  pass", "return 1", "x = 1 +", "a b"])
def test_a_cell_that_is_no_python_is_refused_with_its_line(source):
    from jupyter_gpusched.core.model import BadRequest

    with pytest.raises(BadRequest, match="source: line") as refused:
        read({"source": source})
    assert refused.value.field == "source"


@pytest.mark.parametrize(
    "source",
    ["await f()", "%time x", "!ls", "x = !ls", "?x", "x?", "  x = 1\n  y = 2", ">>> x = 1", "%%bash\nx y", "x = %who",
     "'\\d'"],
)  # fmt: skip
def test_a_cell_in_ipythons_own_syntax_is_left_to_the_job(source):
    read({"source": source})


def test_a_kernel_has_read_its_cell_itself():
    read({"source": "a b", "python": "/usr/bin/python3"})


@pytest.mark.parametrize("size", [0, 1, 2, 3, 3 * 2**20, 3 * 2**20 + 1])
def test_values_are_decoded_piece_by_piece(size):
    import base64

    from jupyter_gpusched.core.model import BadRequest

    data = os.urandom(size)
    text = base64.b64encode(data).decode()
    assert read({"source": "x", "payload": text})[2] == data
    if size > 3:
        with pytest.raises(BadRequest):
            read({"source": "x", "payload": text[: 2**20 - 1] + "=" + text[2**20 :]})


def test_a_job_over_rest_finds_the_owners_surroundings(rest, client):
    import pwd

    entry = pwd.getpwuid(os.geteuid())
    line = "echo $HOME $USER $LOGNAME $SHELL ${PATH:+path} ${LANG:+lang}"
    ids = [rest("POST", "jobs", {"argv": line, "gpus": 0, **more}).json["id"] for more in ({}, {"env": {"HOME": "/x"}})]
    for job_id, home in zip(ids, (entry.pw_dir, "/x"), strict=True):
        assert client.wait(job_id)["phase"] == "succeeded"
        name = entry.pw_name
        assert client.log(job_id).decode().split() == [home, name, name, entry.pw_shell, "path", "lang"]


def test_large_bodies_are_read_and_those_above_the_limit_refused(rest, client):
    body = {"source": "x", "gpus": 0, "payload": "!" * (2 * 2**20)}
    assert rest("POST", "jobs", body).error["field"] == "payload"
    assert client.jobs() == []
