"""The one door to files that a job's user may have put anything in place of.

Follows no link and takes only regular files of the folder's owner; reads nothing by itself.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path


def attempt_folder(folder: Path, attempt: int) -> Path:
    return folder / f"attempt-{attempt}"


def opened(folder: Path, attempt: int, name: str) -> AbstractContextManager[int]:
    return opened_in(attempt_folder(folder, attempt), name)


@contextmanager
def opened_in(place_path: Path, name: str) -> Iterator[int]:
    """A regular file of the owner of its folder; no link is followed."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    place = os.open(place_path, flags | os.O_DIRECTORY)
    try:
        descriptor = os.open(name, flags | os.O_NONBLOCK, dir_fd=place)
        owner = os.fstat(place).st_uid
    finally:
        os.close(place)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != owner:
            raise PermissionError(f"{place_path / name} is not a regular file of its owner")
        yield descriptor
    finally:
        os.close(descriptor)
