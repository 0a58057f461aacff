"""Whether a process is a notebook's kernel or was started by one, and of which notebook.

Told from what the process was started with, as far as we may read that: our own user's processes,
or everybody's as root. Nothing else of its command line or environment leaves this module.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_CONNECTION_FILE = re.compile(rb"(?:^|[=/])kernel-[\w-]+\.json$")
_NOTEBOOK = b"JPY_SESSION_NAME="


class Kernel(NamedTuple):
    """``notebook`` is its path when the kernel was started; where it was renamed since, the old one."""

    kernel: bool = False
    notebook: str | None = None


def kernel_of(pid: int, *, proc: Path = Path("/proc")) -> Kernel:
    """Jupyter servers start kernels with their notebook in the environment, which their children inherit."""
    names = [entry for entry in _entries(proc / str(pid) / "environ") if entry.startswith(_NOTEBOOK)]
    if names and (notebook := names[0][len(_NOTEBOOK) :].decode(errors="replace")):
        return Kernel(kernel=True, notebook=notebook)
    # A kernel that no Jupyter server started (an editor, a console) still has its connection file.
    started = any(_CONNECTION_FILE.search(word) for word in _entries(proc / str(pid) / "cmdline"))
    return Kernel(kernel=started)


def _entries(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\0")
    except OSError:  # another's, or gone
        return []
