"""``concurrent.futures.Executor`` whose calls are jobs.

One thread waits for all futures of an executor, on the host's stream of events, and only while
there are unfinished ones. Jobs do not depend on it: when this process ends, they go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor as StandardExecutor
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from . import describe, results
from .core.model import GpuSchedError
from .functions import spec_of_call
from .jobs import Job, JobFailed
from .session import host

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_RUNS = frozenset({"starting", "running", "stopping"})


class JobFuture(Future[Result]):
    """The future of one job; ``job`` is its handle."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job

    def cancel(self) -> bool:
        """Cancel the job if it waits in the queue. A job that runs is left alone; ``job.cancel()`` ends it."""
        if self.done() or self.running():
            return self.cancelled()
        if self.job.status != "queued":
            return False
        self.job.cancel()
        return super().cancel()


class Executor(StandardExecutor):
    """Calls become jobs, each with these options: ``gs.Executor(vram="4G", time_limit="1h")``.

    What cannot travel is refused by ``submit`` itself. A job that did not succeed gives its future
    the exception that the function raised, or ``JobFailed`` when it ended otherwise.
    """

    def __init__(self, **spec: Any) -> None:
        self._spec = spec
        self._lock = threading.RLock()
        self._waiting: dict[str, _Waiting] = {}
        self._thread: threading.Thread | None = None  # the latest one
        self._watching = False
        self._closed = False

    def submit(
        self, fn: Callable[Parameters, Result], /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> JobFuture[Result]:
        """Queue one call; all arguments are the function's own. Raises ``BadRequest`` for what cannot travel."""
        self._check_open()
        spec = spec_of_call(fn, args, kwargs, self._spec)
        with self._lock:  # held until the future is known, so that no event of its job is missed
            self._check_open()
            future: JobFuture[Result] = JobFuture(Job(host().submit(spec)))
            self._waiting[future.job.id] = _Waiting(future)
            self._ensure_thread()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; ``wait`` for the jobs' ends. Interrupting ends the waiting only."""
        with self._lock:
            self._closed = True
            thread, futures = self._thread, [waiting.future for waiting in self._waiting.values()]
        for future in futures if cancel_futures else ():
            future.cancel()
        if wait and thread is not None and thread is not threading.current_thread():
            thread.join()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def _ensure_thread(self) -> None:
        if not self._watching:
            self._watching = True
            self._thread = threading.Thread(target=self._watch, name="gpusched-executor", daemon=True)
            self._thread.start()

    # In the thread

    def _watch(self) -> None:
        """Follow the host's events until no future is left; the next submission starts another thread."""
        try:
            with closing(host().events()) as frames:  # type: ignore[type-var]  # an iterator that is a generator
                for frame in frames:
                    self._take(frame)
                    if self._done():
                        return
        except BaseException as error:  # noqa: BLE001 - nobody else would tell the futures
            self._give_up(error)

    def _done(self) -> bool:
        with self._lock:
            if self._waiting:
                return False
            self._watching = False
            return True

    def _take(self, frame: dict[str, Any]) -> None:
        if frame["type"] == "job":
            self._see(frame["job"])
        elif frame["type"] == "snapshot":
            live = {view["id"]: view for view in frame["jobs"]}
            with self._lock:
                known = list(self._waiting)
            for job_id in known:
                self._see(live.get(job_id) or host().job(job_id))

    def _see(self, view: describe.View) -> None:
        final = view["phase"] in describe.FINAL
        with self._lock:
            waiting = self._waiting.pop(view["id"], None) if final else self._waiting.get(view["id"])
        if waiting is None:
            return
        if final:
            waiting.end(view)
        elif view["phase"] in _RUNS:
            waiting.begin()

    def _give_up(self, error: BaseException) -> None:
        with self._lock:
            left, self._waiting, self._watching = list(self._waiting.values()), {}, False
        for waiting in left:
            if waiting.begin():
                waiting.future.set_exception(error)


@dataclass
class _Waiting:
    """A future of which the thread knows; ``begun`` says whether it was told that its job runs."""

    future: JobFuture[Any]
    begun: bool = False

    def begin(self) -> bool:
        """Tell the future that it runs, once; False when it was cancelled before."""
        if not self.begun:
            self.begun = True
            return self.future.set_running_or_notify_cancel()
        return not self.future.cancelled()

    def end(self, view: describe.View) -> None:
        """Give the future what became of its job."""
        if view["phase"] == "cancelled" and not self.begun:
            Future.cancel(self.future)
        if not self.begin():
            return
        try:
            self.future.set_result(_value(view))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the future holds it
            self.future.set_exception(error)


def _value(view: describe.View) -> Any:
    if view["phase"] == "succeeded":
        return results.value_of(host(), view, results.RETURNED)
    raised = results.exception_of(host(), view) if view["phase"] == "failed" else None
    if raised is None or isinstance(raised, results.RemoteTraceback):
        raise JobFailed(view, _tail(view)) from raised
    raise raised


def _tail(view: describe.View) -> str:
    try:
        return Job(view["id"]).tail()
    except GpuSchedError:
        return ""
