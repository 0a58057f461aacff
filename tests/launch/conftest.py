"""A workbench for real attempts: the real launcher and supervisor, in a temporary job folder."""

import asyncio
import contextlib
import os
import select
import signal
import sys
import time
from dataclasses import replace

import pytest

from jupyter_gpusched.core.messages import Exited, LaunchFailed, Started, Vanished, Voided
from jupyter_gpusched.core.model import Attempt, Grant, GrantState, Job, Kind, Phase, Priority, Request, Work
from jupyter_gpusched.core.quantities import Mib
from jupyter_gpusched.launch import attempt as files
from jupyter_gpusched.launch.local import LocalLauncher
from jupyter_gpusched.launch.processes import bearers
from jupyter_gpusched.ports import LaunchOrder

LAST = (Exited, LaunchFailed, Vanished, Voided)


def a_grant(job_id="aaaaaaaa", gpu="GPU-bbbb", index=1, promised=4096):
    return Grant(job_id, 1, gpu, index, "Card", Mib(promised), False, GrantState.HELD, 0.0)


def a_job(job_id="aaaaaaaa", *, kind=Kind.COMMAND, gpus=0, grants=(), **changes):
    job = Job(
        id=job_id,
        owner="me",
        kind=kind,
        name="job",
        request=Request(gpus=gpus, vram=Mib(4096) if gpus else None),
        priority=Priority.NORMAL,
        submitted_at=time.time(),
        since=time.time(),
        phase=Phase.STARTING,
        attempts=(Attempt(1, tuple(grants)),),
        grants=tuple(grants),
        grace_s=2.0,
    )
    return replace(job, **changes)


class Workbench:
    """One launcher with its events, and the attempts that were started on it."""

    def __init__(self, folder):
        self.folder = folder
        self.events = []
        self.arrived = asyncio.Event()
        self.launcher = self.new_launcher()
        self.folders = []

    def new_launcher(self, **options):
        environ = {"GPUSCHED_HOME": "/somewhere", "PATH": os.environ["PATH"]}
        return LocalLauncher(self._report, environ=environ, **options)

    def keep_ready(self, spares=1):
        """From now on attempts are given to supervisors that were kept ready, the first one too."""
        self.launcher = self.new_launcher(spares=spares)
        nursery = self.launcher.nursery
        nursery.fill()
        assert len(nursery._spares) == spares
        for door, _ in nursery._spares:  # else the first attempt would be started singly
            assert select.select([door], [], [], 60.0)[0], "no spare gets ready"

    def _report(self, event):
        self.events.append(event)
        self.arrived.set()

    def start(self, *argv, job=None, **work):
        """Launch a command, or whatever ``work`` says; return the job and its folder."""
        job = job or a_job()
        folder = self.folder / job.id
        self.folders.append(folder)
        fields = {"kind": job.kind, "cwd": str(self.folder), "env": dict(os.environ), "argv": argv, **work}
        self.launcher.launch(LaunchOrder(job, job.attempt, Work(**fields), folder))
        return job, folder

    def python(self, code, *args, job=None, **work):
        return self.start(sys.executable, "-c", code, *args, job=job, **work)

    def events_of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    async def until(self, condition, timeout=60.0):
        """Wait until ``condition()`` is true; looked at after each event and 50 times a second."""
        deadline = time.monotonic() + timeout
        while not (found := condition()):
            assert time.monotonic() < deadline, f"it did not happen in {timeout} s; events: {self.events}"
            self.arrived.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.arrived.wait(), 0.02)
        return found

    async def last(self, job=None, timeout=60.0):
        """The last event of the job's attempt (of the only one where no job is given)."""

        def found():
            return [e for e in self.events if _is_last_of(e, job)]

        return (await self.until(found, timeout))[0]

    async def started(self, count=1):
        return (await self.until(lambda: len(self.events_of(Started)) >= count) and self.events_of(Started))[-1]

    def log(self, folder, attempt=1):
        return files.read_log(folder, attempt, 0, 1 << 24).decode()

    def sweep(self):
        """End whatever of our attempts is still there, by the marker of each."""
        for folder in self.folders:
            for place in folder.glob("attempt-*"):
                number = int(place.name.partition("-")[2])
                claim = files.read_claim(folder, number) or {}
                if claim.get("marker"):
                    pids = {*bearers(f"GPUSCHED_MARKER={claim['marker']}".encode()), claim["pid"]}
                    for pid in pids:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)


def _is_last_of(event, job):
    return isinstance(event, LAST) and (job is None or event.job_id == job.id)


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def bench(tmp_path, loop):
    workbench = Workbench(tmp_path)
    yield workbench
    loop.run_until_complete(workbench.launcher.close())
    workbench.sweep()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run this folder's ``async`` tests in the loop of their fixtures, whatever plugins other tests bring along."""
    if not asyncio.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    pyfuncitem.funcargs["loop"].run_until_complete(pyfuncitem.obj(**arguments))
    return True
