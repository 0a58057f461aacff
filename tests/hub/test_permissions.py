"""Case 39 through the Hub: own, foreign, unknown, administrator; at every address, in every frame, by every magic."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from urllib.parse import quote

import pytest
from bed import Browser, ask
from waiting import wait_for

from jupyter_gpusched.api import PATHS
from jupyter_gpusched.wire import PREFIX

pytestmark = pytest.mark.hub

UNKNOWN = "zzzzzzzz"
SECRET = "only-for-the-owner"
BODIES = {"PATCH": {"priority": "low"}}

OF_JOBS = sorted(
    (method, path)
    for path, handler in PATHS
    if path.startswith("jobs/(")
    for method in handler.methods()
)  # fmt: skip
READ = sorted(path for method, path in OF_JOBS if method == "GET")
QUERIES = {"log": ("attempt=1", "after=0"), "outputs": ("attempt=1", "newest=10"), "events": ("cursor=0",)}
"""More than one way to ask for what a job left behind."""

OF_ADMINISTRATORS = sorted(
    (method, path) for path, handler in PATHS if path.startswith("admin/") for method in handler.methods()
)


def address(path, job_id):
    """The path with the id of a job in its place, and a name that no result has."""
    return path.replace("([^/]+)", job_id, 1).replace("([^/]+)", "no-such-result")


@pytest.fixture(scope="module")
def busy(ann):
    """CPUs enough are taken that jobs which ask for most of them wait."""
    job_id = ann.submit("sleep", "600", gpus=0, cpus=4)
    wait_for(lambda: ann.job(job_id)["phase"] == "running", "the job does not start")
    yield
    ann("POST", f"jobs/{job_id}/cancel", {"grace": "0s"})


def waiting_job(user):
    return user.submit("sh", "-c", f"echo {SECRET}", name=SECRET, gpus=0, cpus=6, tags=[SECRET], env={"S": SECRET})


def steady(view):
    return {key: view[key] for key in ("phase", "name", "priority", "ended_at", "attempts", "tags")}


@pytest.fixture(scope="module")
def ended(ann):
    job_id = ann.submit("sh", "-c", f"echo {SECRET}", name=SECRET, tags=[SECRET])
    assert ann.wait(job_id)["phase"] == "succeeded"
    return job_id


@pytest.mark.parametrize(("method", "path"), OF_JOBS)
def test_at_every_address_of_a_job_a_foreign_id_answers_like_an_unknown_one(ann, bob, adm, busy, method, path):
    job_id = waiting_job(ann)
    before = steady(ann.job(job_id))
    body = BODIES.get(method) if method == "PATCH" else {} if method == "POST" else None
    foreign, unknown = (bob(method, address(path, one), body) for one in (job_id, UNKNOWN))
    assert foreign.status == unknown.status == 404
    assert foreign.body.decode().replace(job_id, UNKNOWN) == unknown.body.decode()
    assert steady(ann.job(job_id)) == before
    by_admin = adm(method, address(path, job_id), body)
    other_id = waiting_job(ann)
    by_owner = ann(method, address(path, other_id), body)
    assert by_admin.status == by_owner.status, (by_admin, by_owner)
    assert by_admin.status != 404 or "unknown_result" in by_admin.body.decode()
    for left in (job_id, other_id):
        ann("POST", f"jobs/{left}/cancel", {})


@pytest.fixture(scope="module")
def array(ann, busy):
    """An array of ann's that waits, all of it."""
    spec = {"argv": ["sh", "-c", f"echo {SECRET}"], "gpus": 0, "cpus": 6, "name": SECRET}
    reply = ann("POST", "jobs", {"jobs": [spec] * 2, "array": {}})
    assert reply.status == 201, reply
    yield reply.json["array_id"]
    ann("POST", f"jobs/{reply.json['array_id']}/cancel", {})


def test_an_array_is_its_owners_as_a_job_is(ann, bob, adm, array):
    foreign, unknown = (bob("GET", f"arrays/{one}") for one in (array, UNKNOWN))
    assert foreign.status == unknown.status == 404
    assert foreign.body.decode().replace(array, UNKNOWN) == unknown.body.decode()
    by_owner, by_admin = (user("GET", f"arrays/{array}") for user in (ann, adm))
    assert by_owner.status == by_admin.status == 200
    assert by_owner.json["id"] == array


@pytest.mark.parametrize("element", ["", "[0]", "[0,1]", "[0-1]"])
@pytest.mark.parametrize(("method", "path"), OF_JOBS)
def test_nor_is_any_of_it_known_to_others_by_its_elements(ann, bob, array, method, path, element):
    before = [steady(view) for view in ann("GET", "jobs?limit=1000").json["items"] if view["array_id"] == array]
    assert len(before) == 2
    body = BODIES.get(method) if method == "PATCH" else {} if method == "POST" else None
    foreign, unknown = (bob(method, address(path, quote(one + element)), body) for one in (array, UNKNOWN))
    assert foreign.status == unknown.status == 404, foreign
    assert foreign.body.decode().replace(array, UNKNOWN) == unknown.body.decode()
    after = [steady(view) for view in ann("GET", "jobs?limit=1000").json["items"] if view["array_id"] == array]
    assert after == before


