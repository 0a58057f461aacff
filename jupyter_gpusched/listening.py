"""Where the host listens, and how many connections it bears: of all together, and of one user.

Each takes a descriptor, of which a process has few: whoever opens more than others need would keep the
host from its files and from everybody else. Knows nothing of requests.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import resource
import socket
import struct
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream

from .callers import uid_at_other_end
from .places import passable_folder, private_folder

MOST_OF_ONE = 256
"""Connections of one user on a socket for several."""

SHARE_OF_NOBODY = 0.75
"""Of all connections that may be open, so many may be of nobody that the kernel knows, such as a Hub's proxy."""

_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 5\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s"
)
_WORDS = (
    b'{"error":{"code":"unavailable","message":"There are too many connections %s.","field":null,'
    b'"hint":"Close some, such as streams that nobody reads, and try again in a moment."}}'
)


class BoundedServer(HTTPServer):
    """An HTTP server that closes connections beyond its bounds at once, with an answer that says so."""

    def initialize(self, *words: Any, most_of_one: int | None = None, most: int | None = None, **named: Any) -> None:
        """most_of_one: of one user of a unix socket, None = any number; most: of all, None = by our descriptors."""
        super().initialize(*words, **named)
        self._most_of_one, self._most = most_of_one, most or _share_of_descriptors()
        self._open: defaultdict[int | None, list[IOStream]] = defaultdict(list)
        self._told_apart = False

    def handle_stream(self, stream: IOStream, address: Any) -> None:
        uid = uid_at_other_end(stream.socket)
        if uid is None and self._most_of_one is not None:
            if sum(map(len, self._open.values())) > self._most // 2:  # a look costs, and is for when there are many
                self._tell_apart()
                uid = uid_beside(stream.socket)
            else:
                self._told_apart = False
        if (why := self._too_many(uid)) is not None:
            refuse(stream, why)
            return
        self._open[uid].append(stream)
        super().handle_stream(stream, address)

    def _tell_apart(self) -> None:
        """Of those that came while there were few, too, find out whose they are."""
        if not self._told_apart:
            beside = connections_beside()
            for stream in self._open.pop(None, []):
                if not stream.closed():
                    self._open[uid_beside(stream.socket, beside)].append(stream)
            self._told_apart = True

    def _too_many(self, uid: int | None) -> bytes | None:
        self._open[uid] = [stream for stream in self._open[uid] if not stream.closed()]
        if uid is None and self._most_of_one is not None and len(self._open[None]) >= self._most * SHARE_OF_NOBODY:
            return b"by way of the proxy"
        if uid is not None and self._most_of_one is not None and len(self._open[uid]) >= self._most_of_one:
            return b"of yours"
        if sum(map(len, self._open.values())) < self._most:
            return None
        still = {uid: [stream for stream in streams if not stream.closed()] for uid, streams in self._open.items()}
        self._open = defaultdict(list, {uid: streams for uid, streams in still.items() if streams})
        return None if sum(map(len, self._open.values())) < self._most else b"here"


def refuse(stream: IOStream, why: bytes) -> None:
    words = _WORDS % why

    def hang_up(written: asyncio.Future[None]) -> None:
        written.exception()  # whoever has left meanwhile needs no answer
        stream.close()

    stream.write(_REFUSAL % (len(words), words)).add_done_callback(hang_up)


Beside = Mapping[tuple[str, str], int]
"""Whose the TCP connections of this machine are, by their two ends as the kernel lists them."""


def uid_beside(connection: socket.socket, beside: Beside | None = None) -> int | None:
    """The user of a connection from this very machine over TCP, by the kernel's table; None where it is not in there.

    Ourselves and root count as nobody: by way of a Hub's proxy come all users.
    """
    uid = whose_is(connection, connections_beside() if beside is None else beside)
    return None if uid in (None, 0, os.geteuid()) else uid


def whose_is(connection: socket.socket, beside: Beside) -> int | None:
    """Both ends count: at one address and port there may be connections of several users, to several places."""
    try:
        theirs, ours = connection.getpeername()[:2], connection.getsockname()[:2]
        ends = zip(_as_listed(*theirs), _as_listed(*ours), strict=True)
    except (OSError, ValueError):  # it is closed already
        return None
    return next((beside[pair] for pair in ends if pair in beside), None)


def connections_beside() -> Beside:
    """All that are open now."""
    found: dict[tuple[str, str], int] = {}
    for table in ("tcp", "tcp6"):
        try:
            rows = Path("/proc/net", table).read_text().splitlines()[1:]
        except OSError:  # a kernel without the newer kind
            continue
        for row in rows:
            fields = row.split()
            if fields[3] != _LISTENS:
                found[fields[1], fields[2]] = int(fields[7])
    return found


_LISTENS = "0A"


def _as_listed(host: str, port: int) -> tuple[str, str]:
    """An end as the tables have it for sockets of the kind of the address, and for sockets of the newer kind."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    newer = address.packed if address.version == 6 else b"\0" * 10 + b"\xff\xff" + address.packed
    return f"{_words(address.packed)}:{port:04X}", f"{_words(newer)}:{port:04X}"


def _words(packed: bytes) -> str:
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed))


def _share_of_descriptors() -> int:
    """Three of four of what this process may open; the rest is for jobs and files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**16 if soft == resource.RLIM_INFINITY else soft * 3 // 4


def bind(path: Path, *, shared: bool = False) -> socket.socket:
    """Listen on the host's socket. The lock is ours, so a file left there belongs to a dead host.

    shared  for all users of the machine: the folder lets them in, and only us put something there.
    """
    if shared:
        passable_folder(path.parent, mode=0o755)
    else:
        private_folder(path.parent)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    listener.bind(str(path))
    path.chmod(0o666 if shared else 0o600)  # of a private one nobody else can enter the folder meanwhile
    listener.listen(512)
    return listener
