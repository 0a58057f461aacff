"""The server's line to whoever hosts, for what the server itself asks: the stream of events, and the queue.

Which host that is follows the order of a client's search, so that a server and its kernels meet at one.
A host of one's own is found anew for each request, so that a take-over needs no restart of the server.
HTTP/1.0, since then an answer is its bytes until the end and can be dropped at any moment.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from tornado.httpclient import AsyncHTTPClient
from tornado.netutil import Resolver
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from jupyter_gpusched.core.model import GpuSchedError
from jupyter_gpusched.find_host import SYSTEM_SOCKET, sign_of_a_service
from jupyter_gpusched.hub_address import HubAddress, hub_address
from jupyter_gpusched.places import read_host_record
from jupyter_gpusched.transport import ConnectionLost, ForeignSocket, check_owner
from jupyter_gpusched.wire import LOOKS_ON, PREFIX

LONGEST_LINE = 2**28
"""Bytes of one line: a snapshot of the longest queue is tens of MB."""

_ANSWER_S = 20.0
_MOST_REQUESTS = 1000
_LONGEST_REFUSAL = 64 * 1024

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Absence = tuple[str, str | None]


class HostLost(Exception):
    """There is no host, it went away, or it does not answer as one.

    told  what a person is told of it; None where trying again is all there is to it.
    """

    def __init__(self, why: str, told: str | None = None) -> None:
        super().__init__(why)
        self.told = told


class Upstream(Protocol):
    """Whoever hosts for this server.

    url, path, headers  what a request to it begins with.
    absence             what is told while it does not answer: a sentence, and what to do.
    ours                whether this server takes its place when it goes, so that nobody need be told.
    """

    url: str
    path: str
    headers: Mapping[str, str]
    absence: Absence
    ours: bool

    async def connect(self, limit: int) -> Streams:
        """A connection that takes in ``limit`` bytes at most before they are read. Raises as ``answer`` catches."""

    def http(self) -> AsyncHTTPClient:
        """What asks it for one answer at a time."""


class _OnSocket:
    """What hosts with a unix socket share."""

    url, path, ours = "http://gpusched", "", False
    headers: Mapping[str, str] = {}

    def socket(self) -> str:
        """Where it is at this moment. Raises ``HostLost``."""
        raise NotImplementedError

    async def connect(self, limit: int) -> Streams:
        path = self.socket()
        check_owner(path)
        return await asyncio.open_unix_connection(path, limit=limit)

    def http(self) -> AsyncHTTPClient:
        resolver = _SocketResolver(host=self)
        return SimpleAsyncHTTPClient(force_instance=True, resolver=resolver, max_clients=_MOST_REQUESTS)


class _SocketResolver(Resolver):
    """Every name is the host's socket, wherever it is now."""

    def initialize(self, host: _OnSocket) -> None:
        self._host = host

    async def resolve(self, *_where: object, **_how: object) -> list[tuple[int, Any]]:
        try:
            path = self._host.socket()
            check_owner(path)
        except (HostLost, ConnectionLost, ForeignSocket) as error:
            raise OSError(str(error)) from error
        return [(socket.AF_UNIX, path)]


class OwnHost(_OnSocket):
    """Whoever has the lock of the user's state folder: this server, another one, a daemon."""

    absence: Absence = (
        "The GPU scheduler is not reachable at the moment.",
        "It comes back by itself within 30 seconds; the server's log says why if not.",
    )
    ours = True

    def __init__(self, state: Path) -> None:
        self._state = state

    def socket(self) -> str:
        record = read_host_record(self._state)
        if record is None:
            raise HostLost("there is no host")
        return record.socket


class JoinedHost(_OnSocket):
    """One that this server joins and never replaces: the system's service, or whoever listens where the user says."""

    absence: Absence = (
        "The GPU service of this machine does not answer.",
        "Its jobs go on, and this page comes back to it by itself. If it lasts, tell the administrator.",
    )

    def __init__(self, socket: str) -> None:
        self._socket = socket

    def socket(self) -> str:
        return self._socket


