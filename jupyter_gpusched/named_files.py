"""The files that a submission names: looked at without ever waiting, and only where host and job see the same.

Whoever calls has taken on the rights of the user as whom the job will run. That user may put a
pipe, a link or something endless in place of a file at any moment, also while it is looked at.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

MOST_LINKS = 40
"""The kernel itself follows no more of them."""

_SHARED_MEMORY = "/dev/shm"


def kernels_own(path: str | Path) -> str | None:
    """The first place on the way to this full path, links followed, that is no folder on a disk but the kernel's view.

    In ``/proc`` the same name is another file for the host and for the job; what is in ``/sys`` and
    ``/dev`` is no file that a job is made of, but for shared memory.
    """
    at, links = "/", 0
    left = str(path).split("/")[::-1]
    while left:
        part = left.pop()
        at = os.path.dirname(at) if part == ".." else os.path.join(at, part) if part not in ("", ".") else at  # noqa: PTH118, PTH120
        if at.startswith(("/proc/", "/sys/", "/dev/")) and not f"{at}/".startswith(f"{_SHARED_MEMORY}/"):
            return at
        try:
            target = os.readlink(at)  # noqa: PTH115  pathlib drops what it takes for needless
        except OSError:  # no link, or not there, which others find out
            continue
        links += 1
        if links > MOST_LINKS:
            return None
        at = "/" if target.startswith("/") else os.path.dirname(at)  # noqa: PTH120
        left += target.split("/")[::-1]
    return at if at in ("/proc", "/sys", "/dev") else None


def read_file(path: Path, most: int) -> bytes:
    """The beginning of a regular file, at most so many bytes. Raises ``OSError``, also for all that is none."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)
