"""Asking a Hub's service: by its address and the user's token, which shows up nowhere but in one header."""

import json
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from jupyter_gpusched import doctor
from jupyter_gpusched.client import Client, HostUnreachable
from jupyter_gpusched.core.environment import submitted
from jupyter_gpusched.core.model import BadRequest, GpuSchedError, NotAllowed
from jupyter_gpusched.find_host import find_host
from jupyter_gpusched.hub_address import hub_address
from jupyter_gpusched.places import API

TOKEN = "f00dfeed" * 4
SCOPE = {
    "error": {
        "code": "not_allowed",
        "message": "This token lacks the scope access:services!service=gpusched.",
        "field": None,
        "hint": "Add it to c.Spawner.server_token_scopes and to the role of the users.",
    }
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.server.seen.append((self.path, self.headers.get("Authorization"), self.client_address))
        status, body = self.server.answers.get(self.path.rpartition("/")[2], (404, {}))
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def service():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.seen, server.answers = [], {"health": (200, {"api": API, "pid": 7})}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def environ(service, tmp_path):
    return {
        "GPUSCHED_HOME": str(tmp_path / "state"),
        "GPUSCHED_SERVICE_URL": f"http://127.0.0.1:{service.server_port}/services/gpusched/",
        "JUPYTERHUB_API_TOKEN": TOKEN,
    }


def test_requests_go_to_the_service_below_its_address_with_the_token_of_the_user(service, environ):
    service.answers["gpus"] = (200, {"items": []})
    client = Client.connect(environ=environ)
    assert client.gpus() == []
    client.close()
    assert [path for path, _token, _peer in service.seen] == [
        "/services/gpusched/gpusched/api/v1/health",
        "/services/gpusched/gpusched/api/v1/gpus",
    ]
    assert {token for _path, token, _peer in service.seen} == {f"token {TOKEN}"}
    assert len({peer for _path, _token, peer in service.seen}) == 1, "one kept connection"


def test_a_service_goes_before_a_host_of_ones_own_and_none_is_started_beside_it(service, environ, tmp_path):
    service.shutdown()
    service.server_close()
    with pytest.raises(HostUnreachable, match=r"Connection refused"):
        Client.connect(start=True, environ=environ)
    assert not (tmp_path / "state").exists()


def test_a_named_socket_goes_before_the_service(environ, tmp_path):
    with pytest.raises(HostUnreachable, match=r"GPUSCHED_SOCKET"):
        find_host({**environ, "GPUSCHED_SOCKET": str(tmp_path / "none.sock")}, start=True)


@pytest.mark.parametrize("token", [None, "", "two words", "line\nfeed: 1", "tök"])
def test_without_a_usable_token_the_refusal_says_what_to_set_and_not_what_was_there(environ, token):
    environ = {name: value for name, value in environ.items() if name != "JUPYTERHUB_API_TOKEN"}
    with pytest.raises(NotAllowed) as refusal:
        find_host(environ if token is None else {**environ, "JUPYTERHUB_API_TOKEN": token}, start=True)
    told = f"{refusal.value.message} {refusal.value.hint}"
    assert "JUPYTERHUB_API_TOKEN" in told
    assert "access:services!service=gpusched" in told
    assert not token or token not in told


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8765", "ftp://hub/services/gpusched", "http://", "http://u:p@hub/", "http://hub:port/",
        "http://hub/a b", "http://hub/\r\nX: 1", "http://hub/?q=1", "http://hub/#x", "http://[::1",
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_refused_and_not_repeated(environ, url):
    with pytest.raises(BadRequest, match=r"GPUSCHED_SERVICE_URL is not the address of a service"):
        find_host({**environ, "GPUSCHED_SERVICE_URL": url}, start=True)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://hub", "http://hub:80"),
        ("https://hub.org/services/gpusched", "https://hub.org:443/services/gpusched"),
        ("http://[::1]:8/services/x/", "http://[::1]:8/services/x"),
    ],
)
def test_what_is_shown_of_an_address_holds_no_token(environ, url, shown):
    address = hub_address({**environ, "GPUSCHED_SERVICE_URL": url})
    assert str(address) == shown
    assert TOKEN not in repr(address)


def test_a_missing_scope_is_told_as_the_service_tells_it(service, environ):
    service.answers["gpus"] = (403, SCOPE)
    client = Client.connect(environ=environ)
    with pytest.raises(NotAllowed, match=r"lacks the scope access:services!service=gpusched") as refusal:
        client.gpus()
    assert "server_token_scopes" in refusal.value.hint
    client.close()


@pytest.mark.parametrize("status", [401, 403, 500, 503])
def test_no_error_repeats_the_token(service, environ, status):
    service.answers["gpus"] = (status, {"message": "no"})
    client = Client.connect(environ=environ)
    with pytest.raises(GpuSchedError) as refusal:
        client.gpus()
    client.close()
    assert TOKEN not in f"{refusal.value!r} {refusal.value.hint}"
    service.shutdown()
    service.server_close()
    with pytest.raises(GpuSchedError) as refusal:
        client.gpus()
    assert TOKEN not in f"{refusal.value!r} {refusal.value.hint} {refusal.value.__cause__!r}"
    with suppress(OSError):
        client.close()


def test_a_job_inherits_where_the_service_is_and_not_the_token(environ):
    sent = submitted({**environ, "JPY_API_TOKEN": TOKEN, "JUPYTERHUB_USER": "u"})
    assert sent["GPUSCHED_SERVICE_URL"] == environ["GPUSCHED_SERVICE_URL"]
    assert TOKEN not in sent.values()


def test_doctor_names_the_service_and_calls_it_broken_when_it_does_not_answer(service, environ):
    def host():
        return next(check for check in doctor.checks(environ) if check.name == "host")

    found = host()
    assert found.ok
    assert f"http://127.0.0.1:{service.server_port}/services/gpusched" in found.summary
    service.shutdown()
    service.server_close()
    assert not host().ok
