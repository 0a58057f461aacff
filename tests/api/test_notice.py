"""The signal before the time limit, against a real host and real supervisors."""

from __future__ import annotations

import sys

import pytest
from waiting import wait_for

from jupyter_gpusched.core.model import BadRequest

SAVES = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGUSR1, lambda *_: (print("saved", flush=True), os._exit(0)))
helper = subprocess.Popen(["sleep", "60"])
print("ready", flush=True)
time.sleep(60)
"""

GOES_ON = """
import signal, time
signal.signal(signal.SIGUSR1, lambda *_: print("warned", flush=True))
print("ready", flush=True)
end = time.monotonic() + 60
while time.monotonic() < end:
    time.sleep(0.05)
"""


@pytest.fixture
def script(client, command):
    def submit(source, **fields):
        return client.submit(command(sys.executable, "-c", source, grace="1s", **fields))

    return submit


def test_a_job_is_warned_so_long_before_its_limit_and_may_end_by_itself(client, script):
    job_id = script(SAVES, time_limit="30s", signal="USR1@26s")
    view = client.wait(job_id)
    assert (view["phase"], client.log(job_id)) == ("succeeded", b"ready\nsaved\n")
    assert 3.5 < view["ended_at"] - view["started_at"] < 25


def test_who_goes_on_meets_the_limit_all_the_same_and_who_does_not_wait_for_it_is_spared(client, script, command):
    handled = script(GOES_ON, time_limit="6s", signal="SIGUSR1@3s")
    plain = client.submit(command("sleep", "60", time_limit="6s", signal="USR1@4s", grace="1s"))
    assert client.wait(handled)["phase"] == client.wait(plain)["phase"] == "timeout"
    assert client.log(handled) == b"ready\nwarned\n"
    view = client.job(plain)
    assert view["ended_at"] - view["started_at"] >= 6


def test_the_warning_comes_without_a_host(client, script, host, start_host):
    job_id = script(SAVES, time_limit="60s", signal="USR1@55s")
    wait_for(lambda: client.log(job_id) == b"ready\n", "it does not begin")
    host.kill()
    again = start_host().client()
    assert again.wait(job_id)["phase"] == "succeeded"
    assert again.log(job_id).endswith(b"saved\n")
    again.close()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"signal": "USR1@60s"}, "there is none"),
        ({"signal": "USR1@60s", "time_limit": "60s"}, "before the job has begun"),
        ({"signal": "KILL@1s", "time_limit": "60s"}, "no signal that a job can wait for"),
        ({"signal": "USR1", "time_limit": "60s"}, "is not SIGNAL@SPAN"),
        ({"signal": "USR1@soon", "time_limit": "60s"}, "signal: "),
    ],
)
def test_a_warning_that_cannot_be_is_refused(client, command, fields, words):
    with pytest.raises(BadRequest, match=words) as refused:
        client.submit(command("true", **fields))
    assert refused.value.field == "signal"


def test_a_waiting_job_can_be_given_a_warning_that_fits_its_limit(client, command):
    client.submit(command("sleep", "60", vram="24564M", gpus=2))
    job_id = client.submit(command("true", vram="24564M", time_limit="2h"))
    client.amend(job_id, {"signal": "USR2@90s"})
    assert client.spec(job_id)["signal"] == "USR2@90s"
    with pytest.raises(BadRequest, match="signal: USR2@90s would be sent before"):
        client.amend(job_id, {"time_limit": "60s"})
    client.amend(job_id, {"time_limit": "60s", "signal": None})
