"""A host that dies between any two steps of a job's life: nothing lost, nothing run twice, and the true end.

The steps are those of ``tests/crashing.py``. After each death a plain host takes over.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_for

import jupyter_gpusched
from jupyter_gpusched.client import Client
from jupyter_gpusched.core.model import GpuSchedError
from jupyter_gpusched.places import start_time

STARTS_S = 100.0
"""A host may take so long to start, and to get to where it dies, on a machine that does much else."""

PROGRAM = str(Path(__file__).parents[1] / "crashing.py")

IN_A_START = [
    "record:submitted:before",
    "record:submitted:after",
    "record:placed:after",
    "launch:before",
    "spawn:before",
    "spawn:after",
    "handover:before",
    "handover:after",
    "go:before",
    "go:after",
    "post:Started",
    "record:started:before",
    "record:started:after",
]
IN_AN_END = [
    "post:Exited",
    "record:exited:before",
    "record:exited:after",
    "record:released:before",
    "record:released:after",
]
IN_A_CANCELLATION = [
    "record:cancel_requested:before",
    "record:cancel_requested:after",
    "stop:before",
    "stop_file:before",
    "stop_file:after",
    "terminate:before",
    "terminate:after",
]
IN_A_SUPERVISOR = ["claim:before", "claim:after", "fork:after", "started:after", "gate:after", "exit:before"]


class Stage:
    """A host that will die, the one after it, and a job that says when it ran and ends on command with code 5."""

    def __init__(self, start_host, command, folder: Path) -> None:
        self._start_host = start_host
        self._command = command
        self.gate, self.runs, self.pauses = folder / "gate", folder / "runs", folder / "pauses"
        self.runs.touch()
        self.pauses.mkdir()

    def start(self, **environ: str) -> subprocess.Popen[bytes]:
        runner = str(Path(jupyter_gpusched.__file__).parent)
        environ |= {"GPUSCHED_SIMULATE": "1x8G", "PAUSE_FOLDER": str(self.pauses), "PAUSE_RUNNER": runner}
        return subprocess.Popen([sys.executable, PROGRAM], env=os.environ | environ, stdin=subprocess.DEVNULL)

    def plain_host(self) -> Client:
        return self._start_host("1x8G").client()

    def spec(self) -> dict:
        script = f"echo ran >> {self.runs}; echo one; until test -e {self.gate}; do sleep 0.01; done; echo two; exit 5"
        return self._command("sh", "-c", script, vram="8G", grace="1s", idempotency_key="the job")

    def ran(self) -> int:
        return self.runs.read_text().count("ran")

    def check_its_own_end(self, client: Client, job_id: str) -> None:
        self.gate.touch()
        view = client.wait(job_id, timeout=STARTS_S)
        assert (view["phase"], view["exit_code"], self.ran()) == ("failed", 5, 1), view
        assert client.log(job_id) == b"one\ntwo\n"
        wait_for(lambda: not client.gpus()[0]["holders"], "its memory stays granted")


@pytest.fixture
def stage(start_host, command, tmp_path):
    made = Stage(start_host, command, tmp_path)
    started = []
    start = made.start

    def starting(**environ):
        started.append(start(**environ))
        return started[-1]

    made.start = starting
    yield made
    for process in started:
        process.kill()
        process.wait()


def connected() -> Client:
    def connect():
        try:
            return Client.connect(environ=os.environ | {"GPUSCHED_SIMULATE": "1x8G"})
        except GpuSchedError:
            return None

    return wait_for(connect, "the host does not answer", deadline_s=STARTS_S)


def asked(call):
    """What the host answered, or None when it died over it."""
    try:
        return call()
    except GpuSchedError as error:
        if error.code in {"no_host", "unavailable"}:
            return None
        raise


def died(process: subprocess.Popen[bytes]) -> bool:
    return process.wait(timeout=STARTS_S) == -signal.SIGKILL


@pytest.mark.parametrize("point", IN_A_START)
def test_a_host_that_dies_while_it_starts_a_job_loses_nothing_and_starts_it_once(stage, point):
    doomed = stage.start(CRASH_AT=point)
    acknowledged = asked(lambda: connected().submit(stage.spec()))
    assert died(doomed)
    client = stage.plain_host()
    job_id = client.submit(stage.spec())  # as a client asks again that got no answer; its key makes that safe
    assert acknowledged in {None, job_id}
    stage.check_its_own_end(client, job_id)
    assert [view["id"] for view in client.jobs()] == [job_id]


@pytest.mark.parametrize("point", IN_AN_END)
def test_a_host_that_dies_over_the_end_of_a_job_leaves_its_true_exit_code(stage, point):
    doomed = stage.start(CRASH_AT=point)
    client = connected()
    job_id = client.submit(stage.spec())
    wait_for(stage.ran, "the job does not start")
    stage.gate.touch()
    assert died(doomed)
    stage.check_its_own_end(stage.plain_host(), job_id)


@pytest.mark.parametrize("point", IN_A_CANCELLATION)
def test_a_host_that_dies_while_it_cancels_has_either_promised_nothing_or_keeps_its_word(stage, point):
    doomed = stage.start(CRASH_AT=point)
    client = connected()
    job_id = client.submit(stage.spec())
    wait_for(lambda: stage.ran() and client.job(job_id)["phase"] == "running", "the job does not start")
    acknowledged = asked(lambda: client.cancel(job_id))
    assert died(doomed)
    client = stage.plain_host()
    if point.endswith("requested:before"):
        assert acknowledged is None
        stage.check_its_own_end(client, job_id)
    else:
        view = client.wait(job_id, timeout=STARTS_S)
        assert (view["phase"], stage.ran()) == ("cancelled", 1), view


@pytest.mark.parametrize("point", ["void:before", "void:after", "record:voided:before", "record:voided:after"])
def test_a_host_that_dies_while_it_cancels_a_start_lets_nothing_run(stage, point):
    doomed = stage.start(CRASH_AT=point, PAUSE_AT="claim:before")
    client = connected()
    job_id = client.submit(stage.spec())
    wait_for((stage.pauses / "reached").exists, "there is no supervisor")
    asked(lambda: client.cancel(job_id))
    assert died(doomed)
    client = stage.plain_host()
    client.cancel(job_id)
    view = client.wait(job_id, timeout=STARTS_S)
    supervisor = int((stage.pauses / "reached").read_text())
    (stage.pauses / "go").touch()
    wait_for(lambda: start_time(supervisor) is None, "the late supervisor does not give up")
    assert (view["phase"], view["started_at"], stage.ran()) == ("cancelled", None, 0), view


@pytest.mark.parametrize("point", IN_A_SUPERVISOR)
@pytest.mark.parametrize("then", ["goes on", "is killed", "is cancelled"])
def test_a_host_is_killed_while_a_supervisor_is_at_any_of_its_steps(stage, point, then):
    doomed = stage.start(PAUSE_AT=point)
    client = connected()
    job_id = client.submit(stage.spec())
    after = client.submit(stage.spec() | {"argv": ["true"], "idempotency_key": "the next"})
    if point.startswith("exit"):
        stage.gate.touch()
    wait_for((stage.pauses / "reached").exists, "the supervisor does not get there")
    supervisor = int((stage.pauses / "reached").read_text())
    doomed.kill()
    assert died(doomed)
    client = stage.plain_host()
    assert client.job(after)["phase"] == "queued"  # what was being started counts before anything starts
    if then == "is killed":
        os.kill(supervisor, signal.SIGKILL)
    elif then == "is cancelled":
        client.cancel(job_id)
    (stage.pauses / "go").touch()
    stage.gate.touch()
    view = client.wait(job_id, timeout=STARTS_S)
    told = (view["phase"], view["exit_code"], stage.ran())
    if then == "goes on" or (then == "is killed" and point == "claim:before"):
        assert told == ("failed", 5, 1), view  # before the claim: as a second attempt, the first never was
    elif then == "is cancelled":
        # Once its main process has ended by itself, a cancellation may come too late.
        assert told[0] == "cancelled" or (point == "exit:before" and told == ("failed", 5, 1)), view
    elif point in {"claim:after", "fork:after"}:
        assert (told[0], view["reason"], told[2]) == ("failed", "launch_failed", 0), view
    else:
        assert told[0] == "lost", view  # nobody can say how it ended, so nobody does
        assert told[2] == (0 if point == "started:after" else 1)
    assert client.wait(after, timeout=STARTS_S)["phase"] == "succeeded"
    assert stage.ran() <= 1
