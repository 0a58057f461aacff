"""Processes that got the numbers of an attempt's dead processes are strangers: nobody signals them."""

import json
import os
import signal
import subprocess

import pytest

from jupyter_gpusched.core.messages import Vanished
from jupyter_gpusched.launch import attempt as files
from jupyter_gpusched.runner.tree import boot_id, start_time


@pytest.fixture
def stranger():
    """With a child of its own, so that looking for descendants would find something."""
    process = subprocess.Popen(["sh", "-c", "sleep 600 & wait"], start_new_session=True)
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def reuse(folder, pid, *, started, boot=None):
    """Let the attempt's records name a process of this number, as they do once pids are given out again."""
    place = folder / "attempt-1"
    who = {"pid": pid, "start_time": started}
    for name in ("claim", "started"):
        record = json.loads((place / name).read_text()) | {"boot_id": boot or boot_id()}
        record |= who if name == "claim" else {"main": who, "supervisor": who}
        (place / name).write_text(json.dumps(record))


async def start_and_kill(bench):
    """An attempt whose supervisor and main process were killed while no host looked."""
    job, folder = bench.start("sleep", "600")
    await bench.started()
    await bench.launcher.close()
    for pid in (files.read_claim(folder, 1)["pid"], files.read_started(folder, 1)["main"]["pid"]):
        os.kill(pid, signal.SIGKILL)
    bench.events.clear()
    bench.launcher = bench.new_launcher()
    return job, folder


@pytest.mark.parametrize("asked_to_stop", [False, True])
async def test_a_host_that_recovers_signals_nobody_who_got_the_numbers_of_an_attempt(bench, stranger, asked_to_stop):
    job, folder = await start_and_kill(bench)
    reuse(folder, stranger.pid, started=start_time(stranger.pid) - 1)
    if asked_to_stop:
        bench.launcher.stop(job, 1, "cancelled", 0.0, folder)
    else:
        bench.launcher.adopt(job, 1, folder)
    assert isinstance(await bench.last(), Vanished)
    assert start_time(stranger.pid) is not None
    assert stranger.poll() is None


async def test_after_a_reboot_even_the_same_number_and_start_time_are_a_stranger(bench, stranger):
    job, folder = await start_and_kill(bench)
    reuse(folder, stranger.pid, started=start_time(stranger.pid), boot="another boot")
    bench.launcher.adopt(job, 1, folder)
    bench.launcher.stop(job, 1, "cancelled", 0.0, folder)
    assert isinstance(await bench.last(), Vanished)
    assert stranger.poll() is None
