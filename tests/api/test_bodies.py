"""What is being sent takes memory: of one user, and of all, no more than a host bears; small requests always pass."""

from __future__ import annotations

import http.client
import json

import pytest
from many_users import lab
from rest import UnixConnection
from waiting import wait_for

from jupyter_gpusched.bodies import SMALL, USERS_AT_ONCE, Bodies
from jupyter_gpusched.wire import PREFIX

MIB = 2**20


def test_one_user_has_no_more_in_memory_than_one_largest_request():
    bodies = Bodies(10 * MIB)
    assert bodies.take("ann", 9 * MIB, of=9 * MIB)
    assert not bodies.take("ann", 2 * MIB, of=2 * MIB)
    assert bodies.take("ann", MIB // 2, of=MIB // 2), "a small one passes all the same"
    assert bodies.take("bob", 9 * MIB, of=9 * MIB)
    bodies.give_back("ann", 9 * MIB)
    assert bodies.take("ann", 9 * MIB, of=9 * MIB)


def test_all_together_have_no_more_than_a_few_of_them():
    bodies = Bodies(10 * MIB)
    taken = [bodies.take(f"user {number}", 10 * MIB, of=10 * MIB) for number in range(5)]
    assert sum(taken) == USERS_AT_ONCE
    assert bodies.take("small", SMALL, of=SMALL)
    for number, kept in enumerate(taken):
        if kept:
            bodies.give_back(f"user {number}", 10 * MIB)
    bodies.give_back("small", SMALL)
    assert (bodies._all, dict(bodies._of)) == (0, {})


@pytest.fixture
def queue(own_environment, tmp_path):
    with lab(own_environment, tmp_path, largest_request="8M") as running:
        yield running


class Half:
    """A request of which a part has been sent."""

    def __init__(self, queue, user, size, sent):
        self.connection, self.left = UnixConnection(str(queue.host.socket)), size - sent
        self.connection.putrequest("POST", f"{PREFIX}/jobs")
        self.connection.putheader("X-User", user)
        self.connection.putheader("Content-Length", str(size))
        self.connection.endheaders(b'{"argv": ["true"], "gpus": 0}' + b" " * (sent - 29))

    def rest(self) -> http.client.HTTPResponse:
        self.connection.send(b" " * self.left)
        return self.connection.getresponse()


def held(queue):
    return queue.desk.bodies._all


def test_large_requests_that_are_never_finished_fill_no_memory_and_keep_nobody_out(queue):
    stalled = [Half(queue, "eve", 8 * MIB, 7 * MIB)]
    wait_for(lambda: held(queue) >= 7 * MIB, "nothing arrives")
    stalled += [Half(queue, "eve", 8 * MIB, 7 * MIB) for _ in range(3)]
    refused = stalled[-1].rest()
    assert refused.status == 429
    assert json.loads(refused.read())["error"]["code"] == "too_many_requests"
    assert refused.headers["Retry-After"] == "5"
    assert held(queue) <= 8 * MIB
    assert queue.ask("ann", "POST", "jobs", {"argv": ["true"], "gpus": 0}).status == 201
    assert Half(queue, "ann", 4 * MIB, 2 * MIB).rest().status == 201, "another's large one has room"
    for one in stalled:
        one.connection.close()
    wait_for(lambda: held(queue) == 0, "what was sent stays in memory")
    assert Half(queue, "eve", 8 * MIB, 7 * MIB).rest().status == 201
    wait_for(lambda: held(queue) == 0, "a request that was answered stays in memory")
