"""Names from hell: users who differ by a sign that some language takes for a pattern, and jobs called anything."""

from __future__ import annotations

import os
from urllib.parse import quote

import pytest
from waiting import wait_for

pytestmark = pytest.mark.hub

USERS = ("a_b", "axb", "a.b", "a", "a_", "jörg-ünal", "case", "Case", "longest")
JOBS = (
    "../../../etc/passwd", "/etc/passwd", "'; DROP TABLE job; --", '" OR "1"="1', "%", "_", "*", "?", "[a-z]", ".",
    "..", "a/b", "a%2Fb", "%00", "<img src=x onerror=alert(1)>", "{{7*7}}", "${HOME}", "$(id)", "`id`", "--name",
    "\\", "ü" * 100, "\U0001f4a9", "NULL", "x" * 200,
)  # fmt: skip
REFUSED = ("\u202eevil", "x" * 255, "a\nb", "\0", "")
NO_IDS = ("..", "%2e%2e", "a%00b", "a%2f..%2fb", "x" * 4000, "jobs/jobs", "*", "%25")


@pytest.fixture(scope="module")
def crowd(bed, hub):
    """Tokens of users, by name."""
    names = [bed.add_user(f"gs{os.getpid()}{name}".ljust(32 if name == "longest" else 0, "x")) for name in USERS]
    for name in names:
        assert hub.api("POST", f"users/{quote(name)}").status == 201
    return {name: hub.token(name) for name in names}


def test_each_user_has_exactly_their_own_jobs(hub, crowd):
    jobs = {}
    for name, token in crowd.items():
        reply = hub.service("POST", "jobs", token, {"argv": ["id", "-un"], "gpus": 0})
        assert reply.status == 201, reply
        jobs[name] = reply.json["id"]
    for name, token in crowd.items():
        for other, job_id in jobs.items():
            assert hub.service("GET", f"jobs/{job_id}", token).status == (200 if other == name else 404)
            listed = hub.service("GET", f"jobs?user={quote(other)}", token).json["items"]
            assert [view["id"] for view in listed] == ([job_id] if other == name else [])
        view = wait_for(lambda: _ended(hub, token, jobs[name]), "the job does not end")  # noqa: B023
        assert (view["phase"], view["user"]) == ("succeeded", name), view
        assert hub.service("GET", f"jobs/{jobs[name]}/log", token).body.decode() == f"{name}\n"


def _ended(hub, token, job_id):
    view = hub.service("GET", f"jobs/{job_id}", token).json
    return view if view["ended_at"] else None


def test_a_user_whose_name_must_be_escaped_works_in_a_server_as_any_other(hub, crowd):
    name = next(name for name in crowd if name.endswith("ünal"))
    user = hub.start_server(name)
    job_id = user.submit("sh", "-c", "pwd")
    assert user.wait(job_id)["phase"] == "succeeded"
    assert user.log(job_id).strip() == user.account.pw_dir
    assert user.kernel.run(f"%gpulogs {job_id}").strip() == user.account.pw_dir


@pytest.mark.parametrize("name", JOBS)
def test_a_job_may_have_any_name_and_is_found_by_it(ann, name):
    job_id = ann.submit("true", name=name, gpus=0)
    assert ann.job(job_id)["name"] == name
    found = ann("GET", f"jobs?name={quote(name, safe='')}").json["items"]
    assert job_id in {view["id"] for view in found}
    assert all(name in view["name"] for view in found)


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_cannot_be_shown_in_one_line_is_refused(ann, name):
    reply = ann("POST", "jobs", {"argv": ["true"], "gpus": 0, "name": name})
    assert reply.status == 422
    assert reply.json["error"]["field"] == "name"


@pytest.mark.parametrize("path", NO_IDS)
def test_an_address_that_is_no_id_is_as_unknown_as_any(ann, hub, path):
    for send in (ann, lambda *asked: hub.service(*asked, ann.token)):
        reply = send("GET", f"jobs/{path}")
        assert reply.status in (400, 403, 404), reply
        assert b"Traceback" not in reply.body
