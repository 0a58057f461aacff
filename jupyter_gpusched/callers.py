"""Who asks: the caller of a request, and the doorkeepers that find out.

A caller's name is an exact, opaque key: it is compared, never parsed. It comes from the kernel
(the peer of a unix socket) or from the Hub, never from what a request says of itself. What a
caller may see and do of others is decided here and nowhere else.
"""

from __future__ import annotations

import grp
import os
import pwd
import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import anyio.to_thread
from tornado.httputil import HTTPServerRequest

from .core.model import NotAllowed

BELIEVED_S = 60.0
"""So long what the user database said of somebody is taken as true."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks.

    user    the exact key; the owner of what this caller submits.
    uid     of the process that asks; None where a token alone says who it is.
    home    where jobs without ``cwd`` run.
    groups  names of the groups of this user, for limits.
    admin   sees and ends everybody's work, and runs the machine.
    """

    user: str
    uid: int | None
    home: str
    groups: tuple[str, ...] = ()
    admin: bool = False

    def sees(self, owner: str) -> bool:
        """Whether the content of this owner's jobs may be shown to the caller, and acted upon."""
        return self.admin or owner == self.user


class Doorkeeper(Protocol):
    """Finds out who sent a request."""

    async def caller(self, request: HTTPServerRequest) -> Caller:
        """Raises ``Unauthorized`` when nobody can say who it is, ``NotAllowed`` for somebody who may not come in."""

    async def knows(self, user: str) -> bool:
        """Whether somebody of this name could be a caller here."""

    def administrators(self) -> str:
        """Who runs this machine, in words for those who do not: ``ann and members of gpu-admins``."""


class OwnerOnly:
    """A host for one user: whoever else connects is turned away. Its owner is its administrator."""

    async def caller(self, request: HTTPServerRequest) -> Caller:
        uid = peer_uid(request)
        if uid != os.geteuid():
            raise NotAllowed(
                "This host works for another user.",
                hint="Start your own, or ask the administrator for a system service.",
            )
        return _owner(uid)

    async def knows(self, user: str) -> bool:
        return user == _owner(os.geteuid()).user

    def administrators(self) -> str:
        return _owner(os.geteuid()).user


class ByPeer:
    """A service for all users of the machine: whoever connects is who the kernel says.

    Administrators are named by user and by group; to be root makes nobody one.
    """

    def __init__(self, *, admins: Iterable[str] = (), admin_groups: Iterable[str] = ()) -> None:
        self._admins = frozenset(admins)
        self._admin_groups = frozenset(admin_groups)
        self._known: dict[int, tuple[float, Caller]] = {}  # by uid: until when it is believed

    async def caller(self, request: HTTPServerRequest) -> Caller:
        uid = peer_uid(request)
        until, known = self._known.get(uid, (0.0, None))
        if known is not None and time.monotonic() < until:
            return known
        caller = await anyio.to_thread.run_sync(self._look_up, uid)  # the user database may be far away
        self._known[uid] = time.monotonic() + BELIEVED_S, caller
        return caller

    async def knows(self, user: str) -> bool:
        return await anyio.to_thread.run_sync(is_unix_user, user)

    def administrators(self) -> str:
        return in_words(self._admins, self._admin_groups) or "nobody yet; root names some (GpuSched.admin_users)"

    def _look_up(self, uid: int) -> Caller:
        try:
            if uid == overflow_uid():
                raise KeyError(uid)
            entry = pwd.getpwuid(uid)
            if pwd.getpwnam(entry.pw_name).pw_uid != uid:
                raise KeyError(uid)
        except KeyError:
            raise NotAllowed(
                f"This machine knows no user for your uid {uid}.",
                hint="Inside of a container use a host of your own, or a JupyterHub service, which knows you by token.",
            ) from None
        groups = group_names(entry)
        admin = entry.pw_name in self._admins or not self._admin_groups.isdisjoint(groups)
        return Caller(entry.pw_name, uid, entry.pw_dir, groups, admin)


def in_words(users: Iterable[str], groups: Iterable[str]) -> str:
    """Users and groups for a sentence; empty where there are none."""
    named = [*sorted(users), *(f"members of {group}" for group in sorted(groups))]
    return " and ".join(part for part in (", ".join(named[:-1]), *named[-1:]) if part)


def is_unix_user(name: str) -> bool:
    """Whether the user database has somebody of exactly this name; it may be far away."""
    try:
        return pwd.getpwnam(name).pw_name == name
    except (KeyError, ValueError):  # ValueError: a name with a zero byte
        return False


def overflow_uid() -> int:
    """Under which the kernel shows everybody who has no number in our user namespace."""
    try:
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return 65534


def peer_uid(request: HTTPServerRequest) -> int:
    """The user of the process at the other end of the socket, by its credentials at connect time."""
    uid = uid_at_other_end(request.connection.stream.socket)  # type: ignore[union-attr]
    if uid is None:
        raise NotAllowed("Only on a unix socket does the kernel say who asks.")
    return uid


def uid_at_other_end(peer: socket.socket) -> int | None:
    """None where the kernel does not say: on anything but a unix socket."""
    if peer.family != socket.AF_UNIX:
        return None
    _pid, uid, _gid = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(uid)


def _owner(uid: int) -> Caller:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:  # a container without a passwd entry
        return Caller(str(uid), uid, "/", admin=True)
    return Caller(entry.pw_name, uid, entry.pw_dir, group_names(entry), admin=True)


def group_names(entry: pwd.struct_passwd) -> tuple[str, ...]:
    """The names of all groups of a user, as the system knows them; those without a name are left out."""
    names = []
    for gid in os.getgrouplist(entry.pw_name, entry.pw_gid):
        try:
            names.append(grp.getgrgid(gid).gr_name)
        except KeyError:  # noqa: PERF203
            continue
    return tuple(names)
