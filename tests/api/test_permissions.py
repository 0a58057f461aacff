"""Who may what (case 39): every route against one's own, another's and an unknown job, for user, admin and nobody.

A new route that is not in the table fails a test.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest
from many_users import lab
from rest import UnixConnection
from waiting import wait_for

from jupyter_gpusched.api import PATHS
from jupyter_gpusched.core.model import Foreign, Opener
from jupyter_gpusched.wire import PREFIX

SECRET = "secret-of-ann"
UNKNOWN = "aaaaaaaa"


@dataclass(frozen=True)
class Row:
    """One method of one route. ``own``: what its owner is answered; ``phase``: of which job of ann's it is asked."""

    method: str
    path: str
    own: int
    body: Any = None
    phase: str = "running"
    for_admins: bool = False


TABLE = [
    Row("GET", "health", 200),
    Row("GET", "gpus", 200),
    Row("GET", "gpus/history", 200),
    Row("GET", "jobs", 200),
    Row("POST", "jobs", 201, {"argv": ["true"], "gpus": 0}),
    Row("GET", "jobs/{id}", 200),
    Row("PATCH", "jobs/{id}", 200, {"priority": "low"}, phase="queued"),
    Row("DELETE", "jobs/{id}", 204, phase="succeeded"),
    Row("POST", "jobs/{id}/cancel", 200, {"grace": "0s"}),
    Row("POST", "jobs/{id}/hold", 200, {}, phase="queued"),
    Row("POST", "jobs/{id}/release", 200, {}, phase="queued"),
    Row("POST", "jobs/{id}/resubmit", 201, {}),
    Row("POST", "jobs/cancel", 200, {"name": "secret*"}),
    Row("POST", "jobs/hold", 200, {"name": "secret*"}),
    Row("POST", "jobs/release", 200, {"name": "secret*"}),
    Row("GET", "arrays/{id}", 200, phase="array"),
    Row("GET", "jobs/{id}/log", 200),
    Row("GET", "jobs/{id}/outputs", 200),
    Row("GET", "jobs/{id}/result/x", 404),
    Row("GET", "jobs/{id}/spec", 200),
    Row("GET", "jobs/{id}/memory", 200),
    Row("GET", "jobs/{id}/timeline", 200),
    Row("GET", "jobs/{id}/events", 200),
    Row("GET", "alerts", 200),
    Row("GET", "reservations", 200),
    Row("POST", "reservations", 201, {"gpus": 1, "zone": "UTC", "for": "1h"}, for_admins=True),
    Row("DELETE", "reservations/{id}", 404, for_admins=True),
    Row("POST", "admin/quarantine", 200, {"gpu": 1}, for_admins=True),
    Row("POST", "admin/drain", 200, {}, for_admins=True),
    Row("POST", "admin/resume", 200, {}, for_admins=True),
    Row("GET", "limits", 200),
    Row("GET", "admin/limits", 200, for_admins=True),
    Row("POST", "admin/limits", 200, {}, for_admins=True),
    Row("GET", "admin/report", 200, for_admins=True),
    Row("GET", "admin/events", 200, for_admins=True),
    Row("GET", "events", 200),
    Row("GET", "metrics", 200),
    Row("GET", "openapi.json", 200),
]
OF_JOBS = [row for row in TABLE if "{id}" in row.path and not row.for_admins]
OF_ADMINS = [row for row in TABLE if row.for_admins]


@pytest.fixture
def queue(own_environment, tmp_path):
    with lab(own_environment, tmp_path) as running:
        yield running


def of_ann(queue, phase):
    """A job of ann's in this phase whose name, output and environment are nobody's business; or an array of such."""
    if phase == "array":
        spec = {"argv": ["sleep", "600"], "gpus": 0, "name": SECRET, "env": {"WORD": SECRET}}
        reply = queue.ask("ann", "POST", "jobs", {"jobs": [spec, spec], "array": {}})
        assert reply.status == 201, reply.body
        return reply.json["array_id"]
    needs = {"gpus": 2} if phase == "queued" else {"gpus": 1, "vram": "1G"} if phase == "running" else {}
    if phase == "queued":  # both cards are whole only when nothing else is there
        queue.submit("ann", "sleep", "600", gpus=1, vram="1G")
    code = "echo secret-of-ann; sleep 600" if phase != "succeeded" else "echo secret-of-ann"
    job = queue.submit("ann", "sh", "-c", code, name=SECRET, env={"WORD": SECRET}, tags=[SECRET], **needs)
    wait_for(lambda: queue.ask("ann", "GET", f"jobs/{job}").json["phase"] == phase, f"it does not become {phase}")
    return job


