"""Working on files with a user's rights: the file-system identity of the calling thread, switched for a moment.

For a service that runs as root. Whatever a path leads to meanwhile, the kernel refuses what that
user could not do, so that a link or a swapped folder in a user's place gains nothing. Other
threads keep their identity; nothing is awaited in between. Owns no paths and decides nothing.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

from .owners import Owner

_SETGROUPS = {"x86_64": 116, "aarch64": 159}
"""The system call itself: the C library's function of this name is for all threads."""

_UNCHANGED = 0xFFFFFFFF


class CannotAct(PermissionError):
    """This process cannot take on another identity; nothing was done."""


@contextmanager
def acting_as(owner: Owner | None) -> Iterator[None]:
    """Do what follows with files as this user; None = as ourselves. Raises ``CannotAct``."""
    if owner is None:
        yield
        return
    with acting_with(owner.uid, owner.gid, owner.groups):
        yield


@contextmanager
def acting_with(uid: int, gid: int, groups: Sequence[int] = ()) -> Iterator[None]:
    """As ``acting_as``, by numbers. Inside of another it counts as that one if the user is the same."""
    if uid == os.geteuid():
        yield
        return
    libc = _library()
    if uid == libc.setfsuid(_UNCHANGED):
        yield
        return
    if os.geteuid() != 0:
        raise CannotAct(f"only root can work on files as uid {uid}")
    before = os.getgroups()
    _set_groups(libc, groups)
    try:
        _set(libc.setfsgid, gid)
        _set(libc.setfsuid, uid)
        yield
    finally:
        _set(libc.setfsuid, os.geteuid())
        _set(libc.setfsgid, os.getegid())
        _set_groups(libc, before)


def can_act() -> str | None:
    """Why this process cannot take on other identities; None when it can."""
    if os.geteuid() != 0:
        return "it does not run as root"
    if platform.machine() not in _SETGROUPS:
        return f"it is not known how to switch identities on {platform.machine()}"
    try:
        with acting_with(65534, 65534):
            return None
    except OSError as error:
        return str(error)


def _set(function: ctypes._FuncPointer, number: int) -> None:
    """These two answer with the number before, also when they fail: so they are asked again."""
    function(number)
    if function(_UNCHANGED) != number:
        raise CannotAct(f"the kernel refused the file-system identity {number}")


def _set_groups(libc: ctypes.CDLL, groups: Sequence[int]) -> None:
    number = _SETGROUPS.get(platform.machine())
    if number is None:
        raise CannotAct(f"it is not known how to switch groups on {platform.machine()}")
    listed = (ctypes.c_uint32 * len(groups))(*groups)
    if libc.syscall(number, len(groups), listed) != 0:
        code = ctypes.get_errno()
        raise CannotAct(code, f"groups cannot be switched: {os.strerror(code)}")


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
