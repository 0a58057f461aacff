"""Tabs of the user's browser, and what tests do in them by the words of a user.

Loading JupyterLab is most of what a test costs: a tab in which nothing went wrong is used again by the next test, and
its notebooks are opened one after another, as a user does, where the same JupyterLab is loaded already.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from routes import Route, forget_routes, routes

if TYPE_CHECKING:
    from conftest import Lab

STARTED = "() => window.jupyterapp?.isPluginActivated?.('jupyter-gpusched:plugin')"
READY = """() => {
  const session = window.jupyterapp?.shell?.currentWidget?.sessionContext;
  return session?.isReady && session.session?.kernel?.status === 'idle'
    && session.session.kernel.connectionStatus === 'connected';
}"""
EXPECTED = re.compile(
    r"WebSocket connection to|net::ERR_|/gpusched/api/.*Failed to load resource: .* status of (403|404|422|503)"
)
"""What the browser says of servers that tests kill, of refusals, and of a host that is not there yet (503), which are
answers: it always calls them errors."""
OURS = "jupyter-gpusched"
"""Stands in the address of all our scripts. What JupyterLab says of notebooks that are left is its own."""
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


RELOADED = "() => performance.navigation.type === 1"  # JupyterLab clears the entries by which one should ask


class Tab:
    """A tab, and the address of the JupyterLab that is loaded in it."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.lab = ""

    def blank(self) -> None:
        self.lab = ""
        forget_routes(self.page)
        self.page.goto("about:blank")

    def tidy(self) -> bool:
        """Leave JupyterLab as it is when it comes up; whether that was possible, and the tab can be used again.

        What was loaded anew is left: a notebook comes back whenever it likes, and would stand before the next test's.
        """
        forget_routes(self.page)
        if self.lab and self.page.url.startswith(f"{self.lab}/lab") and not self.page.evaluate(RELOADED):
            return bool(self.page.evaluate(TIDY))
        self.blank()
        return True


class Tabs:
    """The tabs that nobody uses at the moment, at most one of which shows JupyterLab.

    Two at once would be told apart by JupyterLab itself, which loads the second one again for that. What a test answers
    instead of a host cannot be taken back quite (Playwright keeps a page's WebSockets), so there are tabs for that.
    """

    def __init__(self, context: Any) -> None:
        self._context = context
        self._idle: dict[bool, list[Tab]] = {True: [], False: []}

    def take(self, *, told: bool) -> Tab:
        for tab in self._idle[not told]:
            if tab.lab:
                tab.blank()
        return self._idle[told].pop() if self._idle[told] else self.new()

    def new(self) -> Tab:
        return Tab(self._context.new_page())

    def give(self, tab: Tab, *, told: bool) -> None:
        self._context.clear_permissions()
        tab.page.emulate_media(reduced_motion="null", forced_colors="null")
        if told:
            tab.blank()
        if told or tab.tidy():
            self._idle[told].append(tab)
        else:
            tab.page.close()


class Page:
    """A browser's page with a notebook in it; the tab is taken when it is first wanted."""

    def __init__(self, tab: Callable[..., Tab]) -> None:
        self._take = tab
        self._taken: Tab | None = None
        self.told = False  # whether the test answers instead of a host
        self.sockets: list[str] = []
        self.requests: list[str] = []
        self.troubles: list[str] = []
        self._heard: dict[str, Callable[[Any], None]] = {
            "request": lambda request: self.requests.append(request.url),
            "websocket": lambda opened: self.sockets.append(opened.url),
            "pageerror": self._note,
            "console": self._note_console,
        }

    @classmethod
    def of(cls, page: Any) -> Page:
        """In a page of Playwright's that is somebody else's to close."""
        return cls(lambda **_told: Tab(page))

    @property
    def _tab(self) -> Tab:
        if self._taken is None:
            self._taken = self._take(told=self.told)
            for event, hear in self._heard.items():
                self._taken.page.on(event, hear)
        return self._taken

    @property
    def page(self) -> Any:
        return self._tab.page

    def be_told(self) -> Any:
        """The page in which a test answers instead of a host."""
        self.told = True
        return self.page

    def leave(self) -> Tab | None:
        """End what this test hears; its tab, if it wanted one."""
        tab, self._taken = self._taken, None
        for event, hear in self._heard.items() if tab else ():
            tab.page.remove_listener(event, hear)
        return tab

    def end_test(self) -> None:
        """Nothing may have gone wrong in the page, whoever looked at it."""
        told, self.troubles = self.troubles, []
        assert not told, told

    def _note(self, error: Any) -> None:
        told = error.stack or str(error)
        if OURS in told:
            self.troubles.append(told)

    def _note_console(self, message: Any) -> None:
        told = f"{message.location.get('url', '')}: {message.text}"
        if message.type == "error" and OURS in told and not EXPECTED.search(told):
            self.troubles.append(told)

    def route(self, pattern: re.Pattern[str], handler: Callable[[Route], Any]) -> None:
        """Answer what the page asks our API for, if its address matches."""
        routes(self.page).add(pattern, handler)

    def open_lab(self, lab: Lab) -> None:
        """JupyterLab without a notebook; the launcher takes the focus when it comes, so that is waited for."""
        self.page.goto(f"{lab.url}/lab?token={lab.token}&reset")
        self._tab.lab = lab.url
        self.page.wait_for_function(STARTED)
        self.page.evaluate("async () => { await window.jupyterapp.restored; }")
        self.page.wait_for_selector(".jp-Launcher")

    def open(self, url: str) -> None:
        """A notebook: as the first thing in a new page, or beside what was open before."""
        lab, tree, name = url.partition("?")[0].partition("/lab/tree/")
        if tree and lab == self._tab.lab:
            self.command("docmanager:open", path=name, factory="Notebook")
        else:
            self.page.goto(url)
            self._tab.lab = lab if tree else ""
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
