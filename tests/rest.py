"""Plain HTTP on the host's socket, as a program in any language would speak it."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jupyter_gpusched.wire import PREFIX


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@dataclass
class Reply:
    status: int
    body: bytes
    headers: http.client.HTTPMessage

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        assert self.headers["Content-Type"].startswith("application/json")
        error = self.json["error"]
        assert set(error) == {"code", "message", "field", "hint"}
        return error


class Rest:
    """Asks the host of one socket; one connection for all requests."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._connection = UnixConnection(path)

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        self._connection.request(method, f"{PREFIX}/{path}", body=data, headers=headers)
        response = self._connection.getresponse()
        return Reply(response.status, response.read(), response.headers)

    def events(self, after: int | None = None) -> Events:
        return Events(self.path, after)

    def close(self) -> None:
        self._connection.close()


class Events:
    """One stream of events."""

    def __init__(self, path: str, after: int | None) -> None:
        self.connection = UnixConnection(path)
        self.connection.request("GET", f"{PREFIX}/events" + ("" if after is None else f"?after={after}"))
        self.response = self.connection.getresponse()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while line := self.response.readline():
            if line.strip():
                yield json.loads(line)

    def close(self) -> None:
        self.response.close()
        self.connection.close()

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
