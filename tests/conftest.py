"""What every test stands on: an environment of its own, and real hosts that are cleaned up.

Each test gets a state folder, a runtime folder and Jupyter folders under temporary paths, so
that nothing outside of them is touched and two tests never meet.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from exploring import EXPLORE, ORDINARY, register_profiles
from sharing import Sharing, keep_together
from waiting import DEADLINE_S, wait_for

from jupyter_gpusched.client import Client
from jupyter_gpusched.places import read_host_record, state_folder

MOST_WORKERS = 8
TRIED_TWICE = ("browser", "hub", "system", "stories")
"""Folders whose tests drive other projects' programs on a loaded machine; the summary names what failed at first."""

register_profiles()
hypothesis.settings.load_profile(ORDINARY)  # unless the command line names another one, which is loaded after this


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than processors, since tests wait as much as they compute; none where single files are named."""
    named = [Path(argument.partition("::")[0]) for argument in config.args]
    if all(path.is_file() for path in named) or config.getoption("markexpr") == "gpu":
        return 0
    return min(MOST_WORKERS, len(os.sched_getaffinity(0)) + 1)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Sharing | None:
    return Sharing(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Who explores waits for thousands of examples."""
    if config.pluginmanager.hasplugin("rerunfailures"):  # -p no:rerunfailures: every first failure counts
        for item in items:
            if item.path.parent.name in TRIED_TWICE:
                item.add_marker(pytest.mark.flaky(reruns=1))
    if config.getoption("hypothesis_profile", None) == EXPLORE:
        for item in items:
            item.add_marker(pytest.mark.timeout(0))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Why a test had to be tried again: it wants mending none the less."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"failed at first: {report.nodeid}", sep="-")
        terminalreporter.write_line("\n".join(report.longreprtext.splitlines()[-40:]))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    keep_together(item)


@pytest.fixture(autouse=True)
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The state folder of this test; afterwards everything that runs on it is ended."""
    for name in list(os.environ):
        if name.startswith(("GPUSCHED_", "JUPYTER", "JPY_", "CUDA_", "MPLBACKEND")):
            monkeypatch.delenv(name)
    runtime = tempfile.mkdtemp(prefix="gs-")  # short: a socket's path may have 107 bytes
    state = tmp_path / "state"
    monkeypatch.setenv("GPUSCHED_HOME", str(state))
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg-state"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    for folder in ("CONFIG", "DATA", "RUNTIME"):
        monkeypatch.setenv(f"JUPYTER_{folder}_DIR", str(tmp_path / "jupyter" / folder.lower()))
    monkeypatch.setenv("GPUSCHED_IDLE_EXIT", "60")
    yield state
    end_everything_of(state)
    shutil.rmtree(runtime, ignore_errors=True)


def processes_of(state: Path) -> list[int]:
    """Processes that were started with this state folder in their environment: hosts, jobs and their children."""
    mark = f"GPUSCHED_HOME={state}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def end_everything_of(state: Path) -> None:
    """Ends what a test left behind; pytest's own environment carries no such mark, since it was set later."""
    for _try in range(50):
        left = processes_of(state)
        if not left:
            remove_cgroups_of(state)
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def remove_cgroups_of(state: Path) -> None:
    """Those whose supervisor and host were both killed."""
    for claim in state.glob("jobs/*/attempt-*/claim"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            Path(json.loads(claim.read_text())["cgroup"]).rmdir()


class HostProcess:
    """A real host in a process of its own."""

    def __init__(self, simulate: str | None, arguments: tuple[str, ...], environ: dict[str, str]) -> None:
        env = dict(os.environ) | environ
        if simulate:
            env["GPUSCHED_SIMULATE"] = simulate
        self.log = Path(os.environ["GPUSCHED_HOME"]).parent / "host.log"
        self._environ = env
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyter_gpusched.hosts.daemon", *arguments],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def client(self) -> Client:
        return Client.connect(environ=self._environ)

    def wait_until_hosting(self) -> HostProcess:
        def hosting() -> bool:
            if self.process.poll() is not None:
                pytest.fail(f"the host ended with {self.process.returncode}:\n{self.log.read_text()}")
            record = read_host_record(state_folder(self._environ))
            return record is not None and record.pid == self.pid

        wait_for(hosting, "the host does not announce itself")
        return self

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        self.process.terminate()
        return self.process.wait(timeout=DEADLINE_S)


@pytest.fixture
def start_host() -> Iterator[Callable[..., HostProcess]]:
    """Starts hosts on this test's state folder; all are ended afterwards."""
    started: list[HostProcess] = []

    def start(
        simulate: str | None = "2x24564M", *arguments: str, wait: bool = True, environ: dict[str, str] | None = None
    ) -> HostProcess:
        host = HostProcess(simulate, arguments, environ or {})
        started.append(host)
        return host.wait_until_hosting() if wait else host

    yield start
    for host in started:
        if host.process.poll() is None:
            host.kill()
        host.process.wait()


@pytest.fixture
def host(start_host: Callable[..., HostProcess]) -> HostProcess:
    """A host with two simulated cards of 24564 MiB."""
    return start_host()


@pytest.fixture
def client(host: HostProcess) -> Iterator[Client]:
    client = host.client()
    yield client
    client.close()


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """A spec of a command job that runs in the test's folder with the test's environment."""

    def make(*argv: str, **fields: Any) -> dict[str, Any]:
        return {"argv": list(argv), "cwd": str(tmp_path), "env": dict(os.environ), "vram": "1G"} | fields

    return make


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """An IPython shell with our magics, in a folder of its own and without a history file."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    monkeypatch.chdir(tmp_path)
    InteractiveShell.clear_instance()
    config = Config({"HistoryManager": {"enabled": False, "hist_file": ":memory:"}})
    shell = InteractiveShell.instance(config=config)
    shell.run_line_magic("load_ext", "jupyter_gpusched")
    yield shell
    InteractiveShell.clear_instance()
