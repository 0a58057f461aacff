"""How jobs end through a real host: the crash and the cancel table on which others fail, and cases 17 to 22."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from bench.cancel_race import rounds
from waiting import wait_for

from jupyter_gpusched.runner.tree import start_time


def lives(pid):
    return start_time(int(pid)) is not None


@pytest.fixture
def bystander():
    """An unrelated process of the same user."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def test_the_crash_table_kill_9_of_the_host_with_four_running_and_two_just_queued(start_host, command, tmp_path):
    """One of the four exits 0 during the outage; the two were acknowledged 0.3 s before it."""
    first = start_host("4x8G")
    client = first.client()
    runs = tmp_path / "runs"
    script = f'echo "$GPUSCHED_JOB_ID $$" >> {runs}; while ! test -e gate-$GPUSCHED_JOB_ID; do sleep 0.05; done'
    spec = command("sh", "-c", script, vram="8G")
    running = client.submit_many([spec] * 4)
    wait_for(lambda: [client.job(i)["phase"] for i in running] == ["running"] * 4, "the four do not start")
    before = {job_id: client.job(job_id) for job_id in running}
    queued = client.submit_many([spec] * 2)
    time.sleep(0.3)  # as in the table
    first.kill()
    (tmp_path / f"gate-{running[0]}").touch()
    ended = Path(os.environ["GPUSCHED_HOME"], "jobs", running[0], "attempt-1", "exit.json")
    wait_for(ended.exists, "the supervisor does not write down the end")
    pids = dict(line.split() for line in runs.read_text().splitlines())
    assert [lives(pids[job_id]) for job_id in running] == [False, True, True, True]

    second = start_host("4x8G")
    begun = time.monotonic()
    client = second.client()
    adopted = [client.job(job_id) for job_id in running]
    assert [view["phase"] for view in adopted] == ["succeeded", "running", "running", "running"]
    assert time.monotonic() - begun < 2
    assert (adopted[0]["exit_code"], adopted[0]["attempts"][0]["outcome"]) == (0, "succeeded")
    assert [view["started_at"] for view in adopted] == [before[job_id]["started_at"] for job_id in running]
    wait_for(lambda: client.job(queued[0])["phase"] == "running", "the freed card stays empty")
    assert client.job(queued[1])["phase"] == "queued"  # four cards, four jobs: nothing is given twice
    assert client.cancel(running[1], "0s")["phase"] in ("stopping", "cancelled")  # and what it adopted it can end
    assert client.wait(running[1])["phase"] == "cancelled"
    assert not lives(pids[running[1]])
    for job_id in (*running, *queued):
        (tmp_path / f"gate-{job_id}").touch()
    others = [*running[2:], *queued]
    assert [client.wait(job_id)["phase"] for job_id in others] == ["succeeded"] * 4
    assert Counter(line.split()[0] for line in runs.read_text().splitlines()) == dict.fromkeys([*running, *queued], 1)


STUBBORN = """
import os, signal, subprocess, sys, time
for n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)
if len(sys.argv) == 1:
    subprocess.Popen([sys.executable, __file__, "child"])
    subprocess.run([sys.executable, __file__, "middle"], start_new_session=True)
if sys.argv[-1] == "middle":
    subprocess.Popen([sys.executable, __file__, "grandchild"], start_new_session=True)
    sys.exit()
open("pid-" + (sys.argv[1:] or ["leader"])[0], "w").write(str(os.getpid()))
time.sleep(600)
"""


def test_the_cancel_table_leader_child_and_a_grandchild_in_another_session_that_ignore_all_signals(
    client, command, tmp_path, bystander
):
    """Case 17 too: after grace and 3 s none of them lives, an unrelated process does, and the card is free."""
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    job_id = client.submit(command(sys.executable, "stubborn.py", vram="8G"))
    who = ("leader", "child", "grandchild")
    files = [tmp_path / f"pid-{name}" for name in who]
    wait_for(lambda: all(file.exists() and file.read_text() for file in files), "they do not start")
    pids = [file.read_text() for file in files]
    begun = time.monotonic()
    assert client.cancel(job_id, "2s")["phase"] == "stopping"
    view = client.wait(job_id)
    took = time.monotonic() - begun
    assert (view["phase"], view["attempts"][0]["outcome"]) == ("cancelled", "cancelled")
    assert [lives(pid) for pid in pids] == [False] * 3
    assert 2 <= took < 5 + 5  # the case says 5 s; the machine of a test may be busy
    assert lives(bystander.pid)
    wait_for(lambda: not any(gpu["promised_mib"] for gpu in client.gpus()), "the card is not free")


