"""A database that is busy, slow, full, spoilt or somebody else's, seen through a real host.

What the store makes of each is tested in ``tests/store``; here it is that the host goes on
answering, refuses by name, and loses nothing. Case 25.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import end_everything_of
from waiting import DEADLINE_S, wait_for, within

from jupyter_gpusched.client import Client
from jupyter_gpusched.core.model import GpuSchedError

CRASHING = str(Path(__file__).parents[1] / "crashing.py")
HOLDER = """
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""
system = pytest.mark.skipif(
    os.environ.get("GPUSCHED_TEST_SYSTEM") != "1" or os.geteuid() != 0,
    reason="mounts a small file system: run as root with GPUSCHED_TEST_SYSTEM=1",
)


@pytest.fixture
def database(own_environment) -> Path:
    return own_environment / "gpusched.sqlite"


class Watch:
    """Asks for the cards without a pause and notes the longest answer."""

    def __init__(self, client: Client) -> None:
        self.longest_s = 0.0
        self.answers = 0
        self._client = client
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def _ask(self) -> None:
        while not self._over.wait(0.05):
            start = time.monotonic()
            self._client.gpus()
            self.longest_s = max(self.longest_s, time.monotonic() - start)
            self.answers += 1

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.fixture
def hold():
    """Lets another process hold the database until it is told to let go."""
    held = []

    def begin(path: Path) -> subprocess.Popen[str]:
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        held.append(holder)
        assert holder.stdout.readline() == "held\n"
        return holder

    yield begin
    for holder in held:
        holder.kill()
        holder.communicate()


def test_a_locked_database_refuses_a_submission_after_10_s_and_the_cards_are_shown_throughout(
    host, command, database, hold, tmp_path
):
    client = host.client()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    ends_meanwhile = client.submit(command("sh", "-c", f"cat {gate}; exit 3"))
    wait_for(lambda: client.job(ends_meanwhile)["phase"] == "running", "the job does not start")
    waits_meanwhile = client.submit(command("true", gpus=2, vram=None))
    holder = hold(database)
    with Watch(host.client()) as watch:
        gate.write_text("")  # its end must be written down too, and keeps the writer waiting already
        time.sleep(1)
        start = time.monotonic()
        with pytest.raises(GpuSchedError) as refusal:
            host.client().submit(command("true"))
        took_s = time.monotonic() - start
        health = client.health()
        waits = client.job(waits_meanwhile)["waiting"]
    assert str(database) in refusal.value.message
    assert "locked by another process" in refusal.value.message
    assert 5 < took_s < within(13)
    assert watch.answers > 50
    assert watch.longest_s < within(0.5)
    assert health["status"] == "degraded"
    assert str(database) in " ".join(health["causes"])
    assert client.job(ends_meanwhile)["phase"] == "running"  # nobody is told what is not on disk
    assert waits.startswith("nothing starts while the queue cannot be written down: The job database")
    holder.kill()
    assert client.wait(client.submit(command("true")))["phase"] == "succeeded"
    assert client.wait(ends_meanwhile)["exit_code"] == 3
    assert len(client.jobs()) == 3
    assert client.health()["status"] == "ok"


def test_a_host_that_starts_while_the_database_is_locked_waits_for_it(start_host, database, hold):
    start_host().terminate()
    holder = hold(database)
    host = start_host(wait=False)
    time.sleep(1.5)
    assert host.process.poll() is None
    holder.kill()
    host.wait_until_hosting()


def test_a_slow_disk_delays_submissions_and_nothing_else(own_environment, command):
    environ = os.environ | {"GPUSCHED_SIMULATE": "1x8G"}
    slow = subprocess.Popen([sys.executable, CRASHING], env=environ | {"SLOW_WRITES_S": "1.5"})
    try:
        client = wait_for(lambda: connected(environ), "no host")
        with Watch(wait_for(lambda: connected(environ), "no host")) as watch, ThreadPoolExecutor(20) as pool:
            start = time.monotonic()
            ids = list(pool.map(lambda _n: client.submit(command("true")), range(20)))
            took_s = time.monotonic() - start
        assert len(set(ids)) == 20
        assert took_s < within(10)  # they share transactions: one by one it would be 30 s
        assert watch.longest_s < within(0.5)
        assert {client.wait(job_id, timeout=90)["phase"] for job_id in ids[:2]} == {"succeeded"}
    finally:
        slow.kill()
        slow.wait()


def connected(environ) -> Client | None:
    try:
        return Client.connect(environ=environ)
    except GpuSchedError:
        return None


def test_200_submissions_from_20_threads_get_200_ids(host, command):
    client = host.client()
    with Watch(host.client()) as watch, ThreadPoolExecutor(20) as pool:
        ids = list(pool.map(lambda _n: client.submit(command("true", vram="24000M")), range(200)))
    assert len(set(ids)) == 200
    assert watch.longest_s < within(0.5)


