"""Hosting from inside another program: a thread that hosts when nobody else does.

The thread has an event loop of its own, so that a busy program never delays the queue and a
scheduling pass never delays the program. Signals stay the program's.
"""

from __future__ import annotations

import logging
import os
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel

from jupyter_gpusched.core.model import GpuSchedError
from jupyter_gpusched.desk import Desk
from jupyter_gpusched.places import PlaceError, host_alive, read_host_record
from jupyter_gpusched.service import Host, HostLock
from jupyter_gpusched.settings import GpuSched

log = logging.getLogger(__name__)

RETRY_S = 5.0
"""How often a joined server looks whether it must take over; a host's death wakes it at once."""


class HostThread:
    """Keeps this server ready to host: hosts when the lock is free, else waits for the host's end."""

    def __init__(self, state: Path, config: GpuSched) -> None:
        self._state = state
        self._config = config
        self._thread = threading.Thread(target=self._main, name="gpusched-host", daemon=True)
        self._stop: Callable[[], None] | None = None
        self._ready = threading.Event()
        self._stopping = threading.Event()
        self.left_jobs = False

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        self._stopping.set()
        if self._ready.wait(timeout_s) and self._stop is not None:
            self._stop()
        self._thread.join(timeout_s)

    def _main(self) -> None:
        try:
            anyio.run(self._keep)
        except Exception:  # the server must live on without us; one log line says why
            log.exception("gpusched stopped working in this server")

    async def _keep(self) -> None:
        stop = anyio.Event()
        token = anyio.lowlevel.current_token()
        self._stop = lambda: anyio.from_thread.run_sync(stop.set, token=token)
        self._ready.set()
        said = ""
        while not (stop.is_set() or self._stopping.is_set()):
            trouble = await self._once(stop)
            if trouble and trouble != said:  # one line per cause, not one per try
                log.error("gpusched cannot host: %s", trouble)
            said = trouble
            if trouble:
                with anyio.move_on_after(RETRY_S):
                    await stop.wait()

    async def _once(self, stop: anyio.Event) -> str:
        """Host until we stop, or wait for the present host's end. Returns why hosting failed, if it did."""

        async def until(desk: Desk) -> None:
            await stop.wait()
            self.left_jobs = any(not job.phase.final for job in desk.engine.state.jobs.values())

        try:
            lock = HostLock(self._state)
            if not lock.acquire():
                await _host_ended(self._state, stop)
                return ""
            try:
                await Host(self._state, self._config, kind="server").serve(until)
            finally:
                lock.release()
        except (GpuSchedError, PlaceError, OSError) as error:
            return str(error)
        except Exception as error:
            log.debug("a fault while hosting", exc_info=True)
            return _fault(error)
        return ""


def _fault(error: BaseException) -> str:
    """What went wrong and where, in one line; groups of errors are named by their first."""
    while isinstance(inner := getattr(error, "exceptions", None), tuple) and inner:
        error = inner[0]
    place = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" ({Path(place[0].filename).name}:{place[0].lineno})" if place else ""
    return f"{type(error).__name__}: {error}{where}"


async def _host_ended(state: Path, stop: anyio.Event) -> None:
    """Wait until the host's process ends (its pidfd says so at once), a while has passed, or we stop."""
    record = read_host_record(state)
    with anyio.move_on_after(RETRY_S):
        async with anyio.create_task_group() as tasks:

            async def first(wait: Callable[[], Any]) -> None:
                await wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(first, stop.wait)
            if record is not None and host_alive(record):
                tasks.start_soon(first, lambda: _process_end(record.pid))


async def _process_end(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)
