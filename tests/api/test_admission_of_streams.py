"""A stream that is open for days: its reader must still be somebody who may come in, and is asked for again."""

from __future__ import annotations

import http.client
import json

import pytest
from many_users import lab
from rest import UnixConnection

from jupyter_gpusched import events
from jupyter_gpusched.callers import Caller
from jupyter_gpusched.core.model import Unauthorized, Unavailable
from jupyter_gpusched.wire import PREFIX


@pytest.fixture
def shared(own_environment, tmp_path, monkeypatch):
    monkeypatch.setattr(events, "ADMITTED_S", 0.0)
    with lab(own_environment, tmp_path, sample_interval_s=0.1) as running:
        yield running


class Door:
    """Lets its user in until it is told what to say instead."""

    def __init__(self):
        self.asked = 0
        self.refusal = None

    async def caller(self, request):
        self.asked += 1
        if self.refusal is not None:
            raise self.refusal
        return Caller("ann", None, "/")


@pytest.fixture
def door(shared):
    door = Door()
    shared.desk.doorkeeper = door
    return door


@pytest.fixture
def stream(shared, door):
    connection = UnixConnection(str(shared.host.socket))
    connection.request("GET", f"{PREFIX}/events")
    answer = connection.getresponse()
    assert json.loads(answer.readline())["type"] == "snapshot"
    yield answer
    connection.close()


def test_a_stream_ends_when_its_readers_token_is_revoked(shared, door, stream):
    door.refusal = Unauthorized("The Hub does not know this token.")
    try:
        while stream.readline():
            pass
    except http.client.IncompleteRead:
        pass
    assert door.asked > 1


def test_a_stream_goes_on_while_nobody_can_say_who_reads(shared, door, stream):
    door.refusal = Unavailable("The Hub does not answer.")
    before = door.asked
    while door.asked < before + 3:
        assert stream.readline()
