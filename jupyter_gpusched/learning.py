"""Which earlier runs are runs of the same work, and what ``vram="auto"`` makes of them.

A job is known again by a hash of what it runs (a cell's source, a script's path and content,
a notebook's code, a function's name, a command's words), else by its name. How much follows
from the runs is ``core/learn``'s.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path

from .core.learn import learned_amount
from .core.ledger import devices, serves, usable
from .core.model import Job, Kind, Work
from .core.quantities import Mib
from .core.state import State
from .named_files import read_file
from .ports import Store

LARGEST_READ = 4 * 2**20
"""Of a script that is larger, only its beginning counts."""

MOST_RUNS = 30
"""So many runs of the same work are looked at, be it that most of them failed."""

_NUMBER = re.compile(r"\[\d+\]$")


def code_of(work: Work, *, name: str, notebook: bytes | None = None) -> str | None:
    """A name for what the work runs; None where it cannot be told. May read the script.

    name      of the job, which for a function is the function's unless its owner chose another.
    notebook  as it was submitted.
    """
    parts = _parts(work, name, notebook)
    if parts is None:
        return None
    return hashlib.sha256(json.dumps([work.kind.value, *parts]).encode()).hexdigest()[:32]


def _parts(work: Work, name: str, notebook: bytes | None) -> list[str] | None:
    if work.kind is Kind.CELL:
        return [work.source or ""]
    if work.kind is Kind.SCRIPT:
        path = Path(work.cwd, work.path or "")
        content = _beginning(path)
        return None if content is None else [os.path.realpath(path), content]
    if work.kind is Kind.NOTEBOOK:
        return None if notebook is None else [os.path.realpath(Path(work.cwd, work.path or "")), *_code(notebook)]
    if work.kind is Kind.FUNCTION:
        return [_NUMBER.sub("", name)]  # each item of a map has its number
    return [work.cwd, work.shell] if work.shell is not None else [work.cwd, *work.argv]


def _beginning(path: Path) -> str | None:
    try:
        return hashlib.sha256(read_file(path, LARGEST_READ)).hexdigest()
    except OSError:
        return None


def _code(notebook: bytes) -> list[str]:
    """Its code cells: outputs, and what else saving it changes, do not make another notebook of it."""
    cells = json.loads(notebook)["cells"]
    sources = (cell.get("source", "") for cell in cells if cell["cell_type"] == "code")
    return ["".join(source) if isinstance(source, list) else str(source) for source in sources]


def learned(job: Job, store: Store, state: State, *, simulated: bool) -> tuple[Mib, str]:
    """Amount and sentence for a job that asks for ``auto``. Blocks on the database.

    Raises ``BadRequest`` where no run of it taught anything yet.
    """
    runs = store.runs(owner=job.owner, code=job.code, limit=MOST_RUNS) if job.code is not None else []
    if not any(attempt.peak_vram_mib for run in runs for attempt in run.attempts):
        runs = store.runs(owner=job.owner, name=job.name, limit=MOST_RUNS)
    fitting = [gpu for gpu in devices(state.gpus.values()) if serves(gpu, job.request)]
    sizes = sorted((usable(gpu, state.settings) for gpu in fitting), reverse=True)
    largest = sizes[job.request.gpus - 1] if len(sizes) >= job.request.gpus else None
    return learned_amount(runs, name=job.name, simulated=simulated, largest=largest)
