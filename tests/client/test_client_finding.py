"""Which host a client finds, in the order of the design, and how it starts one."""

import os
import signal
import socket
import subprocess
import sys
import textwrap

import pytest

from jupyter_gpusched import find_host as finding
from jupyter_gpusched import places
from jupyter_gpusched.client import Client, HostUnreachable
from jupyter_gpusched.find_host import find_host

DAEMON = """
    import json, os, signal, sys
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path
    from socketserver import UnixStreamServer
    from jupyter_gpusched import places

    class Handler(BaseHTTPRequestHandler):
        def address_string(self): return "client"
        def do_GET(self):
            body = json.dumps({"api": places.API, "pid": os.getpid(), "environ": dict(os.environ), "cwd": os.getcwd(),
                               "session": os.getsid(0) == os.getpid()}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    signal.alarm(60)
    state = places.state_folder()
    path = str(state / "d.sock")
    server = UnixStreamServer(path, Handler)
    places.write_host_record(state, places.HostRecord(os.getpid(), places.start_time(os.getpid()), places.boot_id(), 1,
        path, "1", places.API, "daemon", None, "x"))
    server.serve_forever()
"""


@pytest.fixture(autouse=True)
def no_system_service(monkeypatch, tmp_path):
    monkeypatch.setattr(finding, "SYSTEM_SOCKET", str(tmp_path / "system.sock"))
    monkeypatch.setattr(finding, "SYSTEM_STATE", str(tmp_path / "none"))
    monkeypatch.setattr(finding, "_is_folder_of_root", lambda path: False)


@pytest.fixture
def state(tmp_path):
    return places.private_folder(tmp_path / "state")


@pytest.fixture
def environ(state):
    return {"GPUSCHED_HOME": str(state), "PATH": os.environ["PATH"]}


@pytest.fixture
def listen(tmp_path):
    opened = []

    def listening(name):
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(tmp_path / name))
        server.listen()
        opened.append(server)
        return str(tmp_path / name)

    yield listening
    for server in opened:
        server.close()


@pytest.fixture
def daemon(monkeypatch, state):
    """Starting a host starts this small one; it is ended with the test."""
    monkeypatch.setattr(finding, "DAEMON", ("-c", textwrap.dedent(DAEMON)))
    yield
    record = places.read_host_record(state)
    if record is not None and places.host_alive(record):
        os.kill(record.pid, signal.SIGKILL)


def publish(state, socket_path, *, pid=None, start_time=None, kind="serve"):
    pid = pid or os.getpid()
    born = places.start_time(pid) if start_time is None else start_time
    places.write_host_record(
        state,
        places.HostRecord(pid, born, places.boot_id(), 1, socket_path, "1", places.API, kind, None, "x"),
    )


def test_the_socket_that_is_named_wins(environ, state, listen):
    publish(state, listen("published.sock"))
    named = listen("named.sock")
    assert find_host({**environ, "GPUSCHED_SOCKET": named}, start=False) == named


def test_a_named_socket_without_a_listener_is_an_error_and_nothing_is_started(environ, tmp_path, daemon):
    with pytest.raises(HostUnreachable, match=r"none\.sock"):
        find_host({**environ, "GPUSCHED_SOCKET": str(tmp_path / "none.sock")}, start=True)


def test_a_system_service_wins_over_a_host_of_ones_own(environ, state, listen):
    publish(state, listen("published.sock"))
    system = listen("system.sock")
    assert find_host(environ, start=False) == system


def test_under_simulation_the_system_service_is_passed_by(environ, state, listen):
    published = listen("published.sock")
    publish(state, published)
    listen("system.sock")
    assert find_host({**environ, "GPUSCHED_SIMULATE": "1x8G"}, start=False) == published


def test_a_system_socket_of_a_stranger_is_passed_by(environ, state, listen, monkeypatch):
    published = listen("published.sock")
    publish(state, published)
    system = listen("system.sock")
    real = os.lstat

    def lstat(path, **keywords):
        info = list(real(path, **keywords))
        if os.fspath(path) == system:
            info[4] = 12345
        return os.stat_result(info)

    monkeypatch.setattr(os, "lstat", lstat)
    assert find_host(environ, start=False) == published


