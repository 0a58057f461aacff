"""What a job of a service may see of the machine: its own cards' device files, and a ``/tmp`` of its own.

Puts together what bubblewrap is told; ``runner/fence.py`` carries it out as root, before the change of
user. Everything else stays as it is, above all pids: supervision, the cards' accounting and the
search for what a job left behind need the real ones.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from jupyter_gpusched.ports import LaunchOrder

from .orders import FENCE
from .spawn import as_user

OF_A_CARD = re.compile(r"nvidia\d+")
OF_THE_CONSOLE = re.compile(r"(tty|vcs[au]?|loop|ram)\d+")
"""Nothing for jobs, and many: each file that is shown anew takes a millisecond."""

NEVER_HIDDEN = "MIG-"
"""Which card an instance is part of its name does not tell; the driver's capabilities guard it."""

_UUID, _MINOR = re.compile(r"^GPU UUID:\s*(\S+)", re.MULTILINE), re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)
_NOBODY = 65534
_TRIAL_S = 20.0


class NotBehindTheFence(OSError):
    """Something that a job needs cannot be shown to it."""


@dataclass(frozen=True, slots=True)
class Fence:
    """bwrap      the program.
    shown      folders that are seen even where they lie in ``/tmp``: this program, the host's socket.
    devices    where device files lie.
    cards      where the driver tells which of them is which card.
    private    what everybody has an empty one of.
    simulated  whether jobs get no real card, so that all device files of cards are hidden.
    """

    bwrap: str
    shown: tuple[Path, ...] = ()
    devices: Path = Path("/dev")
    cards: Path = Path("/proc/driver/nvidia/gpus")
    private: Path = Path("/tmp")
    simulated: bool = False

    def command(self, order: LaunchOrder) -> list[str]:
        """The command before another one by which an attempt runs behind the fence.

        Raises ``NotBehindTheFence`` for a folder that is hidden there, and for a card that the driver does not list.
        """
        if (why := self.hides(order.work.cwd)) is not None:
            raise NotBehindTheFence(f"its folder {order.work.cwd} {why}; use another folder")
        gpus = next((known.gpus for known in order.job.attempts if known.number == order.attempt), ())
        return self._before([grant.gpu for grant in gpus], order.folder)

    def hides(self, path: str) -> str | None:
        """Why a path is not seen there, as the end of a sentence that begins with it; None for one that is."""
        at = Path(os.path.normpath(path))
        if self.private not in at.parents or any(map(at.is_relative_to, self.shown)):
            return None
        return f"lies in {self.private}, of which each job has its own here"

    def _before(self, gpus: list[str], folder: Path) -> list[str]:
        view = ["--dev-bind", "/", "/", *self._devices(gpus), "--perms", "1777", "--tmpfs", str(self.private)]
        for path in (folder, *self.shown):
            if path.is_relative_to(self.private):
                above = [one for one in reversed(path.parents) if self.private in one.parents]
                for one in above:
                    view += ["--perms", "0755", "--dir", str(one)]
                view += ["--bind-try", str(path), str(path)]
        return [sys.executable, "-I", "-S", FENCE, self.bwrap, *view, "--"]

    def _devices(self, gpus: list[str]) -> list[str]:
        """All but the other cards' files and the console's; where there are none to hide, the folder stays as it is."""
        hidden = {name for name in os.listdir(self.devices) if OF_A_CARD.fullmatch(name)}  # noqa: PTH208
        if any(gpu.startswith(NEVER_HIDDEN) for gpu in gpus):
            return []
        hidden -= self._files_of(gpus) if hidden else set()
        if not hidden:
            return []
        view = ["--tmpfs", str(self.devices)]
        for entry in sorted(os.scandir(self.devices), key=lambda entry: entry.name):
            if entry.is_symlink():
                view += ["--symlink", os.readlink(entry.path), entry.path]  # noqa: PTH115
            elif entry.name not in hidden and not OF_THE_CONSOLE.fullmatch(entry.name):
                view += ["--dev-bind-try", entry.path, entry.path]
        return view

    def _files_of(self, gpus: list[str]) -> set[str]:
        known = {} if self.simulated else self._known()
        missing = [gpu for gpu in gpus if gpu not in known]
        if missing and not self.simulated:
            raise NotBehindTheFence(f"{self.cards} does not tell which device file belongs to {', '.join(missing)}")
        return {known[gpu] for gpu in gpus if gpu in known}

    def _known(self) -> dict[str, str]:
        found = {}
        for file in self.cards.glob("*/information"):
            told = file.read_text(errors="replace")
            uuid, minor = _UUID.search(told), _MINOR.search(told)
            if uuid is not None and minor is not None:
                found[uuid[1]] = f"nvidia{minor[1]}"
        return found

    def fails(self) -> str | None:
        """Why it does not work here, tried with a job of nobody that may use no card; None when it does."""
        if not self.simulated and any(map(OF_A_CARD.fullmatch, os.listdir(self.devices))) and not self._known():  # noqa: PTH208
            return f"{self.cards} does not tell which device file belongs to which card"
        looking = f"ls -A {self.private} && ls {self.devices} >/dev/null && cd {self.devices} && echo nvidia[0-9]*"
        trial = [*self._before([], Path("/")), *as_user(_NOBODY, _NOBODY, ()), "/bin/sh", "-c", looking]
        try:
            done = subprocess.run(
                trial, cwd="/", env={}, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRIAL_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        seen, complaint = done.stdout.decode(errors="replace").split(), done.stderr.decode(errors="replace").strip()
        if done.returncode != 0:
            return complaint.rpartition("\n")[2] or f"the trial ended with {done.returncode}"
        unexpected = set(seen) - {"nvidia[0-9]*"} - {path.relative_to(self.private).parts[0] for path in self._within()}
        return f"it does not hide {', '.join(sorted(unexpected))}" if unexpected else None

    def _within(self) -> list[Path]:
        return [path for path in self.shown if path.is_relative_to(self.private)]


def build_fence(*, shown: Iterable[Path] = (), simulated: bool = False) -> Fence:
    """The fence of this machine. Raises ``OSError`` that says why there can be none."""
    if os.geteuid() != 0:
        raise OSError("only a service that runs as root can isolate jobs")
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise OSError("bubblewrap is missing (package bubblewrap)")
    installed = (Path(sys.prefix), Path(FENCE).parents[1])
    fence = Fence(bwrap, (*installed, *shown), simulated=simulated)
    if (why := fence.fails()) is not None:
        raise OSError(f"bubblewrap does not work here: {why}")
    return fence
