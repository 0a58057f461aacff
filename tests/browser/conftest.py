"""A real JupyterLab with simulated cards, and a headless Chromium that looks at it.

One server and one browser for all tests of this folder, except for modules that need a server of their own; each test
has a notebook of its own, and a tab of the browser as if nobody had used it before.
What went wrong is left as a screenshot and the server's log in the test's folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import nbformat
import pytest
from pages import Page, Tabs
from waiting import wait_for

CARDS = "2x24G"
TOKEN = "secret"
SLOW_MS = 60_000
"""A busy machine is slow to load a page."""
VIEWPORT = {"width": 1400, "height": 900}
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip

NEWS = "@jupyterlab/apputils-extension:announcements"
"""Its question would cover the corner of the page."""
NEEDLESS = [
    f"@jupyterlab/{name}-extension"
    for name in (
        "celltags", "console", "csvviewer", "debugger", "extensionmanager", "help", "htmlviewer", "hub", "imageviewer",
        "inspector", "json", "logconsole", "markdownviewer", "mermaid", "pdf", "pluginmanager",
        "running", "terminal", "tooltip", "vega5", "workspaces",
    )
]  # fmt: skip
"""What JupyterLab is quicker without; servers of a module's own have all that users have."""


class Shared:
    """What all tests of this folder share, made when it is first wanted and ended after the last of them."""

    def __init__(self) -> None:
        self._stack, self._made = ExitStack(), dict[Hashable, Any]()

    def get(self, key: Hashable, make: Callable[[], AbstractContextManager[Any]]) -> Any:
        if key not in self._made:
            self._made[key] = self._stack.enter_context(make())
        return self._made[key]

    def end(self) -> None:
        stack, self._stack, self._made = self._stack, ExitStack(), {}
        stack.close()


SHARED = Shared()


FAILED = pytest.StashKey[bool]()
"""Whether a test failed when it was last tried."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Playwright has an event loop of its own, with which tests of other folders could not have theirs."""
    yield
    tried_again = (
        item.stash.get(FAILED, False) and getattr(item, "execution_count", 2) < 2
    )  # pytest-rerunfailures counts
    if not tried_again and (nextitem is None or nextitem.path.parent != item.path.parent):
        SHARED.end()


@pytest.fixture(scope="module")
def chromium() -> Any:
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("needs Chromium: apt-get install -y chromium")
    api = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")

    @contextmanager
    def launched() -> Iterator[Any]:
        with api.sync_playwright() as playwright, tempfile.TemporaryDirectory(prefix="profile-") as profile:
            context = playwright.chromium.launch_persistent_context(
                profile, executable_path=found, args=ARGUMENTS, viewport=VIEWPORT
            )
            context.set_default_timeout(SLOW_MS)
            yield context.browser
            context.close()

    return SHARED.get("chromium", launched)


FAULTS = re.compile(r'^ *File ".*/jupyter_gpusched/.*|^\[E [^\]]*\] (?:Uncaught exception|500) .*')
LEFT_EARLY = re.compile(r"/api/kernels/[^/ ]+/channels|Uncaught exception in (ZMQS|zmqs)tream callback")
"""jupyter_server's own words on a page that is closed while its kernel starts or speaks."""


def faults_in(log: str) -> list[str]:
    """What went wrong in a server, each with the lines around it; that no host is there yet (503) is an answer.

    Kernels write into the same log, and what goes wrong in ipykernel alone is not counted.
    """
    lines = log.splitlines()
    return [
        "\n".join(lines[max(0, at - 12) : at + 6])
        for at, line in enumerate(lines)
        if FAULTS.search(line) and not LEFT_EARLY.search(line)
    ]