@pytest.fixture
def service_down(monkeypatch, tmp_path):
    """A machine whose service has left its state folder behind, and the environment of a user who named none."""
    monkeypatch.setattr(finding, "_is_folder_of_root", lambda path: path == str(tmp_path / "none"))
    return {"XDG_STATE_HOME": str(tmp_path), "PATH": os.environ["PATH"]}


@pytest.mark.parametrize("start", [False, True])
def test_a_system_service_that_is_down_is_told_and_no_host_is_started_beside_it(service_down, monkeypatch, start):
    monkeypatch.setattr(finding, "_start", lambda *_: pytest.fail("a host was started"))
    with pytest.raises(
        HostUnreachable, match=r"queue of this machine \(service jupyter-gpusched\) is not running"
    ) as no:
        find_host(service_down, start=start)
    assert no.value.hint == "Tell its administrator, or wait and try again."


@pytest.mark.parametrize(("kind", "found"), [("serve", True), ("daemon", False), ("server", False)])
def test_beside_a_service_that_is_down_only_a_host_counts_that_somebody_asked_for(service_down, listen, kind, found):
    own = places.private_folder(places.state_folder(service_down))
    publish(own, listen("own.sock"), kind=kind)
    if found:
        assert find_host(service_down, start=False).endswith("own.sock")
    else:
        with pytest.raises(HostUnreachable, match=r"is not running"):
            find_host(service_down, start=True)


@pytest.mark.parametrize("choice", ["GPUSCHED_HOME", "GPUSCHED_SIMULATE"])
def test_who_chooses_a_host_of_their_own_is_not_held_up_by_a_service_that_is_down(service_down, state, choice):
    given = {"GPUSCHED_HOME": str(state), "GPUSCHED_SIMULATE": "1x8G"}[choice]
    with pytest.raises(HostUnreachable, match=r"No jupyter-gpusched host"):
        find_host({**service_down, choice: given}, start=False)


def test_only_a_folder_that_root_made_says_that_there_is_a_service(tmp_path, monkeypatch):
    monkeypatch.undo()
    (tmp_path / "linked").symlink_to("/")
    mine = tmp_path / "mine"
    mine.mkdir()
    os.chown(mine, 12345, -1) if os.geteuid() == 0 else None
    signs = [finding._is_folder_of_root(str(path)) for path in ("/", mine, tmp_path / "linked", tmp_path / "none")]
    assert signs == [True, False, False, False]


@pytest.mark.parametrize("start_time", [None, 1])
def test_a_host_that_has_ended_counts_as_none(environ, state, listen, start_time):
    publish(state, listen("published.sock"), pid=None if start_time else 2**22 - 1, start_time=start_time or 5)
    with pytest.raises(HostUnreachable, match=r"has ended"):
        find_host(environ, start=False)


def test_a_host_that_lives_but_does_not_listen_is_told(environ, state, tmp_path):
    publish(state, str(tmp_path / "gone.sock"))
    with pytest.raises(HostUnreachable, match=r"nobody listens|gone\.sock"):
        find_host(environ, start=False)


def test_no_host_lists_what_was_tried_and_what_to_do(environ, state, tmp_path):
    with pytest.raises(HostUnreachable) as refusal:
        find_host(environ, start=False)
    assert str(state / "host.json") in refusal.value.message
    assert "system.sock" in refusal.value.message
    assert "jupyter gpusched serve" in refusal.value.hint


def test_starting_can_be_forbidden(environ, daemon):
    with pytest.raises(HostUnreachable) as refusal:
        find_host({**environ, "GPUSCHED_AUTOSTART": "0"}, start=True)
    assert "GPUSCHED_AUTOSTART" in refusal.value.hint


