"""Runs the notebook of one attempt in a kernel, cell after cell, and keeps it with its outputs.

The first cell that fails ends the job, unless it is tagged ``raises-exception``; a cell tagged
``skip-execution`` is passed over. When the job is being ended, the cell that runs may finish and
no further one is begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from typing import Any

from . import records, sheet, values
from .job import Place
from .journal import Journal
from .shown import WIDGET_VIEW, plain, portable, without_colours

KEPT = "notebook.ipynb"
"""The notebook as it was submitted, in the job's folder."""


def run_notebook(work: dict[str, Any], place: Place, journal: Journal) -> int:
    try:
        from . import kernel
    except ImportError as error:
        raise values.CannotTravel(
            f"{sys.executable} cannot run notebooks ({error}); "
            f"install a kernel there: {sys.executable} -m pip install ipykernel"
        ) from None
    with open(f"{place.folder}/{KEPT}", encoding="utf-8") as file:
        content = json.load(file)
    sheet.put_parameters(content, work["parameters"])
    for name in sheet.overwritten(content):
        print(
            f"gpusched: the notebook itself sets {name} in a cell after the given one, whose value is lost; "
            "tag the cell of the defaults `parameters`",
            file=sys.stderr,
            flush=True,
        )
    page = sheet.Sheet(content, f"{place.results}/{os.path.basename(work['path'])}")
    page.save()
    run = Run(page, journal, place.attempt_folder)
    code = asyncio.run(run.execute(kernel, place.attempt_folder, work["path"]))
    if code < 0:
        journal.catch_up(whole=True)
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


