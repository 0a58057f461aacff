"""A real JupyterLab with simulated cards, and a headless Chromium that looks at it.

One server and one browser for all tests of this folder, except for modules that need a server of their own; each test
has a page and a notebook of its own. Where a module says ``ONE_PAGE``, its notebooks are opened one after another in
the same page, as a user does: loading JupyterLab is most of what a test costs.
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
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import nbformat
import pytest
from waiting import wait_for

CARDS = "2x24G"
TOKEN = "secret"
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
STARTED = "() => window.jupyterapp?.isPluginActivated?.('jupyter-gpusched:plugin')"
READY = """() => {
  const session = window.jupyterapp?.shell?.currentWidget?.sessionContext;
  return session?.isReady && session.session?.kernel?.status === 'idle'
    && session.session.kernel.connectionStatus === 'connected';
}"""
EXPECTED = re.compile(
    r"WebSocket connection to|net::ERR_|/gpusched/api/.*Failed to load resource: .* status of (403|404|422)"
)
"""What the browser says of servers that tests kill, and of refusals, which are answers: it always calls them errors."""
NOT_OURS = re.compile(
    r"/notebook_core\..*|Could not restore the debugger state|/jlab_core\..*: Comm not found for comm id"
    r"|^Error: Disposed\n"
)
"""Known faults of JupyterLab's and Notebook 7's own: a theme without its settings, a debugger whose kernel ends, a
widget's message to a page that was loaded anew, a notebook that is closed while its kernel starts."""
TIDY = """async () => {
  const { commands, shell } = window.jupyterapp;
  for (const widget of [...shell.widgets('main')]) {
    if (widget.context?.model) widget.context.model.dirty = false;
    widget.dispose();
  }
  if (document.body.dataset.jpThemeName !== 'JupyterLab Light')
    await commands.execute('apputils:change-theme', { theme: 'JupyterLab Light' });
  shell.activateById('filebrowser');
  return !document.querySelector('.jp-Dialog');
}"""


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


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Playwright has an event loop of its own, with which tests of other folders could not have theirs."""
    yield
    if nextitem is None or nextitem.path.parent != item.path.parent:
        SHARED.end()


@pytest.fixture(scope="module")
def chromium() -> Any:
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("needs Chromium: apt-get install -y chromium")
    api = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")

    @contextmanager
    def launched() -> Iterator[Any]:
        with api.sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
            yield browser
            browser.close()

    return SHARED.get("chromium", launched)


FAULTS = re.compile(r'^ *File ".*/jupyter_gpusched/.*|^\[E [^\]]*\] (?:Uncaught exception|500) .*')
LEFT_EARLY = re.compile(r"/api/kernels/[^/ ]+/channels")
"""jupyter_server's own answer to a page that is closed while its kernel starts."""


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
        _configure(home)
        if prepare:
            prepare(home)
        self.port = _free_port()
        self.base = base
        self.url = f"http://127.0.0.1:{self.port}{base}"
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


def _configure(home: Path) -> None:
    """No question about news, which would cover the corner of the page; Notebook 7 is open to the tests like Lab."""
    config = home / "config" / "labconfig"
    config.mkdir(parents=True)
    disabled = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
    (config / "page_config.json").write_text(json.dumps(disabled))
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


