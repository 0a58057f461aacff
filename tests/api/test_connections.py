"""Connections beyond what a host bears: told, closed, and nobody else's loss."""

from __future__ import annotations

import http.client
import json
import os
import resource
import socket

import pytest
from many_users import lab
from rest import Rest
from waiting import wait_for

from jupyter_gpusched import listening
from jupyter_gpusched.listening import BoundedServer, uid_beside
from jupyter_gpusched.wire import PREFIX


@pytest.fixture
def queue(own_environment, tmp_path, monkeypatch):
    monkeypatch.setattr("jupyter_gpusched.service.MOST_OF_ONE", 5)
    with lab(own_environment, tmp_path) as running:
        yield running


def connect(queue):
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(20)
    connection.connect(str(queue.host.socket))
    return connection


def answer(connection):
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.status, json.loads(response.read())


def test_who_opens_too_many_is_told_and_may_come_again_when_some_are_closed(queue):
    idle = [connect(queue) for _ in range(5)]  # and never sends a byte
    late = connect(queue)
    status, said = answer(late)
    assert (status, said["error"]["code"]) == (503, "unavailable")
    assert "too many connections of yours" in said["error"]["message"]
    assert late.recv(1) == b"", "and is closed"
    for one in [*idle, late]:
        one.close()

    def answered():
        rest = Rest(str(queue.host.socket))
        try:
            return rest("GET", "health", **{"X-User": "ann"}).status == 200
        finally:
            rest.close()

    wait_for(answered, "a closed connection counts for ever")


def test_headers_that_come_byte_by_byte_hold_up_nobody(queue):
    slow = [connect(queue) for _ in range(4)]
    for one in slow:
        one.sendall(f"GET {PREFIX}/health HTTP/1.1\r\nX-User: eve\r\nX: ".encode())
    for _ in range(20):
        for one in slow:
            one.sendall(b"x")
        assert queue.ask("ann", "GET", "health").status == 200
    for one in slow:
        one.close()


def test_there_are_always_descriptors_left_for_files_and_jobs(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (1024, 4096))
    assert BoundedServer(lambda _: None)._most == 768
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (resource.RLIM_INFINITY,) * 2)
    assert BoundedServer(lambda _: None)._most == 2**16


def test_over_tcp_the_kernels_table_says_whose_a_connection_is(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            assert uid_beside(accepted) is None, "ourselves may be a proxy for all"
            monkeypatch.setattr(listening.os, "geteuid", lambda: 4321)
            assert uid_beside(accepted) == (os.getuid() or None)
            client.close()
            accepted.close()
            assert uid_beside(accepted) is None