class HubService:
    """The Hub's service, as the user whose token this server was given."""

    absence: Absence = (
        "The hub's GPU service does not answer.",
        "Its jobs go on, and this page comes back to it by itself. If it lasts, tell the hub's administrator.",
    )
    ours = False

    def __init__(self, address: HubAddress) -> None:
        self._address = address
        self.url, self.path = str(address), address.path
        self.headers: Mapping[str, str] = address.headers

    async def connect(self, limit: int) -> Streams:
        tls = ssl.create_default_context() if self._address.encrypted else None
        return await asyncio.open_connection(self._address.host, self._address.port, limit=limit, ssl=tls)

    def http(self) -> AsyncHTTPClient:
        return SimpleAsyncHTTPClient(force_instance=True, max_clients=_MOST_REQUESTS)


class Nowhere(_OnSocket):
    """The environment names a host in a way that cannot be followed; a host beside it would share its cards."""

    def __init__(self, error: GpuSchedError) -> None:
        self.absence: Absence = (error.message, error.hint)

    def socket(self) -> str:
        raise HostLost(self.absence[0], _said(*self.absence))


def upstream_of(state: Path, environ: Mapping[str, str] = os.environ) -> Upstream:
    """Whom this server asks, in the order of ``find_host``. Only with an ``OwnHost`` may it host itself."""
    if given := environ.get("GPUSCHED_SOCKET"):
        return JoinedHost(given)
    try:
        if (address := hub_address(environ)) is not None:
            return HubService(address)
    except GpuSchedError as error:
        return Nowhere(error)
    if not environ.get("GPUSCHED_SIMULATE") and _is_socket_of_root(SYSTEM_SOCKET):
        return JoinedHost(SYSTEM_SOCKET)
    if sign_of_a_service(environ) is not None:
        return JoinedHost(SYSTEM_SOCKET)  # it is down, and a host beside it would get round its limits
    return OwnHost(state)


def _is_socket_of_root(path: str) -> bool:
    """Also while nobody listens: a service that is being restarted comes back."""
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISSOCK(info.st_mode) and info.st_uid in (0, os.geteuid())


@asynccontextmanager
async def answer(
    host: Upstream, target: str, *, limit: int = LONGEST_LINE, looks_on: bool = False
) -> AsyncIterator[asyncio.StreamReader]:
    """The body of the host's answer to ``GET target``, as it comes. Raises ``HostLost``.

    limit     bytes that are taken from the host before they are read here.
    looks_on  the request does not count as use of the host, which may end when it is idle.
    """
    lines = [f"GET {host.path}{PREFIX}/{target} HTTP/1.0", "Host: gpusched"]
    lines += [f"{name}: {value}" for name, value in host.headers.items()]
    lines += [f"{LOOKS_ON}: 1"] if looks_on else []
    writer = None
    try:
        reader, writer = await asyncio.wait_for(host.connect(limit), _ANSWER_S)
        writer.write("\r\n".join([*lines, "", ""]).encode())
        await asyncio.wait_for(_expect_ok(reader), _ANSWER_S)
        yield reader
    except (OSError, EOFError, ConnectionLost, ForeignSocket, asyncio.TimeoutError) as error:
        raise HostLost(str(error), None if host.ours else _said(*host.absence)) from error
    finally:
        if writer is not None:
            writer.close()


async def _expect_ok(reader: asyncio.StreamReader) -> None:
    status = (await reader.readline()).split()
    while (await reader.readline()).strip():
        pass
    if status[1:2] != [b"200"]:
        why = f"the host answered {b' '.join(status).decode(errors='replace')!r}"
        raise HostLost(why, _refusal(await reader.read(_LONGEST_REFUSAL)))


def _refusal(body: bytes) -> str | None:
    """What a host says when it refuses; None for what is no answer of a host of ours."""
    try:
        error = json.loads(body)["error"]
        return _said(str(error["message"]), error["hint"] and str(error["hint"]))
    except (ValueError, KeyError, TypeError):
        return None


def _said(message: str, hint: str | None) -> str:
    return f"{message} {hint}" if hint else message
