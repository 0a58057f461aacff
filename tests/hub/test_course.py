"""Story 4, a course with more students than cards: through a real Hub, on the fake driver's cards, hours in seconds.

Students ask as programs do, each by a token of their own; their panels are the code of their servers.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections import Counter
from itertools import pairwise
from urllib.parse import quote

import pytest
from bed import UNHURRIED, Hub, free_ports
from fake_nvml import fakegpu
from fake_nvml.machine import Machine
from waiting import wait_for

from jupyter_gpusched.hosts.socket import Feed
from jupyter_gpusched.hosts.upstream import HubService
from jupyter_gpusched.hub_address import hub_address

pytestmark = pytest.mark.hub

STUDENTS = 60
CARDS, ON_EACH = 4, 5
"""Jobs of 2G on a card of 11G."""

AT_ONCE = CARDS * ON_EACH
INTERVAL_S = 1.0
LOOKS = 5

LIMITS = """
[everybody]
running_jobs = 1
queued_jobs = 10
longest_time = "10s"      # ten minutes, with the clock compressed

[users.{greedy}]
longest_time = "10m"

[users.{neighbour}]
longest_time = "10m"
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

    def job(self, student, job_id):
        return self.ask(student, "GET", f"jobs/{job_id}").json

    def main_pid(self, job_id):
        """The job's own process, as its supervisor has written it down."""
        started = self.hub.state / "jobs" / job_id / "attempt-1/started"
        return json.loads(started.read_text())["main"]["pid"]

    def progress(self):
        """Every job, by what the teacher sees."""
        return self.hub.service("GET", "jobs?all_users=1&limit=1000", self.teacher).json["items"]

    def views(self):
        """Every job of every student, by what its owner sees."""
        return [view for student in self.tokens for view in self.ask(student, "GET", "jobs").json["items"]]

    def when_all_ended(self):
        wait_for(lambda: all(view["ended_at"] for view in self.progress()), "not all jobs end", deadline_s=240)
        return self.views()

    def events(self):
        """What happened so far, oldest first, as the teacher may read it."""
        found, cursor = [], "0"
        while cursor is not None:
            page = self.hub.service("GET", f"admin/events?limit=1000&cursor={cursor}", self.teacher).json
            found, cursor = found + page["items"], page["next_cursor"]
        return found


@pytest.fixture(scope="module")
def driver(place):
    """The surroundings of a process that finds four fake cards of 11G, and those cards."""
    if shutil.which("gcc") is None or shutil.which("make") is None:
        pytest.skip("the fake driver needs a compiler: apt-get install -y gcc make")
    folder = place / "driver"
    folder.mkdir()
    cards = Machine(folder / "machine")
    cards.write(*[{"name": "NVIDIA Fake 11G", "total": 11264 * Machine.MIB, "reserved": 0}] * CARDS)
    calls = folder / "calls"
    surroundings = {
        "FAKE_NVML_STATE": str(cards.path),
        "FAKE_NVML_CALLS": str(calls),
        "LD_LIBRARY_PATH": str(fakegpu.build(folder / "built")),
    }
    return surroundings, cards, lambda: calls.stat().st_size


@pytest.fixture(scope="module")
def course(bed, people, place, driver):
    names = [f"gs{os.getpid()}s{number}" for number in range(STUDENTS)]
    limits = place / "limits.toml"
    limits.write_text(LIMITS.format(greedy=names[-1], neighbour=names[-2]))
    options = (f"--GpuSched.limits={limits}", "--GpuSched.policy=fair", f"--GpuSched.sample_interval_s={INTERVAL_S}")
    hub = Hub(bed, place / "course", (), admins=(people["adm"],), options=options, environment=driver[0])
    try:
        hub.wait_for_service()
        for name in names:
            bed.add_user(name)
        for name in (*names, people["adm"]):
            hub.api("POST", f"users/{quote(name)}")
        hub.api("PATCH", f"users/{quote(people['adm'])}", {"admin": True})
        yield Course(hub, {name: hub.token(name) for name in names}, hub.token(people["adm"]))
    finally:
        hub.close()


