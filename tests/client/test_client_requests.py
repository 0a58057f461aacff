"""The client against a real HTTP server on a unix socket: requests, errors, restarts, waiting."""

import json
import os
import socketserver
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qsl, urlsplit

import pytest

from jupyter_gpusched import client as client_module
from jupyter_gpusched import conversation, transport
from jupyter_gpusched.client import ApiMismatch, Client, HostUnreachable
from jupyter_gpusched.core.model import (
    BadRequest,
    GpuSchedError,
    NeverFits,
    NotAllowed,
    NotAvailable,
    Unavailable,
    UnknownJob,
)
from jupyter_gpusched.places import API

HEALTH = {"api": API, "version": "9", "pid": 7}
BREAK = object()
"""As an answer: close the connection without one."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self):
        return "client"

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.answer()

    def do_POST(self):
        self.answer()

    def answer(self):
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = {
            "method": self.command,
            "path": url.path.removeprefix("/gpusched/api/v1/"),
            "query": dict(parse_qsl(url.query)),
            "body": json.loads(body) if body else None,
            "headers": self.headers,
            "connection": self.client_address or id(self.connection),
        }
        self.server.host.requests.append(request)
        answered = self.server.host.route(request)
        if answered is BREAK:
            self.close_connection = True
            return
        status, content = answered
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def __init__(self, path, host):
        self.host = host
        self.connections = []
        super().__init__(path, Handler)

    def get_request(self):
        accepted, address = super().get_request()
        self.connections.append(accepted)
        return accepted, address

    def handle_error(self, request, client_address):
        pass


class FakeHost:
    """Answers from ``routes``: a path to one answer, to a list of answers in turn, or to a function."""

    def __init__(self, path):
        self.path = path
        self.routes = {"health": (200, HEALTH)}
        self.requests = []
        self.start()

    def start(self):
        self.server = Server(str(self.path), self)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        for connection in self.server.connections:
            with suppress(OSError):
                connection.shutdown(2)
        self.path.unlink(missing_ok=True)

    def route(self, request):
        answer = self.routes.get(request["path"], (404, error("unknown_job", "no such job")))
        if callable(answer):
            return answer(request)
        if isinstance(answer, list):
            return answer.pop(0) if len(answer) > 1 else answer[0]
        return answer

    def asked(self, path):
        return [request for request in self.requests if request["path"] == path]


def error(code, message="no", field=None, hint=None):
    return {"error": {"code": code, "message": message, "field": field, "hint": hint}}


def view(phase, *attempts):
    return {"id": "aaaaaaaa", "phase": phase, "attempts": [{"number": number} for number in attempts]}


@pytest.fixture
def host(tmp_path):
    started = FakeHost(tmp_path / "h.sock")
    yield started
    started.stop()


@pytest.fixture
def environ(host, tmp_path):
    return {"GPUSCHED_SOCKET": str(host.path), "GPUSCHED_HOME": str(tmp_path / "state")}


@pytest.fixture
def client(environ):
    connected = Client.connect(environ=environ)
    yield connected
    connected.close()


def test_connecting_asks_for_health_once(host, client):
    host.routes["gpus"] = (200, {"items": [{"index": 0}], "next_cursor": None})
    assert client.gpus() == [{"index": 0}]
    assert client.gpus() == [{"index": 0}]
    assert len(host.asked("health")) == 1
    assert client.health() == HEALTH


def test_a_host_that_dies_while_it_is_greeted_is_looked_for_again(host, environ):
    host.routes["health"] = [BREAK, BREAK, (200, HEALTH)]
    Client.connect(environ=environ).close()
    assert len(host.asked("health")) == 3


def test_a_host_that_never_greets_is_unreachable(host, environ):
    host.routes["health"] = BREAK
    with pytest.raises(HostUnreachable, match=r"does not answer"):
        Client.connect(environ=environ)


def test_requests_carry_the_api_number_and_no_simulation_unless_set(host, client):
    headers = host.requests[0]["headers"]
    assert headers["X-Gpusched-Api"] == str(API)
    assert "X-Gpusched-Simulate" not in headers


def test_a_client_under_simulation_names_it_in_every_request(host, environ):
    Client.connect(environ={**environ, "GPUSCHED_SIMULATE": "2x24G"}).close()
    assert host.requests[0]["headers"]["X-Gpusched-Simulate"] == "2x24G"


def test_a_thread_keeps_its_connection(host, client):
    client.health()
    client.health()
    assert len({request["connection"] for request in host.requests}) == 1


def test_each_thread_has_a_connection_of_its_own(host, client):
    threads = [threading.Thread(target=client.health) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(host.asked("health")) == 5


@pytest.mark.parametrize(
    ("theirs", "who"), [(API - 1, "in the host (process 7)"), (API + 1, "in this environment"), (None, "environment")]
)
def test_another_api_number_says_which_side_to_upgrade(host, environ, theirs, who):
    host.routes["health"] = (200, {**HEALTH, "api": theirs})
    with pytest.raises(ApiMismatch) as refusal:
        Client.connect(environ=environ)
    assert who in refusal.value.hint


# --- submitting ---------------------------------------------------------------------------


def test_a_submission_gets_a_key_so_that_it_may_be_repeated(host, client):
    host.routes["jobs"] = (201, {"id": "aaaaaaaa"})
    assert client.submit({"argv": ["true"]}) == "aaaaaaaa"
    body = host.asked("jobs")[0]["body"]
    assert body["argv"] == ["true"]
    assert len(body["idempotency_key"]) == 32


def test_the_users_own_key_is_kept(host, client):
    host.routes["jobs"] = (201, {"id": "aaaaaaaa"})
    client.submit({"argv": ["true"], "idempotency_key": "mine"})
    assert host.asked("jobs")[0]["body"]["idempotency_key"] == "mine"


def test_many_jobs_travel_in_one_request_with_a_key_each(host, client):
    host.routes["jobs"] = (201, {"ids": ["a", "b"]})
    assert client.submit_many([{"argv": ["true"]}, {"argv": ["false"]}]) == ["a", "b"]
    keys = [job["idempotency_key"] for job in host.asked("jobs")[0]["body"]["jobs"]]
    assert len(set(keys)) == 2


def test_a_submission_whose_answer_was_lost_is_repeated_with_the_same_key(host, client):
    host.routes["jobs"] = [BREAK, (201, {"id": "aaaaaaaa"})]
    assert client.submit({"argv": ["true"]}) == "aaaaaaaa"
    first, second = host.asked("jobs")
    assert first["body"] == second["body"]


def test_a_host_that_breaks_off_twice_is_reported(host, client):
    host.routes["jobs"] = BREAK
    with pytest.raises(HostUnreachable, match=r"went away"):
        client.submit({"argv": ["true"]})
    assert len(host.asked("jobs")) == 2


def test_a_restarted_host_is_found_again_and_checked_again(host, client):
    host.stop()
    host.start()
    assert client.health() == HEALTH
    assert len(host.asked("health")) == 3


def test_a_host_that_is_gone_is_named(host, client):
    host.stop()
    with pytest.raises(HostUnreachable, match=r"GPUSCHED_SOCKET=") as refusal:
        client.gpus()
    assert refusal.value.hint
    host.start()


# --- errors -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (422, "bad_request", BadRequest),
        (422, "never_fits", NeverFits),
        (422, "not_available", NotAvailable),
        (404, "unknown_job", UnknownJob),
        (403, "not_allowed", NotAllowed),
        (503, "unavailable", Unavailable),
        (503, "no_host", HostUnreachable),
        (409, "simulation_mismatch", BadRequest),
        (418, "something_new", GpuSchedError),
    ],
)
def test_a_refusal_comes_back_as_the_error_that_the_host_meant(host, client, status, code, kind):
    host.routes["jobs/aaaaaaaa"] = (status, error(code, "the words", "vram", "do this"))
    with pytest.raises(kind) as refusal:
        client.job("aaaaaaaa")
    raised = refusal.value
    assert (raised.code, raised.message, raised.field, raised.hint) == (code, "the words", "vram", "do this")
    assert str(raised) == "the words"


@pytest.mark.parametrize("answer", [(500, b"<html>oops</html>"), (200, b"not json")])
def test_an_answer_that_is_none_is_an_error_of_ours(host, client, answer):
    host.routes["gpus"] = answer
    with pytest.raises(Unavailable) as refusal:
        client.gpus()
    assert "doctor" in refusal.value.hint


def test_a_silent_host_is_unavailable_and_not_asked_twice(host, client, monkeypatch):
    released = threading.Event()
    host.routes["gpus"] = lambda request: (released.wait(20), (200, {"items": []}))[1]
    monkeypatch.setattr(transport.Transport.request, "__kwdefaults__", {"body": None, "timeout_s": 0.1})
    try:
        with pytest.raises(Unavailable, match=r"does not answer"):
            client.gpus()
    finally:
        released.set()
    assert len(host.asked("gpus")) == 1


def test_a_socket_of_another_user_is_not_spoken_to(host, environ, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(host.path).st_uid + 1)
    if os.stat(host.path).st_uid == 0:
        os.chown(host.path, 12345, -1)
    with pytest.raises(HostUnreachable, match=r"belongs to uid"):
        Client.connect(environ=environ)
    assert host.requests == []


# --- reading ------------------------------------------------------------------------------


def test_a_listing_follows_the_pages(host, client):
    host.routes["jobs"] = lambda request: (
        (200, {"items": [3], "next_cursor": None})
        if request["query"].get("cursor") == "c"
        else (200, {"items": [1, 2], "next_cursor": "c"})
    )
    assert client.jobs(phase="queued", name="x") == [1, 2, 3]
    assert host.asked("jobs")[1]["query"] == {"phase": "queued", "name": "x", "limit": "1000", "cursor": "c"}


def test_a_limited_listing_stops_at_its_limit(host, client):
    host.routes["jobs"] = (200, {"items": [1, 2], "next_cursor": "more"})
    assert client.jobs(limit=2) == [1, 2]
    assert client.jobs(limit=0) == []
    assert [request["query"]["limit"] for request in host.asked("jobs")] == ["2"]


def test_log_result_outputs_and_spec_are_asked_for_by_their_paths(host, client):
    host.routes |= {
        "jobs/a/log": (200, b"\x00\xffbytes"),
        "jobs/a/result/x%C3%BC": (200, b"pickle"),
        "jobs/a/outputs": (200, {"items": [{}], "next": 4, "final": True}),
        "jobs/a/spec": (200, {"argv": ["true"]}),
    }
    assert client.log("a", offset=3, limit=9, attempt=2) == b"\x00\xffbytes"
    assert host.asked("jobs/a/log")[0]["query"] == {"offset": "3", "limit": "9", "attempt": "2"}
    assert client.result("a", "xü") == b"pickle"
    assert client.outputs("a", after=3) == ([{}], 4, True)
    assert client.spec("a") == {"argv": ["true"]}


def test_an_id_cannot_lead_to_another_path(host, client):
    with pytest.raises(UnknownJob):
        client.job("../admin/drain?x=1")
    assert host.requests[-1]["path"] == "jobs/..%2Fadmin%2Fdrain%3Fx%3D1"


def test_cancel_sends_the_grace_only_when_given(host, client):
    host.routes["jobs/a/cancel"] = (200, view("stopping"))
    assert client.cancel("a")["phase"] == "stopping"
    client.cancel("a", "2s")
    assert [request["body"] for request in host.asked("jobs/a/cancel")] == [{}, {"grace": "2s"}]


# --- waiting ------------------------------------------------------------------------------


def test_wait_polls_until_the_job_is_final(host, client):
    host.routes["jobs/a"] = [(200, view("running")), (200, view("stopping")), (200, view("failed"))]
    assert client.wait("a")["phase"] == "failed"
    assert host.asked("jobs/a")[0]["query"] == {"wait": "final", "timeout": "30.000"}


def test_wait_returns_the_view_when_its_time_is_over(host, client):
    host.routes["jobs/a"] = lambda request: (
        time.sleep(float(request["query"].get("timeout", 0))),
        (200, view("running")),
    )[1]
    assert client.wait("a", timeout=0.1)["phase"] == "running"
    assert client.wait("a", timeout=0)["phase"] == "running"


def test_wait_lives_through_a_host_that_is_replaced(host, client):
    asked = threading.Event()
    host.routes["jobs/a"] = lambda request: (asked.set(), BREAK)[1]
    seen = []
    waiting = threading.Thread(target=lambda: seen.append(client.wait("a")))
    waiting.start()
    assert asked.wait(10)
    host.stop()
    host.routes["jobs/a"] = (200, view("succeeded"))
    host.start()
    waiting.join(20)
    assert [found["phase"] for found in seen] == ["succeeded"]


def test_wait_gives_up_when_no_host_comes(host, client, monkeypatch):
    monkeypatch.setattr(conversation, "PATIENCE_S", 0.2)
    host.stop()
    with pytest.raises(HostUnreachable):
        client.wait("a")
    host.start()


def test_wait_for_an_unknown_job_fails_at_once(client):
    with pytest.raises(UnknownJob):
        client.wait("nobody")


class GrowingLog:
    """A log per attempt that grows by a chunk with every view asked for."""

    def __init__(self, *steps):
        self.steps = list(steps)  # (phase, {attempt: bytes})

    def view(self, request):
        self.phase, self.logs = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        return 200, view(self.phase, *self.logs)

    def log(self, request):
        query = request["query"]
        return 200, self.logs[int(query["attempt"])][int(query["offset"]) :][: int(query["limit"])]


def follow(host, client, *steps):
    growing = GrowingLog(*steps)
    host.routes |= {"jobs/a": growing.view, "jobs/a/log": growing.log}
    return b"".join(client.follow("a"))


def test_following_gives_every_byte_once_and_ends_with_the_job(host, client):
    steps = [
        ("queued", {}),
        ("running", {1: b""}),
        ("running", {1: b"one\n"}),
        ("running", {1: b"one\ntwo"}),
        ("succeeded", {1: b"one\ntwo\nthree\n"}),
    ]
    assert follow(host, client, *steps) == b"one\ntwo\nthree\n"


def test_following_goes_on_into_the_next_attempt(host, client):
    steps = [
        ("running", {1: b"first "}),
        ("queued", {1: b"first try"}),
        ("running", {1: b"first try", 2: b"\nsecond "}),
        ("succeeded", {1: b"first try", 2: b"\nsecond try"}),
    ]
    assert follow(host, client, *steps) == b"first try\nsecond try"


def test_following_a_finished_job_gives_all_attempts(host, client):
    assert follow(host, client, ("failed", {1: b"a", 2: b"b"})) == b"ab"


def test_a_long_log_comes_in_pieces(host, client, monkeypatch):
    monkeypatch.setattr(client_module, "_LOG_CHUNK", 3)
    assert follow(host, client, ("failed", {1: b"0123456789"})) == b"0123456789"


def test_events_go_on_after_a_broken_stream_where_they_stopped(host, client):
    def stream(request):
        after = int(request["query"].get("after", 0))
        frames = [{"seq": after + 1, "type": "job"}, {"seq": after + 2, "type": "job"}]
        return 200, b"\n" + b"".join(json.dumps(frame).encode() + b"\n" for frame in frames)

    host.routes["events"] = stream
    events = client.events()
    assert [next(events)["seq"] for _ in range(4)] == [1, 2, 3, 4]
    events.close()
    assert [request["query"].get("after") for request in host.asked("events")] == [None, "2"]


def test_events_refused_by_the_host_raise(host, client):
    host.routes["events"] = (403, error("not_allowed"))
    with pytest.raises(NotAllowed):
        next(client.events())


def test_a_full_backlog_is_waited_for(tmp_path):
    import socket

    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(0)
        waiting = [socket.socket(socket.AF_UNIX) for _ in range(4)]
        for caller in waiting:
            caller.setblocking(False)
            with suppress(BlockingIOError):
                caller.connect(path)
        freeing = threading.Timer(0.2, lambda: [listener.accept()[0].close() for _ in range(2)])
        freeing.start()
        transport._open_socket(path, 5.0).close()
        freeing.join()
        for caller in waiting:
            caller.close()


def test_words_that_are_not_utf8_are_an_error_of_ours(client):
    with pytest.raises(BadRequest):
        client.submit({"argv": ["\udcff"]})
