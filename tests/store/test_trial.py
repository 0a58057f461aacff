"""What a file system can do is tried out: no database without locks, another journal without shared memory."""

import errno
import fcntl
import mmap
import threading

import pytest

from jupyter_gpusched.store import Ground, SqliteStore, StoreUnavailable, opening, try_out


def test_a_local_disk_has_all_that_is_needed_and_nothing_is_left_there(tmp_path):
    assert try_out(tmp_path) == Ground()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["flock", "fcntl"])
def test_locks_that_a_file_system_does_not_know_are_noticed(tmp_path, monkeypatch, name):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, name, refuse)
    assert "No locks available" in try_out(tmp_path).locks


@pytest.mark.parametrize("name", ["flock", "fcntl"])
def test_locks_that_exclude_nobody_are_noticed(tmp_path, monkeypatch, name):
    monkeypatch.setattr(fcntl, name, lambda *_: 0)
    assert "same lock" in try_out(tmp_path).locks


def without_shared_memory(monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setattr(mmap, "mmap", refuse)


def test_memory_that_cannot_be_shared_is_noticed(tmp_path, monkeypatch):
    without_shared_memory(monkeypatch)
    assert "No such device" in try_out(tmp_path).shared_memory


def test_without_locks_a_database_is_refused_before_anything_is_made(path, monkeypatch):
    monkeypatch.setattr(opening, "try_out", lambda folder: Ground(locks="locks do not work: No locks available"))
    with pytest.raises(StoreUnavailable, match="No locks available") as refusal:
        SqliteStore(path)
    assert str(path) in refusal.value.message
    assert "GPUSCHED_HOME" in refusal.value.hint
    assert not path.exists()


@pytest.fixture
def plain(path, monkeypatch):
    """A store on a file system without shared memory."""
    without_shared_memory(monkeypatch)
    store = SqliteStore(path)
    yield store
    store.close()


def test_without_shared_memory_another_journal_does_the_work(path, plain, submit, make_job):
    assert plain._writer.execute("PRAGMA journal_mode").fetchone()[0] == "truncate"
    epoch = plain.take_over(at=1.0, host="first")
    submit(plain, epoch, make_job())
    assert [job.id for job in plain.live()] == ["aaaaaaaa"]
    assert not path.with_name(path.name + "-shm").exists()
    plain.close()
    again = SqliteStore(path)
    assert [job.id for job in again.live()] == ["aaaaaaaa"]
    again.close()


def test_with_that_journal_too_many_threads_may_read_while_one_writes(plain, submit, make_job):
    epoch = plain.take_over(at=1.0, host="first")
    seen, done = [], threading.Event()

    def read():
        while not done.is_set():
            seen.append(len(plain.jobs()))

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for number in range(30):
        submit(plain, epoch, make_job(f"job{number:05d}"))
    done.set()
    for reader in readers:
        reader.join()
    assert len(plain.jobs()) == 30
    assert seen
