"""What administrators' commands print."""

from __future__ import annotations

import pytest

from jupyter_gpusched.core.model import BadRequest
from jupyter_gpusched.describe import jobs_table
from jupyter_gpusched.overview import all_limits, answer, log_line, own_limits, report
from tests.client.conftest import a_view

OWN = {
    "user": "ann",
    "groups": ["lab"],
    "limits": {
        "running_jobs": 2, "queued_jobs": None, "gpus": None, "vram_share": 0.25, "cpus": None, "memory_mib": 8192,
        "longest_time_s": 600.0, "priorities": ["low", "normal"],
        "rlimits": {"nofile": 4096, "cpu": 7200, "core": None},
    },
    "in_use": {"running_jobs": 1, "queued_jobs": 3, "gpus": 1, "vram_mib": 4096, "cpus": 0, "memory_mib": 0},
}  # fmt: skip


def rows(text):
    return [" ".join(line.split()) for line in text.splitlines()]


def test_own_limits_stand_beside_what_is_used():
    said = rows(own_limits(OWN))
    assert "running jobs 2 1" in said
    assert "waiting jobs unlimited 3" in said
    assert "GPU memory 25% of all cards 4.0G" in said
    assert "time of a job 10m00s" in said
    assert "priorities low, normal" in said
    assert {"nofile (ulimit) 4096", "cpu (ulimit) 2h00m", "core (ulimit) unlimited"} <= set(said)


def test_all_limits_say_for_whom_they_are():
    words = {
        "everybody": {"running_jobs": 1},
        "groups": {"lab": {"memory_mib": 8192, "rlimits": {"memlock": 65536}}},
        "users": {"a\x1b[2J": {"gpus": None}},
    }
    said = rows(all_limits(words))
    assert said[1:] == [
        "everybody running jobs 1",
        "group lab host memory 8.0G",
        "group lab memlock (ulimit) 65536 bytes",
        "user a [2J GPUs unlimited",
    ]
    assert "No limits are set" in all_limits({"everybody": {}, "groups": {}, "users": {}})


def test_the_report_begins_with_who_had_most():
    one = {"user": "ann", "jobs": 3, "queued": 1, "running": 0, "failed": 1, "timeout": 1, "lost": 0, "gpu_hours": 1.25,
           "mean_wait_s": 60.0, "longest_wait_s": None, "idle_share": 0.25}  # fmt: skip
    said = rows(report({"items": [one, {**one, "user": "bob", "gpu_hours": 2.0, "idle_share": None}]}))
    assert [line.split()[0] for line in said] == ["USER", "bob", "ann"]
    assert said[2] == "ann 3 1.2 25% 2 1 0 1m00s n/a"
    assert said[1].startswith("bob 3 2.0 n/a 2")
    assert "Nobody" in report({"items": []})


def test_a_line_of_the_log_says_when_who_what_and_whose_without_control_characters():
    entry = {"seq": 1, "at": 0.0, "kind": "cancel_requested", "job_id": "abcd1234", "user": "ann", "by": "root2",
             "detail": {"by": "root2", "cause": "x\x1b[2J"}}  # fmt: skip
    assert log_line(entry).endswith(" cancel_requested by root2 job abcd1234 of ann cause=x [2J")


def test_a_list_of_several_users_names_them():
    views = [a_view("aaaa0001", user="ann"), a_view("aaaa0002", user="bob")]
    assert "USER" in jobs_table(views)
    assert "USER" not in jobs_table(views[:1])


class Told:
    def limits(self):
        return OWN

    def all_limits(self):
        return {"everybody": {}, "groups": {}, "users": {}}

    reread_limits = all_limits

    def report(self, since):
        assert since > 0
        return {"items": []}

    def log_of_events(self, limit):
        return [{"seq": 1, "at": 0.0, "kind": "drained", "job_id": None, "user": None, "by": "x", "detail": {}}][:limit]


def test_commands_answer_programs_and_people():
    ask = {"since": "7d", "everybody": False, "reread": False, "limit": 5}
    assert answer("limits", Told(), **ask)[0] is OWN
    assert "No limits" in answer("limits", Told(), **ask | {"reread": True})[1]
    assert "Nobody" in answer("report", Told(), **ask)[1]
    assert answer("events", Told(), **ask) == ([], "Nothing has happened in that time.")
    with pytest.raises(BadRequest, match="--since"):
        answer("report", Told(), **ask | {"since": "yesterday"})
