"""Which processes have a card's device file open: who may hold memory that the driver lists for nobody.

A child that inherited the device keeps the memory of a parent that was killed. Looks at what we may
see, which without root is our own user's processes. Never signals one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from jupyter_gpusched.core.model import Opener

from .owners import user_of

HARMLESS = frozenset({"nvidia-persiste"})
"""Keeps the driver loaded and holds no memory. The kernel cuts names after 15 characters."""


def openers(device_file: str, *, without: Iterable[int] = (), proc: Path = Path("/proc")) -> tuple[Opener, ...]:
    """The processes that have it open, by pid; ``without`` those that are known to."""
    known = set(without)
    found = []
    for entry in proc.iterdir():
        if entry.name.isdigit() and (pid := int(entry.name)) not in known and _has_open(entry, device_file):
            program = _program(entry)
            if program not in HARMLESS:
                found.append(Opener(pid, program, user_of(pid)))
    return tuple(sorted(found))


def _has_open(process: Path, device_file: str) -> bool:
    try:
        descriptors = os.listdir(process / "fd")  # noqa: PTH208  a hundred thousand of them may be looked at
    except OSError:  # another's, or gone
        return False
    return any(_target(f"{process}/fd/{descriptor}") == device_file for descriptor in descriptors)


def _target(link: str) -> str | None:
    try:
        return os.readlink(link)  # noqa: PTH115  as above
    except OSError:
        return None


def _program(process: Path) -> str:
    try:
        name = (process / "comm").read_text(errors="replace").strip()
    except OSError:
        return "?"
    return "".join(c if c.isprintable() else "?" for c in name) or "?"
