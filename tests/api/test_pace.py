"""Who asks too much, sends too much, or may not come in: no user of a service crowds out the others."""

from __future__ import annotations

import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from many_users import lab
from rest import UnixConnection
from waiting import wait_for

from jupyter_gpusched.desk import LARGEST_BODY, MOST_DROPPED
from jupyter_gpusched.pace import MOST_KNOWN, Pace
from jupyter_gpusched.transport import Transport
from jupyter_gpusched.wire import PREFIX

# --- the bucket ---------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_is_admitted_and_then_one_after_another_at_the_rate():
    clock = Clock()
    pace = Pace(10.0, 5, clock)
    assert [pace.wait_s("ann") for _ in range(5)] == [0.0] * 5
    assert pace.wait_s("ann") == pytest.approx(0.1)
    clock.now += 0.05
    assert pace.wait_s("ann") == pytest.approx(0.05), "what was refused costs nothing"
    clock.now += 0.0501
    assert pace.wait_s("ann") == 0.0
    assert pace.wait_s("ann") > 0
    assert pace.wait_s("bob") == 0.0, "nobody waits for another's requests"


@given(st.lists(st.floats(0, 3), max_size=60), st.floats(0.5, 50), st.integers(1, 20))
def test_in_no_span_of_time_more_are_admitted_than_a_burst_and_the_rate(pauses, per_s, burst):
    clock = Clock()
    pace = Pace(per_s, burst, clock)
    admitted = []
    for pause in pauses:
        clock.now += pause
        if pace.wait_s("ann") == 0.0:
            admitted.append(clock.now)
    for first, start in enumerate(admitted):
        for count, end in enumerate(admitted[first:], 1):
            assert count <= burst + (end - start) * per_s + 1e-6


@given(st.floats(0.5, 50), st.integers(1, 20))
def test_whoever_waits_as_long_as_told_is_admitted(per_s, burst):
    clock = Clock()
    pace = Pace(per_s, burst, clock)
    while not (wait_s := pace.wait_s("ann")):
        pass
    clock.now += wait_s * (1 + 1e-9) + 1e-9
    assert pace.wait_s("ann") == 0.0


def test_those_who_have_not_asked_for_long_are_forgotten():
    clock = Clock()
    pace = Pace(1.0, 1, clock)
    for number in range(MOST_KNOWN):
        pace.wait_s(f"user-{number}")
    clock.now += 2
    pace.wait_s("another")
    assert len(pace._left) == 1


# --- in a service of several users --------------------------------------------------------


@pytest.fixture
def slow(tmp_path):
    with lab(tmp_path / "state", tmp_path, requests_per_s=0.5, requests_at_once=3, largest_request="1M") as running:
        yield running


def test_who_asks_too_much_is_told_when_to_ask_again_and_others_are_answered(slow):
    assert [slow.ask("ann", "GET", "health").status for _ in range(3)] == [200] * 3
    refused = slow.ask("ann", "POST", "jobs", {"argv": ["true"], "gpus": 0})
    assert (refused.status, refused.error["code"]) == (429, "too_many_requests")
    assert "3 requests at once and 0.5 a second" in refused.error["message"]
    assert refused.headers["Retry-After"] in ("1", "2")
    assert slow.ask("bob", "GET", "jobs").json["items"] == []
    assert not slow.desk.engine.state.jobs


def test_our_own_client_waits_as_long_as_it_is_told(slow):
    transport = Transport(str(slow.host.socket), {"X-User": "ann"})
    try:
        answers = [transport.request("GET", f"{PREFIX}/health") for _ in range(4)]
    finally:
        transport.close()
    assert [answer.status for answer in answers] == [200] * 4


def test_our_own_client_passes_the_refusal_on_after_a_while(slow, monkeypatch):
    monkeypatch.setattr("jupyter_gpusched.transport.PACED_S", 0.0)
    transport = Transport(str(slow.host.socket), {"X-User": "ann"})
    try:
        answers = [transport.request("GET", f"{PREFIX}/health") for _ in range(4)]
    finally:
        transport.close()
    assert (answers[-1].status, answers[-1].later_s) == (429, 2)


def test_a_request_that_is_larger_than_the_administrator_allows_is_refused(slow):
    refused = slow.ask("ann", "POST", "jobs", b" " * (2**20 + 1))
    assert (refused.status, refused.error["code"]) == (413, "too_large")
    assert "at most 1.0 MiB" in refused.error["message"]


# --- of those who may not come in ---------------------------------------------------------


class Seen:
    """How many bytes of bodies the handlers of a host have kept, at most."""

    def __init__(self, monkeypatch) -> None:
        from jupyter_gpusched.desk import Handler

        self.most, given = 0, Handler.data_received

        def watched(handler, chunk):
            given(handler, chunk)
            self.most = max(self.most, len(handler._body))

        monkeypatch.setattr(Handler, "data_received", watched)


@pytest.fixture
def open_lab(tmp_path):
    with lab(tmp_path / "state", tmp_path) as running:
        yield running


def test_nothing_that_a_stranger_sends_is_kept_and_he_reads_the_refusal(open_lab, monkeypatch):
    seen = Seen(monkeypatch)
    refused = open_lab.ask(None, "POST", "jobs", b" " * (MOST_DROPPED - 1))
    assert (refused.status, refused.error["code"]) == (401, "unauthorized")
    assert seen.most == 0
    assert open_lab.ask("ann", "POST", "jobs", b" " * 4096).status == 422
    assert seen.most == 4096


def test_a_stranger_with_a_large_body_is_refused_before_it_is_sent(open_lab):
    connection = UnixConnection(str(open_lab.host.socket))
    connection.putrequest("POST", f"{PREFIX}/jobs")
    connection.putheader("Content-Length", str(LARGEST_BODY))
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 401
    assert json.loads(answer.read())["error"]["code"] == "unauthorized"
    assert connection.sock is None or connection.sock.recv(1) == b"", "and the connection is closed"
    connection.close()


def test_a_stranger_who_sends_without_end_is_cut_off(open_lab):
    connection = UnixConnection(str(open_lab.host.socket))
    connection.putrequest("POST", f"{PREFIX}/jobs")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    pieces = (b"100000\r\n" + b" " * 2**20 + b"\r\n") * 512
    with pytest.raises(OSError, match=r"[Bb]roken pipe|reset"):
        connection.sock.sendall(pieces)
    connection.close()


def test_the_refusal_of_a_stream_lasts_no_longer_than_any_other(slow):
    for _ in range(3):
        slow.ask("ann", "GET", "health")
    ended, frames = threading.Event(), []

    def follow() -> None:
        transport = Transport(str(slow.host.socket), {"X-User": "ann"})
        frames.extend(transport.lines(f"{PREFIX}/events"))
        ended.set()

    threading.Thread(target=follow, daemon=True).start()
    wait_for(ended.is_set, "the refused stream does not end")
    assert [frame.status for frame in frames] == [429]