def named(path):
    """A route's pattern in the form of the table."""
    first, found, rest = path.partition("([^/]+)")
    return first + "{id}" + rest.replace("([^/]+)", "x") if found else path


def test_every_method_of_every_route_has_its_row():
    routes = {(method, named(path)) for path, handler in PATHS for method in handler.methods()}
    assert routes == {(row.method, row.path) for row in TABLE}


@pytest.mark.parametrize("row", OF_JOBS, ids=lambda row: f"{row.method} {row.path}")
def test_anothers_job_is_as_unknown_as_one_that_never_was_and_an_admin_may_do_what_its_owner_may(queue, row):
    job = of_ann(queue, row.phase)
    absent = queue.ask("bob", row.method, row.path.format(id=UNKNOWN), row.body)
    foreign = queue.ask("bob", row.method, row.path.format(id=job), row.body)
    assert absent.status == 404
    assert seen(foreign, job) == seen(absent, job)
    assert SECRET not in foreign.body.decode()
    assert queue.ask(None, row.method, row.path.format(id=job), row.body).status == 401
    if row.phase != "array":
        again = queue.ask("ann", "GET", f"jobs/{job}")
        assert (again.status, again.json["phase"]) == (200, row.phase), "nothing has happened to it"
    assert queue.ask("root2", row.method, row.path.format(id=job), row.body).status == row.own
    if row.method == "GET":
        assert queue.ask("ann", row.method, row.path.format(id=job), row.body).status == row.own


def seen(reply, job):
    headers = {name: value for name, value in reply.headers.items() if name not in ("Date", "Etag")}
    return reply.status, reply.body.decode().replace(job, UNKNOWN), headers


@pytest.mark.parametrize(
    ("method", "path", "what"),
    [
        ("GET", "admin/report", "see the report of all users"),
        ("GET", "admin/events", "see who did what"),
        ("GET", "admin/limits", "see the limits of all users"),
        ("POST", "admin/limits", "have the limits read again"),
        ("POST", "admin/drain", "drain this machine"),
    ],
)
def test_whoever_may_not_is_told_what_was_asked_for_and_who_may(queue, method, path, what):
    error = queue.ask("bob", method, path).json["error"]
    assert error["message"] == f"Only administrators may {what}."
    assert error["hint"] == "Administrators here: root2."


@pytest.mark.parametrize("row", OF_ADMINS, ids=lambda row: f"{row.method} {row.path}")
def test_the_machine_is_run_by_administrators_alone(queue, row):
    refused = queue.ask("bob", row.method, row.path, row.body)
    assert (refused.status, "root2" in refused.json["error"]["hint"]) == (403, True)
    assert queue.ask(None, row.method, row.path, row.body).status == 401
    assert queue.ask("root2", row.method, row.path, row.body).status == row.own


@pytest.mark.parametrize(
    "row",
    [row for row in TABLE if row not in OF_JOBS and row not in OF_ADMINS],
    ids=lambda row: f"{row.method} {row.path}",
)
def test_what_is_everybodys_says_of_others_who_holds_how_much_since_when_and_nothing_else(queue, row):
    job = of_ann(queue, "running")
    assert queue.ask(None, row.method, row.path, row.body).status == 401
    if row.path == "events":
        return  # endless; below
    for query in ("", "?user=ann", "?name=secret-of-ann") if row.path == "jobs" and row.method == "GET" else ("",):
        told = queue.ask("bob", row.method, row.path + query, row.body)
        assert told.status == row.own
        assert SECRET not in told.body.decode()
        assert job not in told.body.decode()
    assert queue.ask("ann", "GET", f"jobs/{job}").json["phase"] == "running", "nobody acts on another's by its name"


ON_ARRAYS = [
    ("GET", "arrays/{id}", 200),
    ("POST", "jobs/{id}/hold", 200),
    ("POST", "jobs/{id}[0-1]/release", 200),
    ("POST", "jobs/{id}/cancel", 200),
    ("POST", "jobs/{id}[0]/resubmit", 201),
]


@pytest.mark.parametrize(("method", "path", "own"), ON_ARRAYS, ids=str)
def test_anothers_array_is_as_unknown_as_one_that_never_was(queue, method, path, own):
    spec = {"argv": ["sleep", "600"], "gpus": 1, "name": SECRET}
    asked = queue.ask("ann", "POST", "jobs", {"jobs": [spec, spec, spec], "array": {}})
    assert asked.status == 201
    array = asked.json["array_id"]
    absent, foreign = (queue.ask("bob", method, path.format(id=one), {}) for one in (UNKNOWN, array))
    assert absent.status == 404
    assert seen(foreign, array) == seen(absent, array)
    assert queue.ask("ann", "GET", f"arrays/{array}").json["held"] == 0, "nothing has happened to it"
    assert queue.ask("root2", method, path.format(id=array), {}).status == own


