"""Cells as they run for a user: supervisor, runner and journal, in a temporary job folder."""

import contextlib
import os
import pickle
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
import pytest

from jupyter_gpusched.core.model import Attempt, Job, Kind, Phase, Priority, Request, Work
from jupyter_gpusched.launch import attempt as files
from jupyter_gpusched.launch.ends import exit_record
from jupyter_gpusched.launch.logs import log_tail
from jupyter_gpusched.launch.orders import supervisor_order
from jupyter_gpusched.launch.spawn import spawn
from jupyter_gpusched.ports import LaunchOrder
from jupyter_gpusched.runner.tree import bearers


@dataclass
class Ended:
    """A cell job that has ended."""

    folder: Path
    kind: Kind

    @property
    def exit(self):
        raw = files.read_exit(self.folder, 1)
        return exit_record(raw, log_tail(self.folder, 1), self.kind, now=time.time())

    @property
    def log(self):
        return files.read_log(self.folder, 1, 0, 1 << 25).decode()

    @property
    def outputs(self):
        items, cursor = files.outputs(self.folder, 1, 0, final=True)
        while (page := files.outputs(self.folder, 1, cursor, final=True))[0]:
            items, cursor = items + page[0], page[1]
        return items

    def text(self, name="stdout"):
        return "".join(o["text"] for o in self.outputs if o["output_type"] == "stream" and o["name"] == name)

    def kinds(self):
        return [output["output_type"] for output in self.outputs]

    def result(self, name):
        record = pickle.loads((self.folder / "results" / f"{name}.pkl").read_bytes())
        return pickle.loads(record["value"])


class Cells:
    def __init__(self, folder):
        self.folder = folder
        self.running = []

    def start(self, source, *, values=None, payload=None, outputs=(), kind=Kind.CELL, env=(), **changes):
        """Start a cell job; return its folder and its supervisor's pid."""
        number = len(self.running)
        folder = self.folder / f"job{number:05}"
        folder.mkdir()
        if values is not None:
            payload = packed(values)
        if payload is not None:
            (folder / "payload.pkl").write_bytes(payload)
        job = Job(
            id=folder.name,
            owner="me",
            kind=kind,
            name="cell",
            request=Request(gpus=0),
            priority=Priority.NORMAL,
            submitted_at=time.time(),
            since=time.time(),
            phase=Phase.STARTING,
            attempts=(Attempt(1, ()),),
            grace_s=2.0,
        )
        cwd = str(self.folder)
        base = {"PATH": os.environ["PATH"], "IPYTHONDIR": str(self.folder / "ipython"), "HOME": cwd, **dict(env)}
        work = Work(
            kind=kind,
            cwd=cwd,
            env=base,
            source=source,
            outputs=tuple(outputs),
            has_payload=payload is not None,
            **changes,
        )
        order = supervisor_order(
            LaunchOrder(job, 1, work, folder), passed_on={}, marker=f"test-{os.getpid()}-{number}-{time.time_ns()}"
        )
        pid, wake = spawn(order, files.attempt_folder(folder, 1), os.environ)
        os.close(wake)
        self.running.append((folder, pid))
        return folder, pid

    def __call__(self, source, *, timeout=60.0, **options):
        """Run a cell to its end."""
        folder, pid = self.start(source, **options)
        self.wait(pid, timeout)
        return Ended(folder, options.get("kind", Kind.CELL))

    def wait(self, pid, timeout=60.0):
        deadline = time.monotonic() + timeout
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            assert time.monotonic() < deadline, f"the attempt did not end in {timeout} s"
            time.sleep(0.01)

    def clean(self):
        for folder, pid in self.running:
            claim = files.read_claim(folder, 1) or {}
            marker = f"GPUSCHED_MARKER={claim.get('marker', '?')}".encode()
            for left in (*([] if files.read_exit(folder, 1) else [pid]), *bearers(marker)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(left, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def packed(values, python=sys.version_info[:2], sys_path=()):
    """Values as a client sends them."""
    content = {
        "__gpusched__": 1,
        "python": list(python),
        "sys_path": list(sys_path),
        "values": cloudpickle.dumps(values),
    }
    return pickle.dumps(content, protocol=4)


def notebook(source):
    """The variables of a notebook whose cells have run."""
    names = {"__name__": "__main__"}
    exec(source, names)
    return names


@pytest.fixture
def cell(tmp_path):
    cells = Cells(tmp_path)
    yield cells
    cells.clean()
