"""Supervisors that are kept ready: what becomes of them, and of attempts whose spare or nursery is killed."""

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from jupyter_gpusched.core.messages import Exited, Started
from jupyter_gpusched.launch import attempt as files
from jupyter_gpusched.launch.orders import NURSERY
from jupyter_gpusched.runner.tree import children, read_proc, start_time
from tests.waiting import wait_for

from .conftest import a_job


@pytest.fixture
def ready(bench):
    bench.keep_ready(2)
    return bench


def nursery_of(bench):
    return bench.launcher.nursery._process.pid


async def spares_of(bench, count=2):
    """The pids of the spares, once all have said who they are."""

    def ready():
        doors = [door for door, _ in bench.launcher.nursery._spares]
        return len(select.select(doors, [], [], 0)[0]) == count

    await bench.until(ready)
    return children(nursery_of(bench))


def gone(pid):
    return start_time(pid) is None


async def claimed_by(bench, folder):
    return (await bench.until(lambda: files.read_claim(folder, 1)))["pid"]


async def test_an_attempt_is_given_to_a_spare_and_another_one_is_forked(ready):
    spares = await spares_of(ready)
    _, folder = ready.start("sh", "-c", "echo hello; exit 3")
    assert (await ready.last()).exit.code == 3
    assert files.read_claim(folder, 1)["pid"] in spares
    assert ready.log(folder) == "hello\n"
    assert set(await spares_of(ready)) != set(spares)


async def test_with_none_wanted_nothing_is_kept(bench):
    bench.start("true")
    await bench.last()
    assert bench.launcher.nursery._process is None


async def test_the_first_attempt_starts_singly_and_the_next_by_a_spare(bench):
    bench.launcher = bench.new_launcher(spares=1)
    _, first = bench.start("true")
    await bench.last()
    assert files.read_claim(first, 1)["pid"] not in await spares_of(bench, 1)
    (spare,) = await spares_of(bench, 1)
    _, second = bench.start("true", job=a_job("bbbbbbbb"))
    await bench.until(lambda: len(bench.events_of(Exited)) == 2)
    assert files.read_claim(second, 1)["pid"] == spare


async def test_more_attempts_at_once_than_spares_all_run(ready):
    jobs = [a_job(f"{letter * 8}") for letter in "abcdefghij"]
    for job in jobs:
        ready.start("true", job=job)
    await ready.until(lambda: len(ready.events_of(Exited)) == len(jobs))
    assert {event.exit.code for event in ready.events_of(Exited)} == {0}