class Lab:
    """JupyterLab in a process and a home of its own."""

    def __init__(
        self,
        home: Path,
        runtime: str,
        prepare: Callable[[Path], None] | None = None,
        *,
        base: str = "",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.home = home
        self.root = home / "work"
        self.root.mkdir()
        self.log = home / "server.log"
        self.environ = _environment(home, runtime) | dict(environ or {})
        _configure(home, [NEWS] if base or prepare else [NEWS, *NEEDLESS])
        if prepare:
            prepare(home)
        self.port = _free_port()
        self.base = base
        self.url = f"http://127.0.0.1:{self.port}{base}"
        self.token = TOKEN
        self.start()

    def start(self) -> None:
        """Start the server, now and again after it was killed, at the same address."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1",
                    f"--port={self.port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}",
                    f"--ServerApp.root_dir={self.root}", "--LabApp.expose_app_in_browser=True",
                    "--ServerApp.terminals_enabled=False", f"--ServerApp.base_url={self.base}/",
                ],
                env=self.environ, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
                cwd=self.home,
            )  # fmt: skip

    def answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        with contextlib.suppress(OSError):  # it has looked for cards, and knows them or why there are none
            return bool(self.ask("gpus")["items"] or self.ask("health")["gpu_cause"])
        return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def ask(self, path: str, body: Any = None, *, method: str | None = None) -> Any:
        return self._request(f"gpusched/api/v1/{path}", body, method)

    def _request(self, path: str, body: Any = None, method: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/{path}", data=data, method=method)
        request.add_header("Authorization", f"token {TOKEN}")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")

    def submit(self, spec: dict[str, Any]) -> str:
        """Queue a job over REST; its id."""
        return str(self.ask("jobs", spec)["id"])

    def cancel_all(self) -> None:
        """End every job that is left, and wait until its cards are free."""
        for job in self.ask("jobs?limit=1000")["items"]:
            if job["ended_at"] is None:
                self.ask(f"jobs/{job['id']}/cancel", {"grace": "0s"})
        wait_for(lambda: not any(gpu["holders"] for gpu in self.ask("gpus")["items"]), "the cards are not freed")

    def leave(self) -> None:
        """As the next module wants to find it: with cards and without kernels."""
        self.cancel_all()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self._end_kernel, self._request("api/kernels")))

    def _end_kernel(self, kernel: dict[str, Any]) -> None:
        with contextlib.suppress(urllib.error.HTTPError):  # its session was ended meanwhile
            self._request(f"api/kernels/{kernel['id']}", method="DELETE")

    def notebook(self, name: str, *cells: str, app: str = "lab/tree") -> str:
        return self.saved(name, [nbformat.v4.new_code_cell(cell) for cell in cells], app=app)

    def saved(self, name: str, cells: list[Any], *, app: str = "lab/tree") -> str:
        """The address of a notebook with these cells, which nobody has trusted."""
        book = nbformat.v4.new_notebook(cells=cells)
        book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(book, self.root / name)
        return f"{self.url}/{app}/{name}?token={TOKEN}&reset"

    def end(self) -> None:
        """Ends the server, and then whatever of its jobs and kernels is left, by their pids."""
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=20)
        mark = f"GPUSCHED_HOME={self.environ['GPUSCHED_HOME']}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        os.kill(int(entry.name), signal.SIGKILL)
        self.process.wait()


def _configure(home: Path, disabled: Iterable[str]) -> None:
    """Notebook 7 is open to the tests like JupyterLab."""
    config = home / "config" / "labconfig"
    config.mkdir(parents=True)
    (config / "page_config.json").write_text(json.dumps({"disabledExtensions": dict.fromkeys(disabled, True)}))
    exposed = {"JupyterNotebookApp": {"expose_app_in_browser": True}}
    (home / "config" / "jupyter_notebook_config.json").write_text(json.dumps(exposed))


def _environment(home: Path, runtime: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ}
    folders = {f"JUPYTER_{kind.upper()}_DIR": str(home / kind) for kind in ("config", "data", "runtime")}
    lab = {f"JUPYTERLAB_{kind}_DIR": str(home / kind.lower()) for kind in ("SETTINGS", "WORKSPACES")}
    own = {"HOME": str(home), "IPYTHONDIR": str(home / "ipython"), "XDG_RUNTIME_DIR": runtime}
    return kept | folders | lab | own | {"GPUSCHED_HOME": str(home / "state"), "GPUSCHED_SIMULATE": CARDS}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(
    home: Path,
    prepare: Callable[[Path], None] | None = None,
    *,
    base: str = "",
    environ: Mapping[str, str] | None = None,
) -> Iterator[Lab]:
    runtime = tempfile.mkdtemp(prefix="gs-")  # short: a socket's path may have 107 bytes
    lab = Lab(home, runtime, prepare, base=base, environ=environ)
    try:
        wait_for(lab.answers, "JupyterLab does not start", deadline_s=90)
        yield lab
    finally:
        lab.end()
        shutil.rmtree(runtime, ignore_errors=True)
    assert not faults_in(lab.log.read_text())


@pytest.fixture(scope="module")
def environ() -> dict[str, str]:
    """What a module has its server know from its environment, as a fixture of its own in place of this one."""
    return {}


@pytest.fixture(scope="module")
def lab(
    chromium: Any, environ: dict[str, str], tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Lab]:
    """The same for all modules but those with a ``BASE``, an ``environ``, a ``prepare(home)`` or an ``OWN_LAB``."""
    home = tmp_path_factory.mktemp("lab")
    prepare, base = getattr(request.module, "prepare", None), getattr(request.module, "BASE", "")
    if prepare or base or environ or getattr(request.module, "OWN_LAB", False):
        with running(home, prepare, base=base, environ=environ) as own:
            yield own
        return
    lab = SHARED.get("lab", lambda: running(home))
    told = lab.log.stat().st_size
    yield lab
    lab.leave()
    assert not faults_in(lab.log.read_bytes()[told:].decode(errors="replace"))


@pytest.fixture(scope="module")
def another_page(chromium: Any) -> Iterator[Callable[[], Page]]:
    """Pages of other browsers: for what several tests look at, and what a second user sees."""
    with ExitStack() as stack:

        def make() -> Page:
            context = chromium.new_context(viewport=VIEWPORT)
            stack.callback(context.close)
            context.set_default_timeout(SLOW_MS)
            return Page.of(context.new_page())

        yield make


@pytest.fixture
def page(chromium: Any, lab: Lab, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Page]:
    tabs = SHARED.get("tabs", lambda: nullcontext(Tabs(chromium.contexts[0])))
    alone = request.node.get_closest_marker("own_page") is not None
    page = Page(lambda *, told: tabs.new() if alone else tabs.take(told=told))
    yield page
    failed = request.node.stash.get(FAILED, False)
    tab = page.leave()
    if tab and failed:
        tab.page.screenshot(path=tmp_path / "last.png")
        shutil.copy(lab.log, tmp_path / "server.log")
    if failed:
        lab.cancel_all()  # what it began must not be in the way when it is tried again
    if tab and (failed or alone):
        tab.page.close()
    elif tab:
        tabs.give(tab, told=page.told)
    page.end_test()