@pytest.mark.parametrize(("path", "query"), [(path, query) for path, more in QUERIES.items() for query in more])
def test_nor_does_it_help_to_ask_for_a_part_of_what_a_job_left(ann, bob, adm, ended, path, query):
    foreign, unknown = (bob("GET", f"jobs/{one}/{path}?{query}") for one in (ended, UNKNOWN))
    assert foreign.status == unknown.status == 404
    assert foreign.body.decode().replace(ended, UNKNOWN) == unknown.body.decode()
    assert [user("GET", f"jobs/{ended}/{path}?{query}").status for user in (ann, adm)] == [200, 200]


@pytest.mark.parametrize("act", ["cancel", "hold", "release"])
def test_acts_by_name_reach_the_callers_own_jobs_only(ann, bob, busy, act):
    job_id = waiting_job(ann)
    before = ann.job(job_id)
    reply = bob("POST", f"jobs/{act}", {"name": "*"})
    assert (reply.status, reply.json["ids"]) == (200, []), "there is none of bob's"
    after = ann.job(job_id)
    assert (after["phase"], after["held"]) == (before["phase"], before["held"]) == ("queued", None)
    ann("POST", f"jobs/{job_id}/cancel", {})


@pytest.mark.parametrize(("method", "path"), OF_ADMINISTRATORS)
def test_only_administrators_run_the_machine(ann, method, path):
    refused = ann(method, path, {})
    assert refused.status == 403, refused
    assert refused.json["error"]["code"] == "not_allowed"


ASKED = {"admin/quarantine": {"gpu": "0", "cause": "a test"}, "admin/drain": {"cause": "a test"}}


@pytest.mark.parametrize(("method", "path"), OF_ADMINISTRATORS)
def test_and_they_do_it_through_the_hub(adm, method, path):
    try:
        reply = adm(method, path, ASKED.get(path, {}) if method == "POST" else None)
        assert reply.status == 200, reply
    finally:
        adm("POST", "admin/resume", {})
        adm("POST", "admin/quarantine", {"gpu": "0", "release": True})


def test_an_administrators_act_is_in_the_events_of_the_job_with_who_did_it(ann, adm, busy):
    job_id = waiting_job(ann)
    assert adm("POST", f"jobs/{job_id}/cancel", {}).status == 200
    told = ann("GET", f"jobs/{job_id}/events").json["items"]
    assert adm.name in json.dumps(told)


def test_lists_are_of_the_callers_own_jobs(ann, bob, ended):
    assert ended in {view["id"] for view in ann("GET", "jobs").json["items"]}
    for query in ("", f"?user={ann.name}", "?name=only", f"?user={quote(ann.name + '%')}", "?user=*"):
        told = bob("GET", f"jobs{query}").body.decode()
        assert ended not in told
        assert SECRET not in told


def test_everybody_sees_who_holds_a_card_and_nothing_of_what_it_is_for(ann, bob, adm):
    job_id = ann.submit("sleep", "600", name=SECRET, vram="2G")
    try:
        wait_for(lambda: ann.job(job_id)["phase"] == "running", "the job does not start")
        for user, sees in ((ann, True), (adm, True), (bob, False)):
            cards = user("GET", "gpus").json["items"]
            holder = next(holder for card in cards for holder in card["holders"] if holder["user"] == ann.name)
            assert holder["promised_mib"] == 2048
            assert holder["since"] is not None
            assert (holder["job_id"] == job_id) is sees
            assert (SECRET in json.dumps(cards)) is sees
    finally:
        ann("POST", f"jobs/{job_id}/cancel", {"grace": "0s"})


def test_no_frame_of_a_stream_tells_of_a_foreign_job(ann, bob):
    """The WebSocket of bob's page, and the stream that a program reads."""
    headers = {"Authorization": f"token {bob.token}"}
    connection = http.client.HTTPConnection(ann.hub.url.removeprefix("http://"), timeout=60)
    connection.request("GET", f"/user/{quote(bob.name)}{PREFIX}/events", headers=headers)
    seen = []
    with closing(connection), bob.stream() as frames:
        lines = connection.getresponse()
        frames.until(lambda frame: seen.append(frame) or frame["type"] == "snapshot")
        seen.append(json.loads(lines.readline()))
        foreign = ann.submit("sh", "-c", f"echo {SECRET}", name=SECRET)
        ann.wait(foreign)
        own = bob.submit("true", name="mine")

        def is_own(frame):
            return frame["type"] == "job" and (frame["job"]["id"], frame["job"]["phase"]) == (own, "succeeded")

        frames.until(lambda frame: seen.append(frame) or is_own(frame))
        while not is_own(seen[-1]):
            line = lines.readline()
            if line.strip():
                seen.append(json.loads(line))
    told = json.dumps(seen)
    assert own in told
    assert foreign not in told
    assert SECRET not in told