def not_sqlite(path: Path) -> None:
    path.write_text("these are my notes\n" * 100)


def of_another_program(path: Path) -> None:
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as foreign:
        foreign.execute("CREATE TABLE notes (text)")


def newer(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 999")


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (not_sqlite, "is not a database"),
        (of_another_program, "of another program"),
        (newer, "newer jupyter-gpusched"),
        (truncated, "is damaged"),
        (emptied, "is empty, although there have been jobs"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_spoilt_or_foreign_database_is_refused_by_name_and_left_as_it_is(start_host, command, database, spoil, words):
    first = start_host()
    client = first.client()
    client.submit_many([command("true", gpus=0) | {"vram": None}] * 20)
    wait_for(lambda: len(client.jobs(phase="succeeded")) == 20, "the jobs do not end")
    first.terminate()
    spoil(database)
    before = database.read_bytes()
    refused = start_host(wait=False)
    assert refused.process.wait(timeout=DEADLINE_S) == 2
    said = refused.log.read_text()
    assert str(database) in said
    assert words in said
    assert "Traceback" not in said
    assert database.read_bytes() == before
    doctor = subprocess.run(
        [sys.executable, "-m", "jupyter_gpusched.cli", "doctor"], capture_output=True, text=True, check=False
    )
    assert doctor.returncode == 1 or spoil is emptied
    assert database.read_bytes() == before


def test_a_database_that_was_moved_away_is_made_anew(start_host, command, database):
    first = start_host()
    first.client().wait(first.client().submit(command("true")))
    first.terminate()
    database.unlink()
    client = start_host().client()
    assert client.jobs() == []
    assert client.wait(client.submit(command("true")))["phase"] == "succeeded"


# --- a disk of its own ----------------------------------------------------------------------


@pytest.fixture
def small_disk(own_environment):
    """The state folder is a file system of 6 MiB."""
    own_environment.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m,mode=700", "tmpfs", str(own_environment)], check=True)
    yield own_environment
    end_everything_of(own_environment)
    subprocess.run(["umount", "-l", str(own_environment)], check=True)


def fill(folder: Path) -> Path:
    """Use up the disk to its last byte."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while file.write(b"x" * size):
                    pass
    return ballast


@system
def test_a_full_disk_refuses_and_loses_nothing_and_works_when_there_is_room(small_disk, start_host, command, tmp_path):
    host = start_host()
    client = host.client()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    running = client.submit(command("sh", "-c", f"cat {gate}; exit 4"))
    wait_for(lambda: client.job(running)["phase"] == "running", "the job does not start")
    ballast = fill(small_disk)
    with Watch(host.client()) as watch:
        with pytest.raises(GpuSchedError) as refusal:
            client.submit_many([command("true")] * 50)
        with pytest.raises(GpuSchedError) as refused_values:
            client.submit(
                {"kind": "cell", "source": "print(x)", "payload": "A" * 400_000, "vram": "1G", "cwd": "/", "env": {}}
            )
        gate.write_text("")
        wait_for(lambda: client.health()["status"] == "degraded", "health does not say so")
    assert "disk is full" in refusal.value.message
    assert "No space left" in refused_values.value.message
    assert refused_values.value.code == "unavailable"
    assert watch.longest_s < within(0.5)
    ballast.unlink()
    assert client.wait(running, timeout=90)["exit_code"] == 4
    assert client.wait(client.submit(command("true")))["phase"] == "succeeded"
    assert len(client.jobs()) == 2


@system
def test_on_a_full_disk_a_host_refuses_by_name_until_there_is_room(small_disk, start_host, command):
    host = start_host()
    host.client().wait(host.client().submit(command("true")))
    host.terminate()
    ballast = fill(small_disk)
    refused = start_host(wait=False)
    assert refused.process.wait(timeout=DEADLINE_S) == 2
    said = refused.log.read_text()
    assert str(small_disk) in said
    assert "full" in said or "No space left" in said
    assert "Traceback" not in said
    ballast.unlink()
    assert len(start_host().client().jobs()) == 1


@system
def test_on_a_read_only_disk_a_host_refuses_by_name_and_the_records_stay(small_disk, start_host, command):
    host = start_host()
    done = host.client().submit(command("true"))
    host.client().wait(done)
    host.terminate()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    refused = start_host(wait=False)
    assert refused.process.wait(timeout=DEADLINE_S) == 2
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    said = refused.log.read_text()
    assert str(small_disk) in said
    assert "Read-only file system" in said
    assert "Traceback" not in said
    client = start_host().client()
    assert client.job(done)["phase"] == "succeeded"
    assert client.wait(client.submit(command("true")))["phase"] == "succeeded"
