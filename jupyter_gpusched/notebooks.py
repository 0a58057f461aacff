"""Notebooks as they are submitted: read once, checked, and kept as they are then.

Whoever goes on editing a notebook that waits in the queue changes nothing of the job. Never
executes anything and never changes the file.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .core.model import BadRequest, Work
from .named_files import read_file

LARGEST_NOTEBOOK = 256 * 2**20


def read_notebook(work: Work, kept: bytes | None = None) -> bytes:
    """The notebook of a job, or the one that was kept for the job that it repeats.

    Raises ``BadRequest`` for one that is missing or cannot be run.
    """
    path = Path(work.cwd, work.path or "")
    content = _content(path) if kept is None else kept
    try:
        notebook = json.loads(content)
    except ValueError as error:
        raise _refusal(
            path, f"is not a notebook: its JSON is broken ({error})", "Open and save it in Jupyter."
        ) from None
    if not isinstance(notebook, dict) or not _has_cells(notebook):
        raise _refusal(
            path, "is not a notebook of format 4", "Open and save it in Jupyter, which brings it up to date."
        )
    if not any(cell["cell_type"] == "code" for cell in notebook["cells"]):
        raise _refusal(path, "has no code cell", "There is nothing to run in it.")
    if work.parameters and _language(notebook) not in ("python", "python3", "ipython"):
        raise BadRequest(
            f"parameters: {str(path)!r} is written in {_language(notebook)}; only Python notebooks take parameters.",
            field="parameters",
            hint="Let it read its parameters from the environment (--env) instead.",
        )
    return content


def _content(path: Path) -> bytes:
    if not os.path.isfile(path):  # noqa: PTH113  pathlib raises for a name that is too long
        hint = "Check the name; it is looked up from the folder the job runs in."
        raise BadRequest(f"path: there is no notebook {str(path)!r}.", field="path", hint=hint)
    try:
        content = read_file(path, LARGEST_NOTEBOOK + 1)
    except OSError as error:
        raise _refusal(path, f"cannot be read: {error.strerror or error}", "Check its permissions.") from None
    if len(content) > LARGEST_NOTEBOOK:
        raise _refusal(path, f"is larger than {LARGEST_NOTEBOOK >> 20} MiB", "Clear its outputs and save it.")
    return content


def _has_cells(notebook: dict[str, Any]) -> bool:
    cells = notebook.get("cells")
    return (
        notebook.get("nbformat") == 4
        and isinstance(notebook.get("metadata", {}), dict)
        and isinstance(cells, list)
        and all(isinstance(cell, dict) and isinstance(cell.get("cell_type"), str) for cell in cells)
    )


def _language(notebook: dict[str, Any]) -> str:
    metadata = notebook.get("metadata", {})
    told = (metadata.get("kernelspec") or {}).get("language") or (metadata.get("language_info") or {}).get("name")
    return str(told or "python").lower()


def _refusal(path: Path, what: str, hint: str) -> BadRequest:
    return BadRequest(f"path: {str(path)!r} {what}.", field="path", hint=hint)
