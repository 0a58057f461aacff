"""The executor keeps what the standard library promises, at a real host."""

import threading
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, CancelledError, as_completed, wait
from concurrent.futures import Executor as StandardExecutor
from concurrent.futures import TimeoutError as NotYet  # the builtin one from Python 3.11 on

import pytest
from waiting import wait_for

import jupyter_gpusched as gs
from jupyter_gpusched.core.model import BadRequest

pytestmark = pytest.mark.usefixtures("host")

WHOLE = {"gpus": 2}
"""Both cards: the next such job has to wait."""


def defined(source, name="f"):
    names = {"__name__": "__main__"}
    exec(source, names)
    return names[name]


@pytest.fixture
def gate(tmp_path):
    """A function that runs until the gate is opened."""
    path = tmp_path / "gate"
    wait = f"    while not os.path.exists({str(path)!r}): time.sleep(0.02)\n"
    yield path, defined(f"def f(x=None):\n    import os, time\n{wait}    return x")
    path.touch()


def watchers():
    return [thread for thread in threading.enumerate() if thread.name == "gpusched-executor"]


def test_futures_complete_with_the_values_of_their_calls():
    with gs.Executor(vram="1G") as executor:
        assert isinstance(executor, StandardExecutor)
        futures = {executor.submit(defined("def f(x, y=1): return x * y"), n, y=10): n for n in range(3)}
        assert {futures[future]: future.result() for future in as_completed(futures)} == {0: 0, 1: 10, 2: 20}


def test_map_gives_results_in_order():
    with gs.Executor(vram="1G") as executor:
        assert list(executor.map(pow, [2, 3], [5, 2])) == [32, 9]


def test_an_exception_of_the_call_is_the_futures():
    with gs.Executor(vram="1G") as executor:
        future = executor.submit(defined("def f(): raise LookupError('gone')"))
        with pytest.raises(LookupError, match="gone"):
            future.result()
        assert isinstance(executor.submit(pow).exception(), TypeError)


def test_a_job_that_ended_otherwise_gives_its_failure():
    with gs.Executor(vram="1G") as executor:
        error = executor.submit(defined("def f():\n    import os\n    os.kill(os.getpid(), 9)")).exception()
    assert isinstance(error, gs.JobFailed)
    assert error.view["signal"] == 9


def test_what_cannot_travel_is_refused_by_submit_itself(client):
    with gs.Executor(vram="1G") as executor, pytest.raises(BadRequest, match="generator"):
        executor.submit(print, (x for x in []))
    assert client.jobs() == []


def test_a_queued_call_can_be_cancelled_and_a_running_one_cannot(gate):
    path, function = gate
    executor = gs.Executor(**WHOLE)
    first = executor.submit(function)
    wait_for(first.running, "the first job does not run")
    second = executor.submit(function)
    assert not first.cancel()
    assert second.cancel()
    assert second.cancelled()
    assert not second.running()
    with pytest.raises(CancelledError):
        second.result()
    assert wait([second], timeout=10).done == {second}
    assert second.job.status == "cancelled"
    path.touch()
    assert first.result(timeout=20) is None
    executor.shutdown()


def test_a_queued_job_that_somebody_else_cancels_is_a_cancelled_future(gate):
    _, function = gate
    with gs.Executor(**WHOLE) as executor:
        first, second = executor.submit(function), executor.submit(function)
        wait_for(first.running, "the first job does not run")
        second.job.cancel()
        assert wait([second], timeout=10).done == {second}
        assert second.cancelled()
        first.job.cancel(grace="0s")
        assert isinstance(first.exception(timeout=20), gs.JobFailed)


def test_shutdown_may_cancel_what_waits_and_takes_no_more(gate):
    path, function = gate
    executor = gs.Executor(**WHOLE)
    first = executor.submit(function, "done")
    wait_for(first.running, "the first job does not run")
    others = [executor.submit(function) for _ in range(2)]
    executor.shutdown(wait=False, cancel_futures=True)
    assert all(future.cancelled() for future in others)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(function)
    path.touch()
    executor.shutdown(wait=True)
    assert first.done()
    assert first.result() == "done"


def test_waiting_for_the_first_one_works(gate):
    path, function = gate
    with gs.Executor(vram="1G") as executor:
        slow, quick = executor.submit(function), executor.submit(abs, -1)
        assert wait([slow, quick], timeout=20, return_when=FIRST_COMPLETED).done == {quick}
        with pytest.raises(NotYet):
            slow.result(timeout=0.05)
        path.touch()
        assert wait([slow, quick], timeout=20, return_when=ALL_COMPLETED).not_done == set()


def test_one_thread_waits_for_all_futures_and_ends_with_the_last(gate):
    path, function = gate
    executor = gs.Executor(vram="1G")
    futures = [executor.submit(function, n) for n in range(4)]
    assert len(watchers()) == 1
    path.touch()
    assert [future.result(timeout=30) for future in futures] == [0, 1, 2, 3]
    wait_for(lambda: not watchers(), "the thread does not end")
    assert executor.submit(abs, -3).result(timeout=20) == 3
    executor.shutdown()
    assert not watchers()


def test_callbacks_are_called_and_may_submit_more():
    seen = []
    executor = gs.Executor(vram="1G")
    follower = []

    def follow(done):
        seen.append(done.result())
        follower.append(executor.submit(abs, -2))

    executor.submit(abs, -1).add_done_callback(follow)
    wait_for(lambda: follower, "the callback was not called")
    assert follower[0].result(timeout=20) == 2
    assert seen == [1]
    executor.shutdown()


def test_futures_outlive_the_host_that_took_their_jobs(gate, host, start_host):
    path, function = gate
    executor = gs.Executor(vram="1G")
    future = executor.submit(function, "kept")
    wait_for(future.running, "the job does not run")
    host.kill()
    start_host()
    path.touch()
    assert future.result(timeout=40) == "kept"
    executor.shutdown()
