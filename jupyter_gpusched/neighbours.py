"""Who else may promise the same cards unseen: hosts in other containers, or of other users of this machine.

Looks at this process's surroundings only and asks nobody. A service for everybody has no such
neighbours; where the cards are simulated nothing is at stake.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

CONTAINERS, HOSTS = "containers", "hosts"

_WORDS: Mapping[str | None, tuple[str, str | None]] = {
    None: ("no other scheduler is known that promises these cards", None),
    CONTAINERS: (
        "this container sees only its own promises: two containers on one card may each start a job that fits alone",
        "Run one scheduler for all outside of the containers, or give each container cards or MIG slices of its own.",
    ),
    HOSTS: (
        "another user of this machine runs a scheduler, too: each sees only its own promises, the rest as foreign use",
        "Ask the administrator for one service for all: `jupyter gpusched serve --system`, or the Hub's.",
    ),
}

_LOOK_EVERY_S = 60.0
_MACHINES_OWN = "pid:[4026531836]"  # the number that Linux gives the machine's own pid namespace
_LISTENING = 0x10000
_OF_A_USER = re.compile(r"(?:/run/user/(\d+)/jupyter-gpusched|/tmp/jupyter-gpusched-(\d+))/[0-9a-f]{16}\.sock")


class Neighbours:
    """``unseen``, looked up anew once a minute at most."""

    def __init__(self, look: Callable[[], str | None] | None = None) -> None:
        self._look = look or unseen
        self._found: str | None = None
        self._until = 0.0

    def unseen(self) -> str | None:
        if time.monotonic() >= self._until:
            self._found = self._look()
            self._until = time.monotonic() + _LOOK_EVERY_S
        return self._found


def unseen(
    *, proc: Path = Path("/proc"), root: Path = Path("/"), environ: Mapping[str, str] = os.environ
) -> str | None:
    """Whose promises on the cards a host of one's own cannot see here; None = there is nobody known."""
    if in_container(proc=proc, root=root, environ=environ):
        return CONTAINERS
    return HOSTS if others_hosts(_text(proc / "net/unix")) else None


def told_of(found: str | None) -> tuple[str, str | None]:
    """What that means, and what to do about it, for a person."""
    return _WORDS.get(found, (f"promises of other {found} on the cards are not seen", None))


def in_container(*, proc: Path, root: Path, environ: Mapping[str, str]) -> bool:
    """Whether this is one, by its marks or by pids that are not the machine's own."""
    marked = any((root / mark).exists() for mark in (".dockerenv", "run/.containerenv"))
    if marked or environ.get("container") or environ.get("KUBERNETES_SERVICE_HOST"):
        return True
    with suppress(OSError):
        apart = os.readlink(proc / "self/ns/pid") != _MACHINES_OWN  # noqa: PTH115
        return apart and "microsoft" not in _text(proc / "sys/kernel/osrelease").lower()  # each WSL has its own
    return False


def others_hosts(sockets: str) -> set[int]:
    """Users other than ourselves of whom a host listens here, by ``/proc/net/unix``."""
    found = set()
    for line in sockets.splitlines()[1:]:
        fields = line.split(None, 7)
        if len(fields) == 8 and int(fields[3], 16) & _LISTENING and (match := _OF_A_USER.fullmatch(fields[7])):
            found.add(int(match[1] or match[2]))
    return found - {os.geteuid()}


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
