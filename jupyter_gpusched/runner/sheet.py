"""The output notebook of an attempt: what was submitted, with parameters put in and outputs as they come.

Works on the notebook's plain JSON (format 4), so that the job's Python needs no further package.
Each save is whole or not at all: a job that is killed keeps what it had.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import time
from typing import Any

from .records import write_file

Cell = dict[str, Any]
Output = dict[str, Any]

SAVE_S = 2.0
"""While a cell runs, its outputs are saved at most this often, and more rarely the longer a save takes."""

_SAVE_SHARE = 20


class Sheet:
    """One notebook with the outputs of this attempt."""

    def __init__(self, content: dict[str, Any], target: str) -> None:
        self.content = content
        self._target = target
        self._displays: dict[str, list[Output]] = {}
        self._clear_at_next: set[int] = set()
        self._save_after = 0.0
        for cell in self.code_cells():
            cell["outputs"], cell["execution_count"] = [], None

    def code_cells(self) -> list[Cell]:
        return [cell for cell in self.content["cells"] if cell["cell_type"] == "code"]

    @property
    def language(self) -> str:
        metadata = self.content.get("metadata", {})
        told = (metadata.get("kernelspec") or {}).get("language") or (metadata.get("language_info") or {}).get("name")
        return str(told or "python").lower()

    @property
    def kernel_name(self) -> str | None:
        name = (self.content.get("metadata", {}).get("kernelspec") or {}).get("name")
        return name if isinstance(name, str) else None

    def take(self, cell: Cell, output: Output) -> None:
        """Fold one output into a cell, as a front end would."""
        kind = output["output_type"]
        if kind == "clear_output":
            if output["wait"]:
                self._clear_at_next.add(id(cell))
            else:
                cell["outputs"].clear()
        elif kind == "update_display_data":
            for shown in self._displays.get(_display_id(output) or "", []):
                shown["data"], shown["metadata"] = output["data"], output["metadata"]
        else:
            if id(cell) in self._clear_at_next:
                self._clear_at_next.discard(id(cell))
                cell["outputs"].clear()
            self._append(cell["outputs"], output)

    def _append(self, outputs: list[Output], output: Output) -> None:
        last = outputs[-1] if outputs else {}
        if output["output_type"] == "stream" and last.get("name") == output["name"]:
            last["text"] += output["text"]
            return
        kept = {name: value for name, value in output.items() if name != "transient"}
        outputs.append(kept)
        if (display := _display_id(output)) is not None:
            self._displays.setdefault(display, []).append(kept)

    def save(self) -> None:
        begun = time.monotonic()
        mine = f"{os.path.dirname(self._target)}/.{os.getpid()}.ipynb"
        content = json.dumps(self.content, ensure_ascii=False, indent=1) + "\n"
        write_file(mine, content.encode("utf-8", "backslashreplace"))
        os.rename(mine, self._target)
        now = time.monotonic()
        self._save_after = now + max(SAVE_S, _SAVE_SHARE * (now - begun))

    def save_now_and_then(self) -> None:
        if time.monotonic() >= self._save_after:
            with contextlib.suppress(OSError):  # a full disk: the next save may succeed
                self.save()


def _display_id(output: Output) -> str | None:
    display = (output.get("transient") or {}).get("display_id")
    return display if isinstance(display, str) else None


def tags(cell: Cell) -> list[str]:
    found = (cell.get("metadata") or {}).get("tags")
    return found if isinstance(found, list) else []


def source(cell: Cell) -> str:
    text = cell.get("source", "")
    return text if isinstance(text, str) else "".join(text)


def put_parameters(content: dict[str, Any], parameters: dict[str, Any]) -> None:
    """Add a cell that sets the parameters, after the one tagged ``parameters``, else at the top.

    A cell of an earlier run (tagged ``injected-parameters``) gives way to it, as papermill does it.
    """
    if not parameters:
        return
    cells = content["cells"]
    earlier = next((cell for cell in cells if "injected-parameters" in tags(cell)), None)
    defaults = next((number for number, cell in enumerate(cells) if "parameters" in tags(cell)), -1)
    place = cells.index(earlier) if earlier is not None else defaults + 1
    if earlier is not None:
        cells.remove(earlier)
    cells.insert(place, _injected(parameters, content))


def overwritten(content: dict[str, Any]) -> list[str]:
    """Names of given parameters to which a cell after them gives a value that has nothing to do with theirs."""
    place = next((n for n, cell in enumerate(content["cells"]) if "injected-parameters" in tags(cell)), None)
    if place is None:
        return []
    names = re.findall(r"^(\w+) = ", source(content["cells"][place]), re.MULTILINE)
    later = [source(cell) for cell in content["cells"][place + 1 :] if cell.get("cell_type") == "code"]
    return [
        name
        for name in names
        if any(re.search(rf"^{name}\s*=(?!=)(?!.*\b{name}\b)", text, re.MULTILINE) for text in later)
    ]


def _injected(parameters: dict[str, Any], content: dict[str, Any]) -> Cell:
    lines = ["# Parameters", *(f"{name} = {_literal(value)}" for name, value in parameters.items())]
    cell: Cell = {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {"tags": ["injected-parameters"]},
        "outputs": [],
        "source": "\n".join(lines),
    }
    taken = {cell.get("id") for cell in content["cells"]}
    if any(taken):  # format 4.5 and newer: every cell has an id
        cell["id"] = next(name for n in range(len(taken) + 1) if (name := f"parameters-{n}") not in taken)
    return cell


def _literal(value: Any) -> str:
    """JSON's values as Python writes them."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    return repr(value)