def test_what_a_job_leaves_behind_is_ended_and_the_exit_code_of_its_first_process_counts(client, command, tmp_path):
    """Case 19: the helper shares its output, so that nobody may wait for the end of that."""
    code = "import subprocess; p = subprocess.Popen(['sleep', '600']); open('pid', 'w').write(str(p.pid))"
    job_id = client.submit(command(sys.executable, "-c", code, grace="2s"))
    begun = time.monotonic()
    view = client.wait(job_id)
    assert (view["phase"], view["exit_code"]) == ("succeeded", 0)
    assert time.monotonic() - begun < 2 + 3 + 5
    assert not lives((tmp_path / "pid").read_text())
    assert "1 process that it left behind had to be ended" in view["attempts"][0]["message"]
    store = sqlite3.connect(Path(os.environ["GPUSCHED_HOME"], "gpusched.sqlite"))
    details = [json.loads(row[0]) for row in store.execute("SELECT detail FROM event WHERE job_id = ?", (job_id,))]
    assert [detail["stragglers_killed"] for detail in details if "stragglers_killed" in detail] == [1]
    store.close()


HANDLER = """
import os, signal, sys, time
seen = []
signal.signal(15, lambda *_: seen.append(1))
open("ready", "w").close()
while not seen: time.sleep(0.01)
time.sleep(3)
reason = open(os.environ["GPUSCHED_STOP_FILE"]).readline().strip()
open("ck.pt", "w").write(f"{len(seen)} {reason}")
"""


def test_the_signal_reaches_the_training_code_once_and_it_has_time_to_save(client, command, tmp_path):
    """Case 20: below a shell, cancelled twice."""
    (tmp_path / "h.py").write_text(HANDLER)
    job_id = client.submit(command("bash", "-c", f"{sys.executable} h.py; echo done"))
    wait_for((tmp_path / "ready").exists, "it does not start")
    begun = time.monotonic()
    answers = [client.cancel(job_id, "10s"), client.cancel(job_id, "10s")]
    view = client.wait(job_id)
    assert (tmp_path / "ck.pt").read_text() == "1 cancelled"
    assert [answer["phase"] for answer in answers] == ["stopping"] * 2
    assert view["phase"] == "cancelled"
    assert 3 <= time.monotonic() - begun < 5 + 4


def test_a_cancelled_job_never_starts_anyway(client, tmp_path):
    """Case 21: ``python tests/bench/cancel_race.py --rounds 500`` runs as many as the case asks for."""
    faults, ends = rounds(client, tmp_path, 100, seed=1)
    assert faults == []
    assert ends["cancelled"] > 0


def test_a_job_killed_for_host_memory_is_told_within_seconds_and_not_tried_again(client, command, tmp_path):
    """Case 22."""
    code = "import os, signal, time; print('x'); time.sleep(1); os.kill(os.getpid(), signal.SIGKILL)"
    job_id = client.submit(command(sys.executable, "-c", code))
    wait_for(lambda: client.job(job_id)["phase"] == "running", "it does not start")
    begun = time.monotonic()
    view = client.wait(job_id)
    assert (view["phase"], view["reason"], view["signal"]) == ("failed", "signal_9", 9)
    assert time.monotonic() - begun < 1 + 5
    assert "host memory" in view["message"]
    assert view["peak_rss_mib"] > 0
    assert len(view["attempts"]) == 1
    wait_for(lambda: not any(gpu["promised_mib"] for gpu in client.gpus()), "its share of the card is not freed")
