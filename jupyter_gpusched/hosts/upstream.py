"""The server's line to whoever hosts, for what the server itself asks: the stream of events, and the queue.

Finds the host anew for each request, so that a take-over needs no restart of the server.
HTTP/1.0, since then an answer is its bytes until the end and can be dropped at any moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from jupyter_gpusched.places import read_host_record
from jupyter_gpusched.transport import ConnectionLost, ForeignSocket, check_owner
from jupyter_gpusched.wire import LOOKS_ON, PREFIX

LONGEST_LINE = 2**28
"""Bytes of one line: a snapshot of the longest queue is tens of MB."""

_ANSWER_S = 20.0


class HostLost(Exception):
    """There is no host, it went away, or it does not answer as one."""


@asynccontextmanager
async def answer(
    state: Path, target: str, *, limit: int = LONGEST_LINE, looks_on: bool = False
) -> AsyncIterator[asyncio.StreamReader]:
    """The body of the host's answer to ``GET target``, as it comes. Raises ``HostLost``.

    limit     bytes that are taken from the host before they are read here.
    looks_on  the request does not count as use of the host, which may end when it is idle.
    """
    more = f"{LOOKS_ON}: 1\r\n" if looks_on else ""
    writer = None
    try:
        reader, writer = await asyncio.open_unix_connection(_socket_of_host(state), limit=limit)
        writer.write(f"GET {PREFIX}/{target} HTTP/1.0\r\nHost: gpusched\r\n{more}\r\n".encode())
        await asyncio.wait_for(_expect_ok(reader), _ANSWER_S)
        yield reader
    except (OSError, EOFError, ConnectionLost, ForeignSocket, asyncio.TimeoutError) as error:
        raise HostLost(str(error)) from error
    finally:
        if writer is not None:
            writer.close()


def _socket_of_host(state: Path) -> str:
    record = read_host_record(state)
    if record is None:
        raise HostLost("there is no host")
    check_owner(record.socket)
    return record.socket


async def _expect_ok(reader: asyncio.StreamReader) -> None:
    status = (await reader.readline()).split()
    if status[1:2] != [b"200"]:
        raise HostLost(f"the host answered {b' '.join(status).decode(errors='replace')!r}")
    while (await reader.readline()).strip():
        pass
