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
from dataclasses import dataclass
from typing import Protocol

from tornado.httputil import HTTPServerRequest

from .core.model import NotAllowed


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


def peer_uid(request: HTTPServerRequest) -> int:
    """The user of the process at the other end of the socket, by its credentials at connect time."""
    peer: socket.socket = request.connection.stream.socket  # type: ignore[union-attr]
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