def test_spares_and_nursery_end_with_a_host_that_is_killed():
    """Nobody tells them; their ends of the sockets say it."""
    program = (
        "import os, sys, time\n"
        "from jupyter_gpusched.launch.nursery import of_supervisors\n"
        "nursery = of_supervisors(os.environ, 2)\n"
        "nursery.fill()\n"
        "print(nursery._process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    host = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    nursery = int(host.stdout.readline())
    wait_for(lambda: len(children(nursery)) == 2, "there are no spares")
    spares = children(nursery)
    host.kill()
    host.wait()
    host.stdout.close()
    wait_for(lambda: all(map(gone, [nursery, *spares])), "they outlive the host")


async def test_a_running_attempt_outlives_the_launcher_and_the_nursery(ready):
    job, folder = ready.start("sh", "-c", f"while [ ! -e {ready.folder}/go ]; do sleep 0.01; done; exit 7")
    await ready.started()
    supervisor, nursery = await claimed_by(ready, folder), nursery_of(ready)
    await ready.launcher.close()
    assert gone(nursery)
    assert not gone(supervisor)
    ready.events.clear()
    ready.launcher = ready.new_launcher()
    ready.launcher.adopt(job, 1, folder)
    (ready.folder / "go").touch()
    assert (await ready.last()).exit.code == 7


async def test_the_supervisor_has_a_session_of_its_own_and_no_socket_and_no_marker(ready):
    _, folder = ready.start("sleep", "600")
    await ready.started()
    pid = await claimed_by(ready, folder)
    assert os.getsid(pid) == pid
    await ready.until(lambda: _files(pid)[2].endswith("/log"))
    assert not [place for place in _files(pid).values() if place.startswith(("socket:", "/memfd:"))]
    assert b"GPUSCHED_MARKER" not in read_proc(f"{pid}/environ")


def _files(pid):
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            found[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
    return found


async def test_a_job_inherits_no_open_file_from_where_its_supervisor_was_forked(ready):
    _, folder = ready.start(sys.executable, "-I", "-c", "import os; print(os.listdir('/proc/self/fd'))")
    await ready.last()
    assert eval(ready.log(folder)) == ["0", "1", "2", "3"]  # the third is the listing itself


async def test_a_folder_that_is_deleted_once_the_end_is_known_does_not_come_back(ready):
    """The end is told before the disk has it: whoever deletes the job then must not meet its supervisor again."""
    job, folder = ready.start("true")
    deleted = []
    settle = ready.launcher._settle

    def settling(watch, event):
        deleted.append(claimed := files.read_claim(folder, 1)["pid"])
        os.kill(claimed, signal.SIGSTOP)
        shutil.rmtree(folder)
        os.kill(claimed, signal.SIGCONT)
        settle(watch, event)

    ready.launcher._settle = settling
    await ready.last(job)
    await ready.until(lambda: all(map(gone, deleted)))
    assert not folder.exists()


async def test_a_spare_that_was_killed_is_passed_over(ready):
    spares = await spares_of(ready)
    for spare in spares:
        os.kill(spare, signal.SIGKILL)
    await ready.until(lambda: all(map(gone, spares)))
    ready.start("sh", "-c", "exit 4")
    assert (await ready.last()).exit.code == 4


async def test_a_spare_that_is_killed_with_its_attempt_before_the_claim_is_replaced(ready):
    """It is stopped, given the attempt, and killed: nobody has claimed it, so it is started singly."""
    spares = await spares_of(ready)
    for spare in spares:
        os.kill(spare, signal.SIGSTOP)
    _, folder = ready.start("sh", "-c", "exit 4")
    for spare in spares:
        os.kill(spare, signal.SIGKILL)
    assert (await ready.last()).exit.code == 4
    assert files.read_claim(folder, 1)["pid"] not in spares
    assert len(ready.events_of(Started)) <= 1


async def test_an_attempt_whose_spare_hangs_before_the_claim_can_be_stopped(ready):
    spares = await spares_of(ready)
    for spare in spares:
        os.kill(spare, signal.SIGSTOP)
    job, folder = ready.start("touch", str(ready.folder / "ran"))
    ready.launcher.stop(job, 1, "cancelled", 0.5, folder)
    await ready.last()
    for spare in spares:
        os.kill(spare, signal.SIGCONT)
    await ready.until(lambda: any(map(gone, spares)))
    assert not (ready.folder / "ran").exists()


async def test_a_nursery_that_was_killed_is_started_again_and_nothing_is_lost(ready):
    spares = await spares_of(ready)
    killed = nursery_of(ready)
    os.kill(killed, signal.SIGKILL)
    for number, letter in enumerate("abcd", 1):  # two by the spares that are left, two singly
        ready.start("sh", "-c", "exit 4", job=a_job(letter * 8))
        await ready.until(lambda number=number: len(ready.events_of(Exited)) == number)
    assert {event.exit.code for event in ready.events_of(Exited)} == {4}
    assert all(map(gone, spares))
    ready.launcher.nursery._restart_s = 0.0
    ready.start("true", job=a_job("eeeeeeee"))
    await ready.until(lambda: len(ready.events_of(Exited)) == 5)
    assert nursery_of(ready) != killed
    await spares_of(ready)


async def test_a_nursery_that_cannot_run_is_no_obstacle(bench, tmp_path, monkeypatch):
    broken = tmp_path / "nursery.py"
    broken.write_text("raise SystemExit(1)\n")
    monkeypatch.setattr("jupyter_gpusched.launch.nursery.NURSERY", str(broken))
    bench.keep_ready(2)
    for letter in "abc":
        bench.start("sh", "-c", "exit 4", job=a_job(letter * 8))
    await bench.until(lambda: len(bench.events_of(Exited)) == 3)
    assert {event.exit.code for event in bench.events_of(Exited)} == {4}


async def test_a_nursery_that_hangs_costs_milliseconds_only(ready):
    await spares_of(ready)
    os.kill(nursery_of(ready), signal.SIGSTOP)
    begun = time.monotonic()
    for letter in "abcd":
        ready.start("sh", "-c", "exit 4", job=a_job(letter * 8))
    took = time.monotonic() - begun
    await ready.until(lambda: len(ready.events_of(Exited)) == 4)
    assert took < 5
    begun = time.monotonic()
    await ready.launcher.close()
    assert time.monotonic() - begun < 5


async def test_a_spare_takes_little_memory_and_shares_most_of_it(ready):
    (spare, *_) = await spares_of(ready)
    rollup = read_proc(f"{spare}/smaps_rollup").decode()
    figures = {line.split()[0]: int(line.split()[1]) for line in rollup.splitlines()[1:]}
    own_kib = figures["Private_Dirty:"] + figures["Private_Clean:"]
    assert figures["Rss:"] < 12 * 1024
    assert own_kib < 3 * 1024


def test_the_nursery_imports_nothing_slow_and_ends_at_once_without_a_host():
    with _closed_socket() as control:
        command = [sys.executable, "-I", "-S", "-X", "importtime", NURSERY, str(control.fileno())]
        ended = subprocess.run(command, pass_fds=[control.fileno()], capture_output=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in ended.stderr.decode().splitlines()}
    assert not imported & {"json", "re", "signal", "enum", "typing", "subprocess", "pathlib", "ctypes", "socket"}


def _closed_socket():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.close()
    return theirs
