"""HTTP over a unix socket, or over TCP to a Hub's service: one kept connection per thread, answers as bytes.

Knows status codes and broken connections, nothing of jobs. A socket that belongs to
somebody else than us or root is never spoken to.
"""

from __future__ import annotations

import http.client
import os
import socket
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from weakref import WeakSet

from .hub_address import HubAddress

CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 60.0
PACED_S = 20.0
"""So long a request is held back for a host that is asked too much; after that its refusal is passed on."""

_TOO_MANY = http.client.TOO_MANY_REQUESTS


class ConnectionLost(Exception):
    """Nobody listens, or the connection broke before the answer was complete."""


class ForeignSocket(Exception):
    """The socket belongs to another user: whoever made it could read what we submit."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``following`` is where a log goes on after the piece in ``body``, ``size`` how long it is in all.

    ``later_s`` is after how many seconds the host wants to be asked again.
    """

    status: int
    body: bytes
    following: int | None = None
    size: int | None = None
    later_s: int | None = None


def check_owner(path: str) -> None:
    """Raises ``ForeignSocket``, or ``ConnectionLost`` when there is no socket."""
    try:
        info = os.lstat(path)
    except OSError as error:
        raise ConnectionLost(f"{path}: {error.strerror}") from error
    if not stat.S_ISSOCK(info.st_mode):
        raise ConnectionLost(f"{path} is not a socket")
    if info.st_uid not in (0, os.geteuid()):
        raise ForeignSocket(f"{path} belongs to uid {info.st_uid}, not to you")


def accepts(path: str) -> bool:
    """Whether somebody listens on a socket that we may trust."""
    try:
        _open_socket(path, CONNECT_TIMEOUT_S).close()
    except ConnectionLost:
        return False
    return True


def _open_socket(path: str, timeout_s: float) -> socket.socket:
    check_owner(path)
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        opened.settimeout(timeout_s)
        _connect(opened, path, time.monotonic() + timeout_s)
    except OSError as error:
        opened.close()
        raise ConnectionLost(f"{path}: {error.strerror or error}") from error
    return opened


def _connect(opened: socket.socket, path: str, until: float) -> None:
    """A host with very many callers at once has no room for one more; a moment later it has."""
    pause_s = 0.005
    while True:
        try:
            opened.connect(path)
        except BlockingIOError:  # noqa: PERF203  each try is a try of its own
            if time.monotonic() + pause_s > until:
                raise
            time.sleep(pause_s)
            pause_s = min(0.1, pause_s * 2)
        else:
            return


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = _open_socket(self._path, CONNECT_TIMEOUT_S)


@contextmanager
def _losses(path: str) -> Iterator[None]:
    """Every way in which a connection breaks is one; silence stays ``TimeoutError``."""
    try:
        yield
    except TimeoutError:
        raise
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionLost(f"{path}: {error or type(error).__name__}") from error


class Transport:
    """Requests to one host. Threads may share it; a forked child makes its own connections.

    where  the path of its socket, or the address of a Hub's service.
    """

    def __init__(self, where: str | HubAddress, headers: Mapping[str, str]) -> None:
        self.where = where
        self._name = str(where)  # for messages; of an address it leaves out the token
        self._headers = dict(headers)
        self._base = ""
        if isinstance(where, HubAddress):
            self._headers |= where.headers
            self._base = where.path
        self._local = threading.local()
        self._all: WeakSet[http.client.HTTPConnection] = WeakSet()  # a thread's connection ends with its thread

    def request(
        self, method: str, target: str, *, body: bytes | None = None, timeout_s: float = READ_TIMEOUT_S
    ) -> Answer:
        """One request and its whole answer. Raises ``ConnectionLost``, or ``TimeoutError`` when no answer comes.

        A host that is asked too much is asked again when it says so.
        timeout_s  how long the host may be silent.
        """
        until = time.monotonic() + PACED_S
        while True:
            answer = self._request(method, target, body, timeout_s)
            pause_s = max(1, answer.later_s or 0)
            if answer.status != _TOO_MANY or time.monotonic() + pause_s > until:
                return answer
            time.sleep(pause_s)

    def _request(self, method: str, target: str, body: bytes | None, timeout_s: float) -> Answer:
        connection = self._connection()
        try:
            with _losses(self._name):
                response = self._send(connection, method, target, body, timeout_s)
                return Answer(
                    response.status,
                    response.read(),
                    _number(response.getheader("X-Gpusched-Log-Next")),
                    _number(response.getheader("X-Gpusched-Log-Size")),
                    _number(response.getheader("Retry-After")),
                )
        except BaseException:
            # The rest of a broken-off answer would be taken for the next one's.
            connection.close()
            raise

    def lines(self, target: str, *, timeout_s: float = READ_TIMEOUT_S) -> Iterator[Answer]:
        """The answer line by line as it comes, over a connection of its own. Raises as ``request`` does."""
        with closing(self._new_connection()) as connection, _losses(self._name):
            response = self._send(connection, "GET", target, None, timeout_s)
            if response.status != http.client.OK:
                yield Answer(response.status, response.read())
                return
            while line := response.readline():
                yield Answer(response.status, line)

    def close(self) -> None:
        """Close the connections of all threads."""
        for connection in list(self._all):
            with suppress(OSError):
                connection.close()

    def _new_connection(self) -> http.client.HTTPConnection:
        if isinstance(self.where, HubAddress):
            return self.where.connection(CONNECT_TIMEOUT_S)
        return _UnixConnection(self.where)

    def _connection(self) -> http.client.HTTPConnection:
        kept: tuple[int, http.client.HTTPConnection] | None = getattr(self._local, "kept", None)
        if kept is not None and kept[0] == os.getpid():
            return kept[1]
        connection = self._new_connection()
        self._local.kept = (os.getpid(), connection)
        self._all.add(connection)
        return connection

    def _send(
        self, connection: http.client.HTTPConnection, method: str, target: str, body: bytes | None, timeout_s: float
    ) -> http.client.HTTPResponse:
        headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        if connection.sock is None:
            connection.connect()
        assert connection.sock is not None
        connection.sock.settimeout(timeout_s)
        connection.request(method, self._base + target, body=body, headers=headers)
        return connection.getresponse()
