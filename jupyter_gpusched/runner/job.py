"""Runs the cell, function or notebook of one attempt and makes its end the process's exit code.

Success is 0, an error 1, ``sys.exit`` its own code; signals stay signals. Results are written
only after success. Never reads standard input and never talks to the host.
"""

from __future__ import annotations

import atexit
import faulthandler
import json
import linecache
import os
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from . import snapshot, values, worker
from .journal import JobStream, Journal


def run(folder: str, attempt: int, here: str) -> NoReturn:
    """Run ``attempt-N/work.json`` of a job's folder. ``here`` is where the runner's files lie."""
    place = Place(folder, attempt, here)
    with open(f"{place.attempt_folder}/work.json", encoding="utf-8") as file:
        work = json.load(file)
    journal = open_outputs(place.attempt_folder, work.get("most_text"))
    try:
        code = runner_of(work["kind"])(work, place, journal)
    except values.CannotTravel as error:
        code = complain(error)
    sys.exit(code)


class Place(NamedTuple):
    """Where an attempt lies, and where the runner's own files do (``here``)."""

    folder: str
    attempt: int
    here: str

    @property
    def attempt_folder(self) -> str:
        return f"{self.folder}/attempt-{self.attempt}"

    @property
    def results(self) -> str:
        return f"{self.folder}/results"

    @property
    def payload(self) -> str:
        return f"{self.folder}/payload.pkl"


def runner_of(kind: str) -> Callable[[dict[str, Any], Place, Journal], int]:
    """Each kind imports only what it needs."""
    if kind == "function":
        from .function import run_function

        return run_function
    if kind == "notebook":
        from .notebook import run_notebook

        return run_notebook
    return run_cell


def open_outputs(attempt_folder: str, most_text: int | None = None) -> Journal:
    """From here on, what is printed is journaled; what ends the process late is, too."""
    faulthandler.enable(file=2)
    journal = Journal(attempt_folder, most_text)
    sys.stdout, sys.stderr = JobStream(journal, "stdout"), JobStream(journal, "stderr")
    journal.start()
    atexit.register(journal.catch_up, whole=True)  # the first to register is the last to be called
    return journal


def find_working_folder() -> None:
    """Modules in the working folder are found as in a notebook: before installed ones, after the standard library."""
    if "" not in sys.path:
        names = [os.path.basename(folder) for folder in sys.path]
        places = [names.index(name) for name in ("site-packages", "dist-packages") if name in names]
        sys.path.insert(min(places, default=len(names)), "")


def run_cell(cell: dict[str, Any], place: Place, journal: Journal) -> int:
    try:
        from .shell import new_shell
    except ImportError as error:
        raise values.CannotTravel(
            f"{sys.executable} cannot run cells ({error}); "
            f"install IPython there: {sys.executable} -m pip install ipython"
        ) from None
    payload = place.payload if cell["has_payload"] else None
    main = types.ModuleType("__main__")
    shell = new_shell(journal, main)
    find_working_folder()
    main.__file__ = f"{place.attempt_folder}/cell.py"
    sys.argv = [main.__file__]
    if payload is not None:
        values.load(payload, main.__dict__)
    swept = cell.get("sweep") or {}
    main.__dict__.update(swept)
    source = str(cell["source"])
    plain = worker.plain_python(shell.transform_cell(source), shell.transform_cell)
    worker.main_file(place.attempt_folder, place.here, payload=payload, source=plain, given=swept)
    show_source(main.__file__, plain)
    snapshot.hook(worker.snapshot_of(main.__dict__, place.attempt_folder, plain).write)
    if "%autoreload" in source and "load_ext autoreload" not in source:  # loaded by an earlier cell of the notebook
        shell.run_line_magic("load_ext", "autoreload")
    result = shell.run_cell(source, store_history=True)
    shell.display_pub.settle_widgets()
    if (code := exit_code(result)) == 0:
        save_results(cell["outputs"], place.results, main.__dict__)
    return code


def show_source(path: str, source: str) -> None:
    """Let ``inspect.getsource`` find the cell's classes, which it looks for in the file of ``__main__``."""
    lines = source.splitlines(keepends=True)
    linecache.cache[path] = (len(source), None, lines, path)  # without a time: never compared with the file


def exit_code(result: Any) -> int:
    """As Python's own: none or 0 is success, a number is itself, anything else is printed and 1."""
    if not isinstance(result.error_in_exec, SystemExit):
        return 0 if result.success else 1
    return code_of(result.error_in_exec)


def code_of(exit_: SystemExit) -> int:
    code = exit_.code
    if code is None or isinstance(code, int):
        return 1 if code and not code & 0xFF else code or 0  # the system keeps 8 bits: 256 would be success
    sys.stderr.write(f"{code}\n")
    return 1


def save_results(names: list[str], folder: str, namespace: dict[str, Any]) -> None:
    """Write what can be written; then fail for the first that could not, so that it is the last line."""
    failures = []
    for name in names:
        try:
            values.save(folder, name, namespace)
        except values.CannotTravel as error:  # noqa: PERF203
            failures.append(error)
    for failure in failures[1:]:
        complain(failure)
    if failures:
        raise failures[0]


def complain(error: values.CannotTravel) -> int:
    sys.stderr.write(f"gpusched: {error}\n")
    return 1
