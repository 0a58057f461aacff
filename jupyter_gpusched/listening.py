"""Where the host listens, and how many connections it bears: of all together, and of one user.

Each takes a descriptor, of which a process has few: whoever opens more than others need would keep the
host from its files and from everybody else. Knows nothing of requests.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections import defaultdict
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream

from .callers import uid_at_other_end
from .places import passable_folder, private_folder

MOST_OF_ONE = 256
"""Connections of one user on a socket for several."""

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

    def handle_stream(self, stream: IOStream, address: Any) -> None:
        uid = uid_at_other_end(stream.socket)
        if uid is None and self._most_of_one is not None and sum(map(len, self._open.values())) > self._most // 2:
            uid = uid_beside(stream.socket)  # a look that costs, and is needed only when there are many
        if (why := self._too_many(uid)) is not None:
            refuse(stream, why)
            return
        self._open[uid].append(stream)
        super().handle_stream(stream, address)

    def _too_many(self, uid: int | None) -> bytes | None:
        self._open[uid] = [stream for stream in self._open[uid] if not stream.closed()]
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


def uid_beside(connection: socket.socket) -> int | None:
    """The user of a connection from this very machine over TCP, by the kernel's table; None where it is not in there.

    Ourselves and root count as nobody: by way of a Hub's proxy come all users.
    """
    try:
        host, port = connection.getpeername()[:2]
        rows = Path("/proc/net/tcp").read_text().splitlines()[1:] if host == "127.0.0.1" else []
    except OSError:
        return None
    for row in rows:
        fields = row.split()
        if fields[1] == f"0100007F:{port:04X}":
            uid = int(fields[7])
            return None if uid in (0, os.geteuid()) else uid
    return None


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