MAGICS = ["%gpulogs {}", "%gpulogs {} -f", "%gpucancel {}", "%gpuresult {}", "jupyter_gpusched.job('{}')"]


@pytest.mark.parametrize("magic", MAGICS)
def test_every_magic_answers_to_a_foreign_id_as_to_an_unknown_one(bob, ended, magic):
    foreign, unknown = (bob.kernel.run(magic.format(one)) for one in (ended, UNKNOWN))
    assert "There is no job" in foreign
    assert foreign.replace(ended, UNKNOWN) == unknown


AFTER = ["%gpujob --gpus 0 --after {} ! true", "jupyter_gpusched.submit(['true'], gpus=0, after=['{}'])"]


@pytest.mark.parametrize("way", AFTER)
def test_nobody_waits_for_a_foreign_job(bob, ended, way):
    foreign, unknown = (bob.kernel.run(way.format(one)) for one in (ended, UNKNOWN))
    assert f"there is no job '{ended}'" in foreign
    assert foreign.replace(ended, UNKNOWN) == unknown


def test_the_lists_of_the_magics_are_of_the_callers_own_jobs(ann, bob, ended):
    assert ended in ann.kernel.run("%gpujobs")
    for magic in ("%gpujobs", "%gpus", "print(jupyter_gpusched.jobs())", "print(jupyter_gpusched.gpus())"):
        told = bob.kernel.run(magic)
        assert "Error" not in told, told
        assert ended not in told
        assert SECRET not in told


def test_an_administrator_ends_a_foreign_job_from_python_and_its_owner_reads_who_did(ann, adm, busy):
    job_id = waiting_job(ann)
    told = adm.kernel.run(f"job = jupyter_gpusched.job('{job_id}')\njob.cancel()\nprint(job.wait(30).status)")
    assert "cancelled" in told, told
    assert adm.name in ann.job(job_id)["message"]


def test_the_owner_and_an_administrator_read_the_log_by_magic(ann, adm, ended):
    for user in (ann, adm):
        assert user.kernel.run(f"%gpulogs {ended}").strip() == SECRET


@pytest.mark.parametrize(("method", "path"), [(m, p) for p, h in PATHS for m in h.methods()])
def test_without_identity_nothing_is_answered(hub, method, path):
    for token in (None, "bogus"):
        reply = hub.service(method, address(path, UNKNOWN), token, {} if method in ("POST", "PATCH") else None)
        assert reply.status == 401, reply
        assert reply.json["error"]["code"] == "unauthorized"


def test_a_token_without_the_scope_is_told_which_one(hub, people):
    token = hub.token(people["ann"], "access:servers!user")
    reply = hub.service("GET", "jobs", token)
    assert reply.status == 403
    assert "access:services!service=gpusched" in reply.json["error"]["message"]


def test_the_service_is_reached_through_the_hubs_own_address_too(hub, ann):
    reply = ask("GET", f"{hub.url}/services/gpusched{PREFIX}/health", ann.token)
    assert reply.status == 200
    assert reply.json["kind"] == "hub"


def test_headers_of_a_request_say_nothing_of_who_asks(hub, bob, people, ended):
    tricks = dict.fromkeys(("X-Forwarded-User", "Remote-User", "X-Gpusched-User"), people["ann"])
    tricks |= {"X-Real-IP": "127.0.0.1", "Forwarded": "for=127.0.0.1"}
    for send in (bob, lambda *asked, **headers: hub.service(*asked, bob.token, **headers)):
        assert send("GET", f"jobs/{ended}", **tricks).status == 404
        mine = send("GET", f"jobs?user={people['ann']}", **tricks).json["items"]
        assert mine == []


def test_in_anothers_server_nobody_acts_not_even_an_administrator(ann, bob, adm):
    assert ask("GET", f"{ann.base}{PREFIX}/gpus", bob.token).status == 403
    admins = ask("GET", f"{ann.base}{PREFIX}/gpus", ann.hub.token(adm.name))
    assert admins.status == 403
    assert ask("GET", f"{ann.base}{PREFIX}/gpus", ann.token).status == 200


def test_a_page_submits_with_its_cookie_only_together_with_the_xsrf_value(hub, ann):
    """Case 40: what the browser sends by itself is not enough, and the protection is not switched off anywhere."""
    browser = Browser(hub, ann.name)
    job = {"argv": ["true"], "vram": "1G"}
    assert browser.ask("POST", "jobs", job).status == 403
    assert browser.ask("POST", "jobs", job, **{"X-XSRFToken": "wrong"}).status == 403
    assert browser.ask("POST", "jobs", job, **{"X-XSRFToken": browser.xsrf()}).status == 201
    assert browser.ask("GET", "gpus").status == 200
