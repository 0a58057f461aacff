"""The one door to files that a job's user may have put anything in place of.

Everything behind it is done with the rights of the job folder's owner, follows no link in the
last two names of a path, enters nothing that is mounted there and takes only regular files of that
owner; reads nothing by itself.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from .acting import acting_with
from .mounts import open_below, status_of


def attempt_folder(folder: Path, attempt: int) -> Path:
    return folder / f"attempt-{attempt}"


@contextmanager
def as_owner_of(folder: Path, place: Path | None = None) -> Iterator[None]:
    """What follows is done as the owner of this job's folder, which lies in a folder of ours. Raises ``OSError``.

    place  a folder in it that is to be worked in, if it is there: nothing may be mounted over that one either.
    """
    info = status_of(folder)
    with acting_with(info.st_uid, info.st_gid):
        if place is not None and place != folder:
            with suppress(FileNotFoundError), _open(folder) as itself:
                os.close(open_below(itself, place.name, os.O_PATH | os.O_NOFOLLOW))
        yield


def owner_of(folder: Path) -> int | None:
    """The uid of the owner of a job's folder; None where there is none."""
    try:
        return status_of(folder).st_uid
    except OSError:
        return None


def opened(folder: Path, attempt: int, name: str) -> AbstractContextManager[int]:
    return opened_in(folder, attempt_folder(folder, attempt), name)


@contextmanager
def opened_in(folder: Path, place: Path, name: str) -> Iterator[int]:
    """A regular file of the job's owner in ``place``, the job's folder or one in it; no link is followed."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    with as_owner_of(folder), _open(folder) as itself:
        inside = itself if place == folder else open_below(itself, place.name, flags | os.O_DIRECTORY)
        try:
            descriptor = open_below(inside, name, flags | os.O_NONBLOCK)
            owner = os.fstat(inside).st_uid
        finally:
            if inside != itself:
                os.close(inside)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != owner:
            raise PermissionError(f"{place / name} is not a regular file of its owner")
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _open(folder: Path) -> Iterator[int]:
    above = os.open(folder.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        itself = open_below(above, folder.name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    finally:
        os.close(above)
    try:
        yield itself
    finally:
        os.close(itself)
