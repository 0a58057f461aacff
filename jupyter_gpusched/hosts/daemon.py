"""A host in a process of its own: ``jupyter gpusched serve``, and the daemon that starts by itself.

Started with ``--auto`` (by magics, the Python API, ``submit``, or a stopping Jupyter server
that leaves unfinished jobs) it gives way to any other host and ends when idle; without, it
stays in the foreground until SIGTERM and takes the place of an auto-started one.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import anyio
from traitlets import Bool, Float, Unicode

from jupyter_gpusched.core.model import GpuSchedError
from jupyter_gpusched.desk import Desk
from jupyter_gpusched.find_host import SYSTEM_SOCKET
from jupyter_gpusched.places import PlaceError, ask_host_to_stop, host_alive, read_host_record, state_folder
from jupyter_gpusched.service import Host, HostLock
from jupyter_gpusched.settings import GpuSched

from . import heap
from .signals import until_ended
from .strict import StrictApp
from .system import own_user_only, system_access, system_state

log = logging.getLogger(__name__)

HANDOVER_S = 15.0


class Serve(StrictApp):
    """Schedule the GPU jobs of this machine until stopped."""

    name = "jupyter-gpusched"
    description = __doc__
    classes = [GpuSched]  # noqa: RUF012  (traitlets' way)
    auto = Bool(False, help="Give way to any other host, and end when idle.").tag(config=True)
    idle_exit_s = Float(
        float(os.environ.get("GPUSCHED_IDLE_EXIT") or 600),
        min=0.0,
        help="Seconds without jobs and clients to end after.",
    ).tag(config=True)
    system = Bool(
        False, help="Serve all users of this machine: needs root, and runs every job as its owner. See docs/how-to."
    ).tag(config=True)
    socket = Unicode("", help=f"With `system`: where users find it; empty = {SYSTEM_SOCKET}.").tag(config=True)
    flags = {  # noqa: RUF012
        "auto": ({"Serve": {"auto": True}}, "Give way to any other host, and end when idle."),
        "system": ({"Serve": {"system": True}}, "Serve all users of this machine."),
    }
    aliases = {  # noqa: RUF012
        "simulate": "GpuSched.simulate",
        "idle-exit": "Serve.idle_exit_s",
        "socket": "Serve.socket",
        "config": "JupyterApp.config_file",
    }

    def start(self) -> None:
        super().start()
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO, stream=sys.stderr)
        state = system_state() if self.system else state_folder()
        try:
            if self.config_file and not Path(self.config_file).is_file():
                raise PlaceError(f"{self.config_file} is not there; --config names a file with settings")
            config = self.settings()
            access = system_access(config, self.socket) if self.system else None
            lock = HostLock(state) if access is None else HostLock(state, folder=access.folder)
            if not (lock.acquire() or (not self.auto and take_place_of_daemon(state, lock))):
                raise SystemExit(0 if self.auto else _taken(state))
            for_all = access is not None and access.for_others
            kind = "system" if for_all else "daemon" if self.auto else "serve"
            host = Host(state, config, kind=kind, access=access)
            anyio.run(self._serve, host)
        except (GpuSchedError, PlaceError) as error:
            hint = getattr(error, "hint", None)
            sys.stderr.write(f"jupyter gpusched: {error}\n" + (f"  {hint}\n" if hint else ""))
            raise SystemExit(2) from None
        except OSError as error:  # a full or failing disk, while folders and records are made
            sys.stderr.write(f"jupyter gpusched: {state} cannot be used: {error}\n  Check its disk, then try again.\n")
            raise SystemExit(2) from None

    async def _serve(self, host: Host) -> None:
        """Signals are received before anybody can know of this host, so that none ends it half way."""
        watched = (signal.SIGTERM, signal.SIGINT, *((signal.SIGHUP,) if self.system else ()))
        with anyio.open_signal_receiver(*watched) as signals:
            await host.serve(partial(self._until, signals))

    async def _until(self, signals: AsyncIterator[signal.Signals], desk: Desk) -> None:
        """Until a signal, or for an auto-started one until nobody needs it."""
        heap.tend(desk)
        if not self.auto:
            sys.stderr.write(f"jupyter gpusched: hosting {desk.state} on {desk.record.socket}; stop with Ctrl-C\n")
        if self.system and (alone := own_user_only()) is not None:
            sys.stderr.write(f"jupyter gpusched: {alone}\n")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_signalled, signals, desk, tasks.cancel_scope)
            if self.auto:
                tasks.start_soon(self._idle, desk, tasks.cancel_scope)
                tasks.start_soon(_gives_way, desk, tasks.cancel_scope)

    async def _idle(self, desk: Desk, scope: anyio.CancelScope) -> None:
        """Idleness is the absence of events, so it is looked for, seldom."""
        while (idle := desk.idle_for()) < self.idle_exit_s:  # noqa: ASYNC110
            await anyio.sleep(min(max(self.idle_exit_s - idle, 0.05), 5.0))
        scope.cancel()


async def _gives_way(desk: Desk, scope: anyio.CancelScope) -> None:
    await desk.gives_way.wait()
    scope.cancel()


async def _signalled(signals: AsyncIterator[signal.Signals], desk: Desk, scope: anyio.CancelScope) -> None:
    await until_ended(signals, desk)
    scope.cancel()


def take_place_of_daemon(state: Path, lock: HostLock) -> bool:
    """Ask an auto-started daemon to stop, and take its lock; jobs go on meanwhile. False for any other host."""
    record = read_host_record(state)
    if record is None or record.kind != "daemon" or not host_alive(record):
        return False
    ask_host_to_stop(record)
    deadline = time.monotonic() + HANDOVER_S
    while not lock.acquire():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _taken(state: Path) -> int:
    record = read_host_record(state)
    who = f"pid {record.pid} ({record.kind}), socket {record.socket}" if record else "it has not announced itself yet"
    sys.stderr.write(
        f"jupyter gpusched: {state} has a host already: {who}.\n"
        "  Nothing needs to be started: magics and commands find it. Stop it first to host here.\n"
    )
    return 2


main = Serve.launch_instance

if __name__ == "__main__":
    main()