def test_a_host_is_started_when_there_is_none_and_found_by_the_next(environ, state, daemon):
    first = Client.connect(start=True, environ=environ)
    second = Client.connect(environ=environ)
    try:
        health = first.health()
        assert health["pid"] == second.health()["pid"] == places.read_host_record(state).pid
        assert health["cwd"] == "/"
        assert health["session"]
    finally:
        first.close()
        second.close()


def test_a_host_started_by_a_job_does_not_inherit_what_belongs_to_the_attempt(environ, daemon):
    inside = {"GPUSCHED_JOB_ID": "aaaaaaaa", "GPUSCHED_MARKER": "m", "CUDA_VISIBLE_DEVICES": "GPU-1", "KEPT": "1"}
    client = Client.connect(start=True, environ={**environ, **inside})
    try:
        theirs = client.health()["environ"]
    finally:
        client.close()
    assert not {"GPUSCHED_JOB_ID", "GPUSCHED_MARKER", "CUDA_VISIBLE_DEVICES"} & theirs.keys()
    assert theirs["KEPT"] == "1"
    assert theirs["GPUSCHED_HOME"] == environ["GPUSCHED_HOME"]


def test_a_state_folder_named_from_where_one_is_is_the_same_for_the_host_that_is_started(
    environ, state, daemon, monkeypatch
):
    monkeypatch.chdir(state.parent)
    client = Client.connect(start=True, environ={**environ, "GPUSCHED_HOME": state.name})
    try:
        assert client.health()["environ"]["GPUSCHED_HOME"] == str(state)
    finally:
        client.close()


def test_outside_a_job_the_users_choice_of_cards_stays(environ, daemon):
    client = Client.connect(start=True, environ={**environ, "CUDA_VISIBLE_DEVICES": "1"})
    try:
        assert client.health()["environ"]["CUDA_VISIBLE_DEVICES"] == "1"
    finally:
        client.close()


def test_a_host_that_dies_at_its_start_is_quoted(environ, state, monkeypatch):
    (state / "daemon.log").write_text("old trouble\n")
    monkeypatch.setattr(finding, "DAEMON", ("-c", "import sys; sys.exit('GPUSCHED_SIMULATE: bad')"))
    with pytest.raises(HostUnreachable, match=r"exit code 1") as refusal:
        find_host(environ, start=True)
    assert "GPUSCHED_SIMULATE: bad" in refusal.value.message
    assert "old trouble" not in refusal.value.message
    assert "daemon.log" in refusal.value.hint


def test_one_that_loses_the_race_waits_for_the_winner(environ, state, listen, monkeypatch):
    loser = f"import os; os.kill({os.getpid()}, {signal.SIGUSR1.value})"
    monkeypatch.setattr(finding, "DAEMON", ("-c", loser))
    monkeypatch.setattr(finding, "_answers", lambda socket_path: True)
    winner = listen("winner.sock")
    previous = signal.signal(signal.SIGUSR1, lambda number, frame: publish(state, winner))
    try:
        assert find_host(environ, start=True) == winner
    finally:
        signal.signal(signal.SIGUSR1, previous)


def test_one_that_never_answers_is_given_up(environ, state, monkeypatch):
    monkeypatch.setattr(finding, "DAEMON", ("-c", "pass"))
    monkeypatch.setattr(finding, "START_DEADLINE_S", 0.3)
    with pytest.raises(HostUnreachable, match=r"did not answer within"):
        find_host(environ, start=True)


def test_the_daemons_log_is_for_its_owner_only(environ, state, daemon):
    Client.connect(start=True, environ=environ).close()
    assert (state / "daemon.log").stat().st_mode & 0o077 == 0


def test_a_state_folder_that_cannot_be_used_is_told(environ, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(HostUnreachable, match=r"cannot be started"):
        find_host({**environ, "GPUSCHED_HOME": str(tmp_path / "file" / "state")}, start=True)


def test_the_client_costs_the_command_line_no_heavy_import():
    heavy = "('tornado', 'IPython', 'jupyter_server', 'anyio')"
    script = f"import sys, jupyter_gpusched.client; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "[]\n"
