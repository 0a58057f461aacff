"""Bad disks, foreign files, other programs: refused with the file's name, nothing half written."""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing

import pytest

from jupyter_gpusched.core.model import GpuSchedError
from jupyter_gpusched.ports import Unwritable
from jupyter_gpusched.store import SqliteStore, StoreUnavailable

WRITER = """
    import sys
    from pathlib import Path
    from jupyter_gpusched.core.messages import Change
    from jupyter_gpusched.core.model import Job, Kind, Priority, Request, Work
    from jupyter_gpusched.store import SqliteStore

    def job(number):
        return Job(id=f"job{number:05d}", owner="ada", kind=Kind.COMMAND, name="n", request=Request(),
                   priority=Priority.NORMAL, submitted_at=1.0, since=1.0)

    store = SqliteStore(Path(sys.argv[1]))
    epoch = store.take_over(at=1.0, host="writer")
    work = Work(kind=Kind.COMMAND, cwd="/")
    number = 0
    while True:
        jobs = [job(number + offset) for offset in range(20)]
        store.record([Change(j, "submitted", 1.0, {}) for j in jobs], {j.id: work for j in jobs}, epoch=epoch)
        number += 20
        print(number, flush=True)
"""
HOLDER = """
    import sqlite3, sys
    held = sqlite3.connect(sys.argv[1], isolation_level=None)
    held.execute("BEGIN EXCLUSIVE")
    print("held", flush=True)
    sys.stdin.read()
"""


def run_python(text, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def end(process):
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


@pytest.mark.parametrize("batches", [1, 4, 9])
def test_kill_9_in_the_middle_leaves_whole_batches_and_every_acknowledged_one(path, batches):
    writer = run_python(WRITER, path)
    try:
        for _ in range(batches):
            acknowledged = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged = max([acknowledged, *map(int, writer.stdout.read().split())])
    finally:
        end(writer)
    store = SqliteStore(path)
    try:
        jobs = store.jobs()
        assert len(jobs) >= acknowledged
        assert len(jobs) % 20 == 0
        assert store.last_seq() == len(jobs) + 1  # it took over first
        assert all(store.work(job.id) is not None for job in jobs)
    finally:
        store.close()


def interrupted_write(store):
    with store._write() as writer:
        writer.execute("UPDATE meta SET value = 99 WHERE key = 'epoch'")
        raise KeyboardInterrupt


def test_an_interrupted_write_leaves_nothing(store, epoch, submit, make_job):
    with pytest.raises(KeyboardInterrupt):
        interrupted_write(store)
    submit(store, epoch, make_job())
    assert store.last_seq() == 2


def test_a_full_disk_is_refused_as_a_whole_and_works_again_when_there_is_room(path, store, epoch, submit, make_job):
    pages = store._writer.execute("PRAGMA page_count").fetchone()[0]
    store._writer.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(StoreUnavailable, match=r"disk is full") as refusal:
        submit(store, epoch, *(make_job(f"job{number:05d}") for number in range(200)))
    assert str(path) in refusal.value.message
    assert "space" in refusal.value.hint
    assert store.jobs() == []
    store._writer.execute("PRAGMA max_page_count = 1000000")
    submit(store, epoch, make_job())
    assert store.last_seq() == 2


def test_a_disk_that_refuses_to_write_is_reported_and_survived(path, store, epoch, submit, make_job):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, hard))  # of what is laid out already, too
    try:
        with pytest.raises(StoreUnavailable, match=path.name):
            submit(store, epoch, *(make_job(f"job{number:05d}") for number in range(200)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert store.jobs() == []
    submit(store, epoch, make_job())
    assert [job.id for job in store.jobs()] == ["aaaaaaaa"]


def test_a_lock_held_too_long_refuses_a_write_but_no_read_and_ends_with_its_holder(
    path, store, epoch, submit, make_job
):
    holder = run_python(HOLDER, path)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreUnavailable, match=r"locked by another process"):
            submit(store, epoch, make_job())
        assert store.jobs() == []
    finally:
        end(holder)
    submit(store, epoch, make_job())
    assert len(store.jobs()) == 1


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(path):
    path.write_text("these are my notes, not yours\n" * 50)
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match=r"is not a database") as refusal:
        SqliteStore(path)
    assert "GPUSCHED_HOME" in refusal.value.hint
    assert path.read_bytes() == before


def test_a_database_of_another_program_is_refused_and_left_as_it_is(path):
    with closing(sqlite3.connect(path)) as foreign:
        foreign.execute("CREATE TABLE notes (text)")
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match=r"of another program"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_a_damaged_database_is_refused_by_name(path, store, epoch, submit, make_job):
    submit(store, epoch, *(make_job(f"job{number:05d}") for number in range(300)))
    store.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    with pytest.raises(StoreUnavailable, match=path.name):
        SqliteStore(path).live()


def test_a_folder_that_is_not_there_is_an_error_of_ours(tmp_path):
    with pytest.raises(GpuSchedError, match=r"nowhere"):
        SqliteStore(tmp_path / "nowhere" / "gpusched.db")


@pytest.mark.parametrize("replaced", [False, True])
def test_a_database_that_was_taken_away_is_not_written_to_any_more(path, store, epoch, submit, make_job, replaced):
    path.rename(path.with_suffix(".away"))
    if replaced:
        path.touch()
    with pytest.raises(StoreUnavailable, match=r"removed or replaced"):
        submit(store, epoch, make_job())
    path.with_suffix(".away").replace(path)
    submit(store, epoch, make_job())
    assert len(store.jobs()) == 1


def test_a_closed_store_refuses(store):
    store.close()
    with pytest.raises(StoreUnavailable):
        store.live()


def test_a_job_that_cannot_be_written_down_is_an_error_of_ours(store, epoch, submit, make_job):
    with pytest.raises(Unwritable):
        submit(store, epoch, make_job(name="\udcff"))
    with pytest.raises(Unwritable):
        submit(store, epoch, make_job(owner="\udcff"))
    submit(store, epoch, make_job())
    assert len(store.jobs()) == 1
