"""Connections beyond what a host bears: told, closed, and nobody else's loss."""

from __future__ import annotations

import http.client
import json
import os
import resource
import socket
from types import SimpleNamespace

import pytest
from many_users import lab
from rest import Rest
from tornado.httpserver import HTTPServer
from waiting import wait_for

from jupyter_gpusched import listening
from jupyter_gpusched.listening import BoundedServer, connections_beside, uid_beside, whose_is
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


@pytest.mark.parametrize(
    ("at", "source", "target"),
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.2", "127.0.0.1"),
        ("0.0.0.0", "127.9.8.7", "127.0.0.3"),
        ("::", "127.0.0.2", "127.0.0.1"),
        ("::1", "::1", "::1"),
    ],
)
def test_whose_a_connection_is_does_not_depend_on_the_address_it_comes_from(at, source, target):
    family = socket.AF_INET6 if ":" in at else socket.AF_INET
    try:
        server = socket.create_server((at, 0), family=family, dualstack_ipv6=at == "::")
    except OSError:
        pytest.skip(f"this machine has no {at}")
    with server, socket.create_connection((target, server.getsockname()[1]), source_address=(source, 0)):
        accepted, _ = server.accept()
        with accepted:
            assert whose_is(accepted, connections_beside()) == os.getuid()
    assert whose_is(accepted, connections_beside()) is None


class Bounded:
    """A server for 20 connections, of one user for 5; ``come`` says whether one of this user is taken in."""

    def __init__(self, monkeypatch):
        self.refused, self.looks = [], 0
        monkeypatch.setattr(HTTPServer, "handle_stream", lambda *_: None)
        monkeypatch.setattr(listening, "refuse", lambda stream, why: self.refused.append(why.decode()))
        monkeypatch.setattr(listening, "connections_beside", self._look)
        monkeypatch.setattr(listening, "uid_beside", lambda peer, _beside=None: peer.of)
        self.server = BoundedServer(lambda _: None, most_of_one=5, most=20)

    def _look(self):
        self.looks += 1
        return {}

    def come(self, of=None):
        before = len(self.refused)
        peer = SimpleNamespace(family=socket.AF_INET, of=of)
        stream = SimpleNamespace(socket=peer, open=True)
        stream.closed = lambda: not stream.open
        self.server.handle_stream(stream, ("127.0.0.2", 1))
        return stream if len(self.refused) == before else None


def test_connections_that_came_while_there_were_few_count_for_their_user_too(monkeypatch):
    bounded = Bounded(monkeypatch)
    assert all(bounded.come(of=7) for _ in range(11)), "as long as there are few, nobody looks"
    assert bounded.looks == 0
    assert bounded.come(of=7) is None
    assert bounded.refused == ["of yours"]
    assert all(bounded.come(of=8) for _ in range(5))
    assert bounded.come(of=8) is None
    assert bounded.looks == 1


def test_those_of_nobody_do_not_take_all_that_there_are(monkeypatch):
    bounded = Bounded(monkeypatch)
    streams = [bounded.come() for _ in range(15)]
    assert all(streams)
    assert bounded.come() is None
    assert bounded.refused == ["by way of the proxy"]
    assert all(bounded.come(of=user) for user in range(1, 6))
    assert bounded.come(of=6) is None, "there are twenty"
    streams[0].open = False
    assert bounded.come() is not None
