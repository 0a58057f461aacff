"""Story 4, a course with more students than cards: through a real Hub, on simulated cards, hours in seconds."""

from __future__ import annotations

import os
import signal
from urllib.parse import quote

import pytest
from bed import Hub
from waiting import wait_for

pytestmark = pytest.mark.hub

STUDENTS = 30
AT_ONCE = 20
"""Jobs of 2G on four cards of 11G."""

LIMITS = """
[everybody]
running_jobs = 1
queued_jobs = 10
longest_time = "10s"      # ten minutes, with the clock compressed
"""


class Course:
    """Students and a teacher, each by a token of their own."""

    def __init__(self, hub, tokens, teacher):
        self.hub, self.tokens, self.teacher = hub, tokens, teacher

    def ask(self, student, method, path, body=None):
        return self.hub.service(method, path, self.tokens[student], body)

    def submit(self, student, *argv, **fields):
        reply = self.ask(student, "POST", "jobs", {"argv": list(argv), "vram": "2G"} | fields)
        assert reply.status == 201, reply
        return reply.json["id"]

    def views(self):
        """Every job of every student, by what its owner sees."""
        return [view for student in self.tokens for view in self.ask(student, "GET", "jobs").json["items"]]

    def when_all_ended(self):
        def ended():
            views = self.views()
            return views if all(view["ended_at"] for view in views) else None

        return wait_for(ended, "not all jobs end", deadline_s=240)


@pytest.fixture(scope="module")
def course(bed, people, place):
    limits = place / "limits.toml"
    limits.write_text(LIMITS)
    options = (f"--GpuSched.limits={limits}",)
    hub = Hub(bed, place / "course", (), admins=(people["adm"],), simulate="4x11G", options=options)
    try:
        hub.wait_for_service()
        names = [bed.add_user(f"gs{os.getpid()}s{number}") for number in range(STUDENTS)]
        for name in (*names, people["adm"]):
            hub.api("POST", f"users/{quote(name)}")
        hub.api("PATCH", f"users/{quote(people['adm'])}", {"admin": True})
        yield Course(hub, {name: hub.token(name) for name in names}, hub.token(people["adm"]))
    finally:
        hub.close()


def test_everybody_may_see_the_limits_and_a_refusal_tells_them(course):
    """Step 1."""
    student = next(iter(course.tokens))
    shown = course.ask(student, "GET", "limits")
    assert shown.status == 200
    assert (shown.json["limits"]["running_jobs"], shown.json["limits"]["queued_jobs"]) == (1, 10)
    too_long = course.ask(student, "POST", "jobs", {"argv": ["true"], "vram": "2G", "time_limit": "1h"})
    assert too_long.status == 422
    assert "10s" in str(too_long.json) or "10 s" in str(too_long.json), too_long.json
    many = course.ask(student, "POST", "jobs", {"jobs": [{"argv": ["true"], "vram": "2G"}] * 11})
    assert many.status in (403, 422), many
    assert "10" in many.json["error"]["message"]


def test_a_homework_hour(course):
    """Steps 3 and 8: the machine is drained, everybody submits, the service dies, and then everybody gets a turn."""
    hub = course.hub
    assert hub.service("POST", "admin/drain", course.teacher, {"cause": "maintenance"}).status == 200
    for student in course.tokens:  # two each, one student after the other
        for _ in range(2):
            course.submit(student, "sleep", "0.5")
    waiting = course.views()
    assert {view["phase"] for view in waiting} == {"queued"}
    assert all("maintenance" in view["waiting"] for view in waiting)
    assert len({view["position"] for view in waiting}) == 2 * STUDENTS
    before = hub.wait_for_service()
    os.kill(before, signal.SIGKILL)
    hub.wait_for_service(other_than=before)
    assert {view["id"]: view["phase"] for view in course.views()} == {view["id"]: "queued" for view in waiting}
    assert hub.service("POST", "admin/resume", course.teacher, {}).status == 200
    ended = course.when_all_ended()
    assert {view["phase"] for view in ended} == {"succeeded"}
    turns = [view["user"] for view in sorted(ended, key=lambda view: view["started_at"])]
    assert len(set(turns[:AT_ONCE])) == AT_ONCE, "somebody got two at once"


@pytest.mark.parametrize(
    ("asked", "told"), [({"vram": "12G"}, "10.7G|11G|11264"), ({"vram": "2 GBs"}, "4G|512M|GiB")]
)  # fmt: skip
def test_what_cannot_be_is_refused_at_once_with_what_can(course, asked, told):
    """Step 4."""
    student = next(iter(course.tokens))
    reply = course.ask(student, "POST", "jobs", {"argv": ["true"]} | asked)
    assert reply.status == 422
    error = reply.json["error"]
    assert error["field"] == "vram"
    assert any(word in f"{error['message']} {error['hint']}" for word in told.split("|")), error


def test_a_loop_that_never_ends_is_ended_at_its_limit_and_its_place_is_free_again(course):
    """Step 5: the signal first, then the grace, then the end."""
    student, *_others = course.tokens
    job_id = course.submit(student, "sh", "-c", "trap '' TERM; while :; do sleep 0.1; done", grace="1s")

    def ended():
        view = course.ask(student, "GET", f"jobs/{job_id}").json
        return view if view["ended_at"] else None

    view = wait_for(ended, "the job is not ended")
    assert view["phase"] == "timeout"
    assert "10s" in view["message"] or "10 s" in view["message"], view["message"]
    cards = course.ask(student, "GET", "gpus").json["items"]
    wait_for(lambda: not any(card["holders"] for card in course.ask(student, "GET", "gpus").json["items"]), str(cards))


def test_the_ids_of_others_are_as_good_as_none(course):
    """Step 6."""
    first, second, *_others = course.tokens
    job_id = course.submit(first, "true")
    foreign, unknown = (course.ask(second, "GET", f"jobs/{one}") for one in (job_id, "zzzzzzzz"))
    assert foreign.status == unknown.status == 404
    assert foreign.body.replace(job_id.encode(), b"zzzzzzzz") == unknown.body