class Run:
    """One pass over the cells."""

    def __init__(self, page: sheet.Sheet, journal: Journal, attempt_folder: str) -> None:
        self._page = page
        self._folder = attempt_folder
        self._journal = journal
        self._cells: dict[str, sheet.Cell] = {}  # by the id that their messages bear
        self._numbers: dict[int, int] = {id(cell): n for n, cell in enumerate(page.code_cells(), 1)}
        self._widgets: dict[str, str] = {}  # models of the widgets that the running cell shows, by display id
        self._stopping = False

    async def execute(self, kernel: Any, attempt_folder: str, path: str) -> int:
        """The exit code; negative for a signal by which this process is to end, too."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop)
        name = kernel.kernel_for(self._page.kernel_name, self._page.language)
        running = await kernel.Kernel.start(name, attempt_folder=attempt_folder, session=path)
        try:
            code = await self._all_cells(running)
        except kernel.KernelDied as death:
            code = self._after(death.code)
        finally:
            self._page.save()
            await running.end()
        return -signal.SIGTERM if self._stopping else code

    def _stop(self) -> None:
        """The job is being ended; the kernel has got the signal, too, and may still have something to say."""
        self._stopping = True
        with contextlib.suppress(OSError):
            self._page.save()  # there may be no time for it later

    async def _all_cells(self, running: Any) -> int:
        for cell in self._page.code_cells():
            self._tell_progress(self._numbers[id(cell)] - 1)
            if "skip-execution" in sheet.tags(cell) or not sheet.source(cell).strip():
                continue
            if self._stopping:
                break
            reply = await self._one_cell(cell, running)
            self._page.save()
            if any(wish.get("source") == "ask_exit" for wish in reply.get("payload", ())):
                return 0
            if reply.get("status") == "error" and "raises-exception" not in sheet.tags(cell):
                return self._failed(cell, reply)
        else:
            self._tell_progress(len(self._numbers))
        return 0

    def _tell_progress(self, done: int) -> None:
        """For the host, which shows it; a full disk is no reason to end the job."""
        with contextlib.suppress(OSError):
            records.write_file(f"{self._folder}/.cells", f"{done} {len(self._numbers)}\n".encode())
            os.rename(f"{self._folder}/.cells", f"{self._folder}/cells")

    async def _one_cell(self, cell: sheet.Cell, running: Any) -> dict[str, Any]:
        self._journal.mark({"cell": self._numbers[id(cell)]})
        request = running.execute(sheet.source(cell))
        self._cells[request] = cell
        async for message in running.messages():
            origin = message["parent_header"].get("msg_id")
            self._take(message["msg_type"], message["content"], self._cells.get(origin))
            if origin == request and message["msg_type"] == "status" and _is_idle(message):
                break
        reply = dict(await running.reply(request))
        await self._settle_widgets(cell, running)
        return reply

    async def _settle_widgets(self, cell: sheet.Cell, running: Any) -> None:
        """There is no front end to keep widgets alive: show in words how those of this cell ended."""
        shown, self._widgets = self._widgets, {}
        if not shown or not self._page.language.startswith("python"):
            return
        for display, bundle in (await running.described(shown)).items():
            update = {"output_type": "update_display_data", "data": portable(bundle), "metadata": {}}
            self._put(cell, {**update, "transient": {"display_id": display}})

    def _take(self, kind: str, content: dict[str, Any], cell: sheet.Cell | None) -> None:
        if cell is None:  # the kernel's own start, or a widget
            return
        if kind == "execute_input":
            cell["execution_count"] = content["execution_count"]
        output = _output(kind, content)
        if output is not None:
            if (view := content.get("data", {}).get(WIDGET_VIEW)) and kind == "display_data":
                display = output.setdefault("transient", {}).setdefault("display_id", view["model_id"])
                self._widgets[display] = view["model_id"]
            self._put(cell, output)

    def _put(self, cell: sheet.Cell, output: sheet.Output) -> None:
        self._journaled(output)
        self._page.take(cell, output)
        self._page.save_now_and_then()

    def _journaled(self, output: sheet.Output) -> None:
        kind = output["output_type"]
        if kind == "stream":
            self._journal.text(output["name"], output["text"])
        elif kind == "error":
            self._journal.rich(output, without_colours(output["traceback"]))
        else:
            shown = kind in ("display_data", "execute_result")
            self._journal.rich(output, plain(output["data"]) if shown else "")

    def _failed(self, cell: sheet.Cell, reply: dict[str, Any]) -> int:
        name, words = str(reply.get("ename", "error")), str(reply.get("evalue", ""))
        self._say(f"code cell {self._place(cell)} failed: {name}{': ' if words else ''}{words.strip()}")
        if name == "SystemExit" and words.isascii() and words.isdigit():
            return int(words) % 256
        return 1

    def _after(self, code: int | None) -> int:
        """The kernel ended by itself: by ``exit()``, or it crashed."""
        last = list(self._cells.values())[-1] if self._cells else None
        where = f" in code cell {self._place(last)}" if last is not None else ""
        if code == 0 or self._stopping:
            return 0
        how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
        self._say(f"the kernel ended{where} {how}")
        return 1 if code is None else code

    def _place(self, cell: sheet.Cell) -> str:
        return f"{self._numbers[id(cell)]} of {len(self._numbers)}"

    def _say(self, text: str) -> None:
        self._journal.text("stderr", f"gpusched: {' '.join(text.split())}\n")


def _is_idle(message: dict[str, Any]) -> bool:
    return bool(message["content"].get("execution_state") == "idle")


def _output(kind: str, content: dict[str, Any]) -> sheet.Output | None:
    """A message as an output of nbformat, or None for one that shows nothing."""
    if kind == "stream":
        return {"output_type": kind, "name": content["name"], "text": content["text"]}
    if kind == "error":
        return {"output_type": kind, **{name: content[name] for name in ("ename", "evalue", "traceback")}}
    if kind == "clear_output":
        return {"output_type": kind, "wait": bool(content.get("wait"))}
    if kind not in ("display_data", "execute_result", "update_display_data"):
        return None
    output = {"output_type": kind, "data": portable(content["data"]), "metadata": content.get("metadata", {})}
    if kind == "execute_result":
        output["execution_count"] = content["execution_count"]
    if content.get("transient"):
        output["transient"] = content["transient"]
    return output
