"""The limits of users through a host: their file, refusals, waiting words, changes, and the administrator's reports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from many_users import lab
from rest import Rest
from waiting import wait_for

from jupyter_gpusched.core.limits import Limits
from jupyter_gpusched.limits_file import BadLimits, read_limits
from jupyter_gpusched.places import read_host_record, state_folder

FILE = """
[everybody]
running_jobs = 1
queued_jobs = 2
longest_time = "10m"

[groups.lab]
running_jobs = 2
priorities = ["normal", "low"]

[users."ann.smith"]
vram_share = 0.5
memory = "8G"
gpus = "unlimited"
rlimits = { nofile = 512, core = 0, stack = "8M", cpu = "2h", nproc = "unlimited" }
"""


def test_a_file_is_read_with_its_units(tmp_path):
    path = tmp_path / "limits.toml"
    path.write_text(FILE)
    assert read_limits(str(path)) == Limits(
        {"running_jobs": 1, "queued_jobs": 2, "longest_time_s": 600.0},
        {"lab": {"running_jobs": 2, "priorities": ("low", "normal")}},
        {
            "ann.smith": {
                "vram_share": 0.5,
                "memory": 8192,
                "gpus": None,
                "rlimits": {"nofile": 512, "core": 0, "stack": 8 * 2**20, "cpu": 7200, "nproc": None},
            }
        },
    )
    assert not read_limits("")


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("running_jobs = 2", "runing_jobs = 2", 8, "there is no limit 'runing_jobs'"),
        ("queued_jobs = 2", "queued_jobs = -1", 4, "queued_jobs: -1 is not a whole number"),
        ('"10m"', "600", 5, "longest_time: 600 is not a span of time"),
        ("0.5", "50", 12, "vram_share: 50 is not a part of the whole"),
        ('"8G"', '"8 GBs"', 13, "memory: '8 GBs' is not an amount of memory"),
        ('["normal", "low"]', '["urgent"]', 9, "is not a list of some of"),
        ("[groups.lab]", "[group.lab]", 7, "there is no section 'group'"),
        ("running_jobs = 2", "running_jobs = ", 8, "(at line 8"),
        ("running_jobs = 2", "running_jobs = true", 8, "True is not a whole number"),
        ("nofile", "no_file", 15, "rlimits: there is no resource limit 'no_file'"),
        ('"8M"', "8", 15, "rlimits: stack: 8 is not an amount of memory"),
        ("nofile = 512", 'nofile = "unlimited"', 15, "rlimits: nofile: 'unlimited' is not a whole number"),
        ("nofile = 512", "nofile = 999999999", 15, "rlimits: nofile: this machine allows"),
        ("queued_jobs = 2", "rlimits = 4", 4, "rlimits: 4 is not a table"),
        ("queued_jobs = 2", "rlimits.core = 0\nrlimits.cpu = 3", 5, "rlimits: cpu: 3 is not a span of time"),
        ("[groups.lab]", "[everybody.rlimits]\nnproc = -1\n[groups.lab]", 8, "nproc: -1 is not a whole number"),
    ],
)
def test_a_wrong_word_is_refused_with_its_line(tmp_path, old, new, line, words):
    path = tmp_path / "limits.toml"
    path.write_text(FILE.replace(old, new, 1))
    with pytest.raises(BadLimits) as caught:
        read_limits(str(path))
    assert words in caught.value.message
    assert f"line {line}" in caught.value.message
    assert str(path) in caught.value.message


def test_a_file_that_is_not_there_stops_the_start_as_a_wrong_one_does(tmp_path):
    path = tmp_path / "limits.toml"
    for content in (None, "[everybody]\nruning_jobs = 1\n"):
        if content is not None:
            path.write_text(content)
        words = [sys.executable, "-m", "jupyter_gpusched.hosts.daemon", f"--GpuSched.limits={path}", "--simulate=1x8G"]
        done = subprocess.run(
            words, env=os.environ | {"GPUSCHED_HOME": str(tmp_path / "s")}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert str(path) in done.stderr
    assert "line 2" in done.stderr


@pytest.fixture
def queue(own_environment, tmp_path):
    path = tmp_path / "limits.toml"
    path.write_text(FILE)
    with lab(own_environment, tmp_path, groups={"bob": ("lab",)}, limits=str(path)) as running:
        running.file = path
        yield running


def phase(queue, user, job):
    return queue.ask(user, "GET", f"jobs/{job}").json["phase"]


def test_users_wait_for_their_limit_and_are_refused_beyond_it(queue):
    first, second, third = (queue.submit("ann", "sleep", "600") for _ in range(3))
    wait_for(lambda: phase(queue, "ann", first) == "running", "it does not start")
    view = queue.ask("ann", "GET", f"jobs/{second}").json
    assert "ann may run 1 job at a time, and 1 is running" in view["waiting"]
    refused = queue.ask("ann", "POST", "jobs", {"argv": ["true"], "gpus": 0})
    assert refused.status == 422
    assert refused.error["code"] == "limit_reached"
    assert "ann may have 2 waiting jobs at a time, and 2 wait" in refused.error["message"]
    running = [queue.submit("bob", "sleep", "600") for _ in range(2)]
    for job in running:
        wait_for(lambda job=job: phase(queue, "bob", job) == "running", "bob's group may run two")
    assert phase(queue, "ann", third) == "queued"
    assert (
        queue.ask("bob", "POST", "jobs", {"argv": ["true"], "gpus": 0, "priority": "high"}).error["field"] == "priority"
    )
    assert (
        queue.ask("bob", "POST", "jobs", {"argv": ["true"], "gpus": 0, "time_limit": "11m"}).error["field"]
        == "time_limit"
    )
    own = queue.ask("bob", "GET", "limits").json
    assert (own["groups"], own["limits"]["running_jobs"], own["in_use"]["running_jobs"]) == (["lab"], 2, 2)
    assert own["limits"]["longest_time_s"] == 600


def test_a_job_without_a_time_limit_gets_the_longest_that_is_allowed_and_changes_are_held_to_it(queue):
    blocker, job = (queue.submit("ann", "sleep", "600") for _ in range(2))
    assert queue.ask("ann", "GET", f"jobs/{job}").json["time_limit_s"] == 600
    wait_for(lambda: phase(queue, "ann", blocker) == "running", "it does not start")
    assert queue.ask("ann", "PATCH", f"jobs/{job}", {"time_limit": "1h"}).error["code"] == "limit_reached"
    assert queue.ask("root2", "PATCH", f"jobs/{job}", {"time_limit": "1h"}).status == 200, "an administrator may"


def test_many_submissions_at_once_are_not_more_than_may_wait(queue):
    from concurrent.futures import ThreadPoolExecutor

    queue.ask("root2", "POST", "admin/drain", {})
    with ThreadPoolExecutor(12) as pool:
        asked = [pool.submit(queue.ask, "eve", "POST", "jobs", {"argv": ["true"], "gpus": 0}) for _ in range(12)]
    assert sorted(one.result().status for one in asked) == [201] * 2 + [422] * 10


def test_the_kernels_limits_hold_for_jobs_that_start_after_they_were_set(queue):
    """Here as ourselves, so that they can only be lowered; as their owners in tests/system."""
    told = ["sh", "-c", "ulimit -n; ulimit -c"]
    usual = queue.submit("cleo", *told)
    wait_for(lambda: phase(queue, "cleo", usual) == "succeeded", "it does not end")
    queue.file.write_text("[everybody]\nrlimits = { nofile = 200, core = 0 }\n[users.cleo.rlimits]\nnofile = 300\n")
    assert queue.ask("root2", "POST", "admin/limits", {}).status == 200
    for user, most in (("ann", 200), ("cleo", 300)):
        job = queue.submit(user, *told)
        wait_for(lambda user=user, job=job: phase(queue, user, job) == "succeeded", "it does not end")
        assert queue.ask(user, "GET", f"jobs/{job}/log").body.decode().split() == [str(most), "0"]
        assert queue.ask(user, "GET", "limits").json["limits"]["rlimits"] == {"core": 0, "nofile": most}
    assert queue.ask("cleo", "GET", f"jobs/{usual}/log").body.decode().split()[0] != "300"


def test_a_batch_is_taken_whole_or_refused_whole(queue):
    queue.ask("root2", "POST", "admin/drain", {})
    batch = {"jobs": [{"argv": ["true"], "gpus": 0}] * 3}
    refused = queue.ask("eve", "POST", "jobs", batch)
    assert refused.status == 422
    assert "3 more are too many" in refused.error["message"]
    assert queue.ask("eve", "GET", "jobs").json["items"] == []
    assert queue.ask("eve", "POST", "jobs", {"jobs": batch["jobs"][:2]}).status == 201


def test_new_limits_hold_from_the_next_pass_on_and_wrong_ones_change_nothing(queue):
    first, second = (queue.submit("ann", "sleep", "600") for _ in range(2))
    wait_for(lambda: phase(queue, "ann", first) == "running", "it does not start")
    assert phase(queue, "ann", second) == "queued"
    queue.file.write_text("[everybody]\nrunning_jobs = 0\nruning = 1\n")
    refused = queue.ask("root2", "POST", "admin/limits", {})
    assert refused.status == 422
    assert "line 3" in refused.error["message"]
    assert queue.ask("root2", "GET", "admin/limits").json["everybody"]["running_jobs"] == 1
    queue.file.write_text("[everybody]\nrunning_jobs = 2\n")
    assert queue.ask("root2", "POST", "admin/limits", {}).json["everybody"] == {"running_jobs": 2}
    wait_for(lambda: phase(queue, "ann", second) == "running", "the new limit does not hold")
    queue.file.write_text("[everybody]\nrunning_jobs = 1\n")
    queue.ask("root2", "POST", "admin/limits", {})
    assert {phase(queue, "ann", first), phase(queue, "ann", second)} == {"running"}, "nothing is ended"
    log = queue.ask("root2", "GET", "admin/events").json["items"]
    assert [one["by"] for one in log if one["kind"] == "limits_changed"] == ["root2", "root2"]


def test_the_report_adds_up_what_each_user_had_and_the_log_says_who_did_what(queue):
    done = queue.submit("ann", "true")
    failed = queue.submit("bob", "false")
    for user, job in (("ann", done), ("bob", failed)):
        wait_for(lambda user=user, job=job: phase(queue, user, job) in ("succeeded", "failed"), "it does not end")
    report = {one["user"]: one for one in queue.ask("root2", "GET", "admin/report").json["items"]}
    assert (report["ann"]["jobs"], report["ann"]["succeeded"], report["ann"]["failed"]) == (1, 1, 0)
    assert (report["bob"]["failed"], report["bob"]["gpu_hours"]) == (1, 0.0)
    assert report["bob"]["longest_wait_s"] >= 0
    later = queue.ask("root2", "GET", f"admin/report?since={queue.desk.engine.clock() + 10:.0f}").json
    assert later["items"] == []
    log = queue.ask("root2", "GET", "admin/events?limit=1000").json["items"]
    (entered,) = [one for one in log if one["kind"] == "submitted" and one["job_id"] == failed]
    assert (entered["user"], entered["by"]) == ("bob", "bob")
    first = queue.ask("root2", "GET", "admin/events?cursor=0&limit=2").json
    assert len(first["items"]) == 2
    following = queue.ask("root2", "GET", f"admin/events?cursor={first['next_cursor']}&limit=1").json
    assert following["items"][0]["seq"] > first["items"][-1]["seq"]


@pytest.mark.skipif(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, reason="these tests run under nohup")
def test_sighup_does_not_end_what_serves_everybody(tmp_path, start_host):
    """The service itself is tested in tests/system; a host of one's own ends with its terminal, as it always did."""
    host = start_host("1x8G")
    rest = Rest(read_host_record(state_folder()).socket)
    try:
        assert rest("GET", "limits").json["limits"]["running_jobs"] is None
    finally:
        rest.close()
    host.process.send_signal(signal.SIGHUP)
    assert host.process.wait(timeout=30) != 0
