"""Whose a process is: user, start and notebook, as far as /proc tells.

Asked for pids that the driver lists; a pid of another namespace is simply not here. Never
signals one.
"""

from __future__ import annotations

import os
import pwd
from functools import cache
from pathlib import Path
from typing import Any

from .kernels import Kernel, kernel_of

_NOBODY_HERE: dict[str, Any] = {"user": None, "since": None, "here": False, **Kernel()._asdict()}


class Owners:
    """Remembers what it found, since a name may have to be fetched over the network."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], dict[str, Any]] = {}
        self._asked: set[tuple[int, int]] = set()

    def of(self, pid: int) -> dict[str, Any]:
        started = _start_ticks(pid)
        if started is None:
            return _NOBODY_HERE
        key = pid, started
        self._asked.add(key)
        if key not in self._known:
            told = kernel_of(pid)._asdict()
            self._known[key] = {"user": user_of(pid), "since": _epoch(started), "here": True, **told}
        return self._known[key]

    def forget_the_gone(self) -> None:
        """Called between two rounds: what the last round did not ask for is forgotten."""
        self._known = {key: known for key, known in self._known.items() if key in self._asked}
        self._asked.clear()


def _start_ticks(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def user_of(pid: int) -> str | None:
    try:
        return _name_of(Path(f"/proc/{pid}").stat().st_uid)
    except OSError:
        return None


@cache
def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _epoch(ticks: int) -> float | None:
    booted = _booted_at()
    return None if booted is None else booted + ticks / os.sysconf("SC_CLK_TCK")


@cache
def _booted_at() -> float | None:
    try:
        words = Path("/proc/stat").read_bytes().split()
        return float(words[words.index(b"btime") + 1])
    except (OSError, ValueError, IndexError):
        return None
