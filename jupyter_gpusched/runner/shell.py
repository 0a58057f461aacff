"""An IPython shell without a terminal or a kernel: what a cell shows goes into the journal.

Nothing here waits for a person. Importing this imports IPython, the larger part of a cell's time to start.
"""

from __future__ import annotations

import sys
import types
import warnings
from typing import Any

from IPython.core.autocall import ExitAutocall
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets import Type, default
from traitlets.config import Config

from .journal import Journal
from .shown import WIDGET_VIEW, plain, portable, without_colours
from .unattended import refuse_input


class JobDisplayHook(DisplayHook):
    """The value of the cell's last expression becomes an ``execute_result``."""

    journal: Journal
    _formatted: tuple[dict[str, Any], dict[str, Any]] = ({}, {})

    def write_output_prompt(self) -> None:
        """A job has no prompt."""

    def write_format_data(self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None) -> None:
        self._formatted = format_dict, md_dict or {}

    def finish_displayhook(self) -> None:
        data, metadata = self._formatted
        self._formatted = {}, {}
        self._is_active = False
        if data:
            output = {"output_type": "execute_result", "execution_count": self.prompt_count}
            self.journal.rich({**output, "data": portable(data), "metadata": metadata}, plain(data))


class JobDisplayPublisher(DisplayPublisher):
    """``display``, its updates and ``clear_output``."""

    journal: Journal

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)  # type: ignore[no-untyped-call]
        self._widgets: dict[str, Any] = {}

    def publish(
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        *_: Any,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **__: Any,
    ) -> None:
        view = data.get(WIDGET_VIEW)
        if view and "text/plain" in data:
            transient = {"display_id": view["model_id"], **(transient or {})}
            self._remember(view["model_id"], transient["display_id"])
        kind = "update_display_data" if update else "display_data"
        output = {"output_type": kind, "data": portable(data), "metadata": metadata or {}}
        if transient:
            output["transient"] = transient
        self.journal.rich(output, "" if update else plain(data))

    def clear_output(self, wait: bool = False) -> None:
        self.journal.rich({"output_type": "clear_output", "wait": bool(wait)})

    def _remember(self, model_id: str, display_id: str) -> None:
        widgets = sys.modules.get("ipywidgets.widgets.widget")
        instance = getattr(widgets, "_instances", {}).get(model_id)
        if instance is not None:
            self._widgets[display_id] = instance

    def settle_widgets(self) -> None:
        """There is no front end to keep widgets alive: show in words how each one ended."""
        for display_id, widget in self._widgets.items():
            output = {"output_type": "update_display_data", "data": {"text/plain": repr(widget)}, "metadata": {}}
            self.journal.rich({**output, "transient": {"display_id": display_id}})
        self._widgets.clear()


class _Exit(ExitAutocall):
    """``exit`` and ``quit`` end the job, with a code if one is given."""

    def __call__(self, code: object = None) -> None:
        raise SystemExit(code)


class JobShell(InteractiveShell):
    """Runs one cell, shows what it shows in the journal, and remembers how it ended."""

    displayhook_class = Type(JobDisplayHook)
    display_pub_class = Type(JobDisplayPublisher)
    journal: Journal
    system = InteractiveShell.system_raw  # not by a pseudo-terminal, at which a program would wait for answers

    def enable_gui(self, gui: str | None = None) -> None:
        """There is no window to serve; ``%matplotlib inline`` asks for it all the same."""

    @default("exiter")
    def _exiter_default(self) -> _Exit:
        return _Exit(self)  # type: ignore[no-untyped-call]

    def showtraceback(self, *arguments: Any, **options: Any) -> None:
        if not isinstance(sys.exc_info()[1], SystemExit):
            super().showtraceback(*arguments, **options)

    def _showtraceback(self, etype: type[BaseException], evalue: BaseException, stb: list[str]) -> None:
        output = {"output_type": "error", "ename": etype.__name__, "evalue": str(evalue), "traceback": list(stb)}
        self.journal.rich(output, without_colours(stb))


def new_shell(journal: Journal, main: types.ModuleType) -> Any:
    """The one shell of this process, with ``main`` as the cell's namespace."""
    config = Config()
    config.HistoryManager.enabled = False
    JobShell.journal = JobDisplayHook.journal = JobDisplayPublisher.journal = journal
    shell = JobShell.instance(config=config, user_module=main)
    warnings.filterwarnings("ignore", message="To exit: use")
    refuse_input()
    return shell