class Page:
    """A browser's page with a notebook in it, by the words of a user."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self._lab = ""  # the address of the JupyterLab that is loaded, if others may use the page after this test
        self.begin_test()
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("websocket", lambda opened: self.sockets.append(opened.url))
        page.on("pageerror", self._note)
        page.on("console", self._note_console)

    def begin_test(self) -> None:
        self.sockets: list[str] = []
        self.requests: list[str] = []
        self.troubles: list[str] = []

    def end_test(self) -> None:
        """Nothing may have gone wrong in the page, whoever looked at it."""
        told, self.troubles = self.troubles, []
        assert not told

    def tidy(self) -> bool:
        """Leave JupyterLab as it is when it comes up; whether that was possible, and the page can be used again."""
        if not self._lab or not self.page.url.startswith(f"{self._lab}/lab"):
            return False
        self.page.context.clear_permissions()
        return bool(self.page.evaluate(TIDY))

    def _note(self, error: Any) -> None:
        told = error.stack or str(error)
        if "jupyter-gpusched" in told or not NOT_OURS.search(told):
            self.troubles.append(told)

    def _note_console(self, message: Any) -> None:
        told = f"{message.location.get('url', '')}: {message.text}"
        if message.type == "error" and not EXPECTED.search(told) and not NOT_OURS.search(told):
            self.troubles.append(told)

    def open_lab(self, lab: Lab) -> None:
        """JupyterLab without a notebook; the launcher takes the focus when it comes, so that is waited for."""
        self.page.goto(f"{lab.url}/lab?token={TOKEN}&reset")
        self.page.wait_for_function(STARTED)
        self.page.evaluate("async () => { await window.jupyterapp.restored; }")
        self.page.wait_for_selector(".jp-Launcher")

    def open(self, url: str) -> None:
        """A notebook: as the first thing in a new page, or beside what was open before."""
        lab, tree, name = url.partition("?")[0].partition("/lab/tree/")
        if tree and lab == self._lab:
            self.command("docmanager:open", path=name, factory="Notebook")
        else:
            self.page.goto(url)
            self._lab = lab if tree else ""
        self.page.wait_for_function(READY)

    def run(self, cell: int) -> None:
        """Run a cell and wait until it has returned."""
        self._activate(cell)
        self.command("notebook:run-cell")

    def begin(self, cell: int) -> None:
        """Run a cell that keeps the kernel busy."""
        self._activate(cell)
        self.page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-cell'); }")

    def _activate(self, cell: int) -> None:
        self.page.evaluate("n => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = n; }", cell)

    def show_panel(self) -> None:
        """By its command; it takes the focus a moment later, unless something else that comes up does."""
        panel = self.page.locator("#jupyter-gpusched-panel")
        for _ in range(3):
            self.page.evaluate("() => window.jupyterapp.shell.activateById('jupyter-gpusched-panel')")
            panel.wait_for()
            with contextlib.suppress(Exception):  # who needs the focus says so
                self.page.wait_for_selector("#jupyter-gpusched-panel:focus-within", timeout=2000)
                return

    def command(self, name: str, **arguments: Any) -> None:
        self.page.evaluate(
            "async ([name, args]) => { await jupyterapp.commands.execute(name, args); }", [name, arguments]
        )

    def find(self, test_id: str) -> Any:
        return self.page.get_by_test_id(f"gpusched-{test_id}")


def new_page(chromium: Any) -> Page:
    context = chromium.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(60_000)  # a busy machine is slow to load a page
    return Page(context.new_page())


@pytest.fixture(scope="module")
def another_page(chromium: Any) -> Iterator[Callable[[], Page]]:
    """Pages beside those of single tests: for what several tests look at, and what a second user sees."""
    made: list[Page] = []

    def make() -> Page:
        made.append(new_page(chromium))
        return made[-1]

    yield make
    for page in made:
        page.page.context.close()


@pytest.fixture(scope="module")
def kept() -> Iterator[list[Page]]:
    """The page of the test before, if this module wants it and it can be used again."""
    kept: list[Page] = []
    yield kept
    for page in kept:
        page.page.context.close()


@pytest.fixture
def page(chromium: Any, lab: Lab, kept: list[Page], request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Page]:
    one_page = getattr(request.module, "ONE_PAGE", False) and not request.node.get_closest_marker("own_page")
    if one_page and kept:
        page = kept.pop()
        page.begin_test()
    else:
        page = new_page(chromium)
    failed_before = request.session.testsfailed
    yield page
    failed = request.session.testsfailed > failed_before
    if failed:
        page.page.screenshot(path=tmp_path / "last.png")
        shutil.copy(lab.log, tmp_path / "server.log")
    if one_page and not failed and page.tidy():
        kept.append(page)
    else:
        page.page.context.close()
    page.end_test()