def test_a_wrong_word_in_the_file_of_limits_stops_the_start_with_its_line(bed, place):
    """Step 1: as the Hub starts the service."""
    limits = place / "wrong.toml"
    limits.write_text('[everybody]\nrunning_jobs = 1\nlongest_tme = "10m"\n')
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    environ = {
        "PATH": os.environ["PATH"], "GPUSCHED_HOME": str(place / "wrong"), "GPUSCHED_SIMULATE": "1x8G",
        "JUPYTERHUB_API_TOKEN": "any", "JUPYTERHUB_API_URL": f"{url}/hub/api", "JUPYTERHUB_SERVICE_NAME": "gpusched",
        "JUPYTERHUB_SERVICE_PREFIX": "/services/gpusched/", "JUPYTERHUB_SERVICE_URL": url,
    }  # fmt: skip
    words = [bed.python, "-m", "jupyter_gpusched.hosts.hub", UNHURRIED, f"--GpuSched.limits={limits}"]
    done = subprocess.run(words, env=environ, cwd="/", capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert f"{limits}, line 3: there is no limit 'longest_tme'" in done.stderr


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


async def look(hub, tokens, calls):
    """Panels of these students for some looks at the cards: when these were, by each panel, and calls of the driver."""
    seen: list[set[float]] = [set() for _ in tokens]

    def panel(times):
        async def take(text):
            frame = json.loads(text)
            if frame["type"] in ("gpus", "snapshot"):
                times.update(card["sampled_at"] for card in frame["gpus"][:1])

        return take

    addresses = [hub_address({"GPUSCHED_SERVICE_URL": hub.service_url, "JUPYTERHUB_API_TOKEN": one}) for one in tokens]
    feeds = [Feed(HubService(address)) for address in addresses]
    tabs = [asyncio.create_task(feed.join(panel(times)).run()) for feed, times in zip(feeds, seen, strict=True)]
    try:
        while not all(seen):  # noqa: ASYNC110  frames tell of themselves, not that all panels had one
            await asyncio.sleep(0.05)
        for times in seen:
            times.clear()
        before = calls()
        while any(len(times) < LOOKS for times in seen):  # noqa: ASYNC110  as above
            await asyncio.sleep(0.05)
        return seen, calls() - before
    finally:
        for tab in tabs:
            tab.cancel()
        for feed in feeds:
            feed.stop()


def looked(*what):
    return asyncio.run(asyncio.wait_for(look(*what), 120))


def test_sixty_panels_ask_the_driver_no_more_than_one(course, driver):
    """Step 2: once per interval, for everybody together."""
    tokens, calls = list(course.tokens.values()), driver[2]
    (alone,), by_one = looked(course.hub, tokens[:1], calls)
    panels, by_all = looked(course.hub, tokens, calls)
    looks = sorted(set().union(*panels))
    apart = [later - earlier for earlier, later in pairwise(looks)]
    assert min(apart) > 0.8 * INTERVAL_S, "all see the same looks"
    assert by_all / len(looks) < 2 * by_one / len(alone)


def test_a_homework_hour(course):
    """Steps 3 and 8: the machine is drained, everybody submits, the service dies, and then everybody gets a turn."""
    hub = course.hub
    gate = hub.folder / "gate"
    homework = ("sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.2; done")
    assert hub.service("POST", "admin/drain", course.teacher, {"cause": "maintenance"}).status == 200
    for number, student in enumerate(course.tokens):  # one after the other, and the first of them two each
        for _ in range(2 if number < AT_ONCE else 1):
            course.submit(student, *homework)
    waiting = course.views()
    assert {view["phase"] for view in waiting} == {"queued"}
    assert all("maintenance" in view["waiting"] for view in waiting)
    assert len({view["position"] for view in waiting}) == len(waiting) == STUDENTS + AT_ONCE
    before = hub.wait_for_service()
    os.kill(before, signal.SIGKILL)
    hub.wait_for_service(other_than=before)
    assert {view["id"]: view["phase"] for view in course.views()} == {view["id"]: "queued" for view in waiting}
    assert hub.service("POST", "admin/resume", course.teacher, {}).status == 200

    def at_work():
        views = [view for view in course.progress() if view["phase"] == "running"]
        return views if len(views) >= AT_ONCE else None

    running = wait_for(at_work, "the cards are not filled", deadline_s=120)
    assert Counter(view["gpus"][0]["index"] for view in running) == dict.fromkeys(range(CARDS), ON_EACH)
    assert len({view["user"] for view in running}) == AT_ONCE
    left = [view for view in course.views() if view["phase"] == "queued"]
    assert all(view["waiting"] and view["position"] for view in left)
    gate.touch()
    ended = course.when_all_ended()
    assert {view["phase"] for view in ended} == {"succeeded"}
    ours = {view["id"] for view in ended}
    turns = [one["user"] for one in course.events() if one["kind"] == "placed" and one["job_id"] in ours]
    assert len(turns) == STUDENTS + AT_ONCE
    assert len(set(turns[:STUDENTS])) == STUDENTS, "somebody got two before everybody had one"


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


def test_whoever_takes_six_where_two_were_asked_for_is_told_and_the_neighbour_goes_on(course, driver):
    """Step 7."""
    _, cards, _ = driver
    *_others, neighbour, greedy = course.tokens
    jobs = {student: course.submit(student, "sleep", "600", preferred_gpus=["0"]) for student in (greedy, neighbour)}
    try:
        for student, job_id in jobs.items():
            wait_for(lambda s=student, j=job_id: course.job(s, j)["phase"] == "running", "it does not start")
        pids = {student: course.main_pid(job_id) for student, job_id in jobs.items()}
        cards.hold(1800, pid=pids[neighbour])
        cards.hold(6 * 1024, pid=pids[greedy])

        def told():
            return [one for one in course.ask(greedy, "GET", "alerts").json["items"] if one["kind"] == "overuse"]

        (alert,) = wait_for(told, "nobody is told", deadline_s=60)
        assert (alert["job_id"], "6.0G" in alert["message"], "2.0G" in alert["message"]) == (jobs[greedy], True, True)
        view = course.job(greedy, jobs[greedy])
        assert (view["peak_vram_mib"], view["overuse_mib"], view["vram_mib"]) == (6144, 4096, 2048)
        others = course.ask(neighbour, "GET", "alerts").body.decode()
        assert jobs[greedy] not in others, "whose job it is, is not the neighbour's business"
        beside = course.job(neighbour, jobs[neighbour])
        assert (beside["phase"], beside["peak_vram_mib"], beside["overuse_mib"]) == ("running", 1800, None)
        assert any(one["kind"] == "alert_raised" and jobs[greedy] in str(one) for one in course.events())
    finally:
        for student, job_id in jobs.items():
            course.ask(student, "POST", f"jobs/{job_id}/cancel", {"grace": "0s"})
    course.when_all_ended()