def test_a_card_shows_whose_the_memory_is_and_its_owner_and_admins_which_job(queue):
    job = of_ann(queue, "running")

    def holders(user):
        return [one for gpu in queue.ask(user, "GET", "gpus").json["items"] for one in gpu["holders"]]

    (foreign,), (own,), (admins) = holders("bob"), holders("ann"), holders("root2")
    assert (foreign["user"], foreign["promised_mib"], foreign["job_id"]) == ("ann", 1024, None)
    assert foreign["since"] == own["since"]
    assert own["job_id"] == admins[0]["job_id"] == job
    assert [one["mine"] for one in (foreign, own, admins[0])] == [False, True, False], "to see is not to own"


def test_everybody_is_told_who_one_is_and_whether_one_runs_the_machine(queue):
    told = [queue.ask(user, "GET", "health").json for user in ("ann", "root2")]
    assert [(one["user"], one["admin"]) for one in told] == [("ann", False), ("root2", True)]


def test_what_is_to_be_mended_on_the_machine_is_told_to_administrators_alone(queue):
    desk = queue.desk
    desk.means = replace(desk.means, counted_only="the service may not turn on controllers")
    (notice,) = queue.ask("root2", "GET", "health").json["notices"]
    assert notice == "Host memory and CPUs of jobs are counted, not limited: the service may not turn on controllers."
    told = queue.ask("bob", "GET", "health").json
    assert (told["notices"], told["host_limits"]) == ([], "counted"), "what it means for them, not how to mend it"
    desk.means = replace(desk.means, counted_only=None, limits_host=True)
    assert queue.ask("bob", "GET", "health").json["host_limits"] == "limited"


def test_what_others_run_beside_the_queue_is_told_to_nobody_but_them_and_administrators(queue):
    """A process that the driver lists, and one that only has the device open: who, how much, since when."""
    listed = Foreign(4711, 2048, "ann", 1.0, kernel=True, notebook=f"/home/ann/{SECRET}.ipynb")
    opener = Opener(4712, SECRET, "ann")
    provider = queue.desk.engine.gpus
    look = provider.sample

    async def sample(grants, *, now):
        cards = await look(grants, now=now)
        seen = {"used": 8192, "free": 16372, "unattributed": 6144, "device_file": "/dev/nvidia0"}
        return (replace(cards[0], foreign=(listed,), opened_by=(opener,), **seen), *cards[1:])

    provider.sample = sample
    mine = queue.submit("bob", "true", gpus=2)

    def alert(user):
        return next(iter(queue.ask(user, "GET", "alerts").json["items"]), None)

    wait_for(lambda: alert("bob"), "there is no alert")
    told = [queue.ask("bob", "GET", path).body.decode() for path in ("gpus", "alerts", f"jobs/{mine}", "jobs")]
    told.append(json.dumps(frames_until(queue, "bob", "events", lambda frame: frame["type"] == "gpus")))
    told.append(json.dumps(frames_until(queue, "bob", "events?after=0", lambda frame: frame["type"] == "alert")))
    assert not any(SECRET in one for one in told)
    assert "pid 4712 (of ann)" in alert("bob")["message"]
    for user in ("ann", "root2"):
        card = queue.ask(user, "GET", "gpus").json["items"][0]
        assert SECRET in card["holders"][0]["notebook"]
        assert card["opened_by"] == [{"pid": 4712, "program": SECRET, "user": "ann"}]
    assert SECRET in alert("root2")["message"]


def test_lists_are_of_ones_own_jobs_and_an_admin_may_ask_for_everybodys(queue):
    job = of_ann(queue, "running")
    mine = queue.submit("bob", "true")

    def ids(user, query=""):
        return {view["id"] for view in queue.ask(user, "GET", f"jobs{query}").json["items"]}

    assert ids("bob") == ids("bob", "?user=bob") == {mine}
    assert ids("bob", "?user=ann") == set()
    assert ids("root2") == set()
    assert ids("root2", "?user=ann") == {job}
    assert ids("root2", "?all_users=1") == {job, mine}
    assert queue.ask("bob", "GET", "jobs?all_users=1").status == 403
    assert queue.ask("bob", "GET", "events?all_users=1").status == 403


def frames_until(queue, user, path, stop):
    """The frames of a stream up to the first for which ``stop`` holds."""
    connection = UnixConnection(str(queue.host.socket))
    connection.request("GET", f"{PREFIX}/{path}", headers={"X-User": user})
    response = connection.getresponse()
    found = []
    try:
        while line := response.readline():
            if line.strip():
                found.append(json.loads(line))
                if stop(found[-1]):
                    return found
    finally:
        connection.close()
    raise AssertionError("the stream ended")


