"""Threads that read in users' folders: few in all, and none that one user can keep from all others."""

from __future__ import annotations

import functools
import threading

import anyio
import anyio.to_thread
import pytest
from many_users import lab
from waiting import DEADLINE_S

from jupyter_gpusched import drafts
from jupyter_gpusched.admission import LOOKERS
from jupyter_gpusched.readers import AT_ONCE, FOR_EACH, Readers


def in_a_loop(test):
    """A test that awaits, in a loop of its own."""

    @functools.wraps(test)
    def run():
        anyio.run(test)

    return run


@in_a_loop
async def test_one_user_with_endless_files_leaves_readers_for_the_others():
    readers, enough, begun = Readers(), threading.Event(), threading.Semaphore(0)
    reading: list[str] = []

    def slow(user):
        def read():
            reading.append(user)
            begun.release()
            assert enough.wait(DEADLINE_S)

        return read

    async with anyio.create_task_group() as tasks:
        for _ in range(3 * AT_ONCE):
            tasks.start_soon(readers.read, "ann", slow("ann"))
        with anyio.fail_after(DEADLINE_S):
            assert await readers.read("bob", lambda: "of bob") == "of bob"
            for _ in range(FOR_EACH):  # threads begin when the machine lets them
                await anyio.to_thread.run_sync(begun.acquire)
            assert reading == ["ann"] * FOR_EACH
            enough.set()
    assert len(reading) == 3 * AT_ONCE, "who has to wait is served in the end"


@in_a_loop
async def test_of_many_users_no_more_read_at_a_time_than_there_are_readers():
    readers, together, most = Readers(), [], []

    def read():
        together.append(1)
        most.append(len(together))
        together.pop()

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(readers.read, f"user {number}", read)
    assert max(most) <= AT_ONCE


@in_a_loop
async def test_nothing_is_kept_of_users_who_ask_no_more_also_when_they_gave_up():
    readers = Readers()
    for _ in range(3):
        await readers.read("ann", lambda: None)
    with pytest.raises(OSError, match="broken"):
        await readers.read("bob", lambda: (_ for _ in ()).throw(OSError("broken")))
    with anyio.move_on_after(0):
        await readers.read("eve", lambda: None)
    assert (readers._shares, readers._asking) == ({}, {})


def test_a_disk_that_does_not_answer_keeps_only_its_users_submissions_waiting(own_environment, tmp_path, monkeypatch):
    enough, hung = threading.Event(), threading.Semaphore(0)
    real = drafts._check_folder

    def check_folder(work):
        if work.cwd == "/of/eve":
            hung.release()
            assert enough.wait(DEADLINE_S)
        real(work)

    monkeypatch.setattr(drafts, "_check_folder", check_folder)
    with lab(own_environment, tmp_path) as queue:
        queue.desk.admission._shared = True  # a service whose jobs run as their owners
        told = []

        def submit():
            told.append(queue.ask("eve", "POST", "jobs", {"argv": ["true"], "gpus": 0, "cwd": "/of/eve"}).status)

        threads = [threading.Thread(target=submit) for _ in range(LOOKERS + 2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(FOR_EACH):
                assert hung.acquire(timeout=DEADLINE_S)
            assert queue.ask("bob", "GET", "health").status == 200, "the loop waits for it"
            assert queue.submit("bob", "true")
            assert not hung.acquire(blocking=False), "of one user no more look at a time"
        finally:
            enough.set()
            for thread in threads:
                thread.join()
        assert set(told) == {422}
