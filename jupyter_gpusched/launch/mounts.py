"""Opening what lies below a folder of ours without entering what a user has mounted over it.

A file system of a user's own making says of its files whatever that user likes, whose they are too, and
answers when he likes. So the service never asks one: the kernel refuses before it does.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from functools import lru_cache
from pathlib import Path

_OPENAT2 = 437
"""Of Linux 5.6 and the same on every architecture."""

_NO_XDEV = 1


class MountedOver(PermissionError):
    """Something is mounted over a job's folder or a file in it; nothing of it was read."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EXDEV, "something is mounted over it, so that it is left alone", path)


def open_below(inside: int, name: str, flags: int) -> int:
    """A descriptor of what has this name in an open folder, as ``os.open``. Raises ``OSError``, ``MountedOver`` too.

    Who is not root has nobody's files but the own to open, and may have mounted what he likes.
    """
    if os.geteuid() != 0:
        return os.open(name, flags, dir_fd=inside)
    how = (ctypes.c_uint64 * 3)(flags | os.O_CLOEXEC, 0, _NO_XDEV)
    descriptor = int(_library().syscall(_OPENAT2, inside, os.fsencode(name), ctypes.byref(how), ctypes.sizeof(how)))
    if descriptor >= 0:
        return descriptor
    number = ctypes.get_errno()
    if number == errno.EXDEV:
        raise MountedOver(name)
    if number in (errno.ENOSYS, errno.EPERM):  # an older kernel, or a container's filter
        return _compared(inside, name, flags)
    raise OSError(number, os.strerror(number), name)


def status_of(folder: Path) -> os.stat_result:
    """As ``lstat``, of a folder in one of ours: what our own file system says of it, which root alone decides.

    Raises ``OSError``, and ``MountedOver`` where another would answer.
    """
    if os.geteuid() != 0:
        return folder.lstat()
    above = os.open(folder.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        itself = open_below(above, folder.name, os.O_PATH | os.O_NOFOLLOW)
    finally:
        os.close(above)
    try:
        return os.fstat(itself)
    finally:
        os.close(itself)


def _compared(inside: int, name: str, flags: int) -> int:
    """Where the kernel does not look out for us: a folder on another device is of another file system.

    Not so a file: some file systems of one mount have several devices.
    """
    descriptor = os.open(name, flags | os.O_CLOEXEC, dir_fd=inside)
    info = os.fstat(descriptor)
    if stat.S_ISDIR(info.st_mode) and info.st_dev != os.fstat(inside).st_dev:
        os.close(descriptor)
        raise MountedOver(name)
    return descriptor


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