@pytest.mark.parametrize("path", ["events", "events?after=0"])
def test_a_stream_tells_of_others_nothing_but_what_cards_show(queue, path):
    job = of_ann(queue, "running")
    queue.ask("ann", "POST", f"jobs/{job}/cancel", {"grace": "0s"})
    wait_for(lambda: queue.ask("ann", "GET", f"jobs/{job}").json["phase"] == "cancelled", "it does not end")
    done = of_ann(queue, "succeeded")
    assert queue.ask("ann", "DELETE", f"jobs/{done}").status == 204
    mine = {user: queue.submit(user, "sleep", "600") for user in ("bob", "ann")}

    def tells_of(job_id):
        return lambda frame: any(one and one["id"] == job_id for one in frame.get("jobs") or [frame.get("job")])

    told = json.dumps(frames_until(queue, "bob", path, tells_of(mine["bob"])))
    assert not any(word in told for word in (SECRET, job, done, mine["ann"]))
    told = json.dumps(frames_until(queue, "ann", path, tells_of(mine["ann"])))
    assert mine["bob"] not in told
    assert (job in told) is (path != "events"), "the journal has it"
    with_all = f"{path}{'&' if '?' in path else '?'}all_users=1"
    assert mine["ann"] in json.dumps(frames_until(queue, "root2", with_all, tells_of(mine["ann"])))


def test_anothers_array_and_its_elements_are_unknown_however_they_are_asked_after(queue):
    elements = {"jobs": [{"argv": ["sleep", "600"], "gpus": 0, "name": SECRET}] * 2, "array": {"throttle": 1}}
    array = queue.ask("ann", "POST", "jobs", elements).json["array_id"]
    ways = [("GET", "arrays/{}"), ("POST", "jobs/{}/cancel"), ("POST", "jobs/{}/hold"), ("POST", "jobs/{}/resubmit"),
            ("POST", "jobs/{}[0]/cancel"), ("GET", "jobs/{}[0]"), ("GET", "jobs/{}[0]/log")]  # fmt: skip
    for method, path in ways:
        body = {} if method == "POST" else None
        foreign = queue.ask("bob", method, path.format(array), body)
        absent = queue.ask("bob", method, path.format(UNKNOWN), body)
        assert foreign.status == 404
        assert seen(foreign, array) == seen(absent, array), path
    assert queue.ask("bob", "GET", f"jobs?array={array}").json["items"] == []
    assert queue.ask("ann", "GET", f"arrays/{array}").json["phases"].keys() <= {"running", "starting", "queued"}
    assert len(queue.ask("root2", "POST", f"jobs/{array}/cancel", {"grace": "0s"}).json["ids"]) == 2


def test_nobody_waits_for_anothers_job(queue):
    job = of_ann(queue, "running")
    told = [
        queue.ask("bob", "POST", "jobs", {"argv": ["true"], "gpus": 0, "after": [after]}) for after in (job, UNKNOWN)
    ]
    assert [reply.status for reply in told] == [422, 422]
    assert seen(told[0], job) == seen(told[1], job)


def test_names_from_hell_are_exact_keys_and_nothing_more(queue):
    names = ["ann", "Ann", "ann ", "an", "ann%2Fx", "../ann", "%", "_", "*", "ann' OR '1'='1", "a" * 255, "?user=ann"]
    jobs = {name: queue.submit(name, "true", name=f"of {name}"[:100]) for name in names}
    for name in names:
        listed = [view["id"] for view in queue.ask(name, "GET", "jobs").json["items"]]
        known = name.strip()  # what HTTP makes of a header
        assert listed == [job for other, job in reversed(jobs.items()) if other.strip() == known], name
        for other, job in jobs.items():
            assert queue.ask(name, "GET", f"jobs/{job}").status == (200 if other.strip() == known else 404)


def test_an_idempotency_key_is_its_owners_alone(queue):
    first = queue.submit("ann", "true", idempotency_key="k")
    assert queue.submit("bob", "true", idempotency_key="k") != first
    assert queue.submit("ann", "true", idempotency_key="k") == first


def test_what_an_admin_did_is_told_and_in_the_journal_with_the_name(queue):
    job = of_ann(queue, "running")
    queue.ask("root2", "POST", f"jobs/{job}/cancel", {"grace": "0s"})
    wait_for(lambda: queue.ask("ann", "GET", f"jobs/{job}").json["phase"] == "cancelled", "it does not end")
    assert "root2" in queue.ask("ann", "GET", f"jobs/{job}").json["message"]
    events = queue.ask("ann", "GET", f"jobs/{job}/events").json["items"]
    assert {"by": "root2"} in [event["detail"] for event in events if event["kind"] == "cancel_requested"]
