"""The doctor sees what is wrong, says what to do, and touches nothing."""

import json
import os
import sqlite3
import sys
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer

import pytest

from jupyter_gpusched import doctor, places
from jupyter_gpusched import find_host as finding
from jupyter_gpusched.launch.means import Means
from jupyter_gpusched.store import Ground, SqliteStore
from jupyter_gpusched.store.opening import VERSION

HEALTH = {
    "status": "ok",
    "version": "0.1.0",
    "api": places.API,
    "pid": 7,
    "kind": "serve",
    "epoch": 3,
    "socket": "/s",
    "simulated": "1x8G",
    "causes": [],
    "gpu_cause": None,
}
CARD = {
    "index": 0,
    "name": "Simulated 8G",
    "total_mib": 8192,
    "simulated": True,
    "health": {"status": "ok", "cause": None},
}


@pytest.fixture(autouse=True)
def no_system_service(monkeypatch, tmp_path):
    monkeypatch.setattr(finding, "SYSTEM_SOCKET", str(tmp_path / "none.sock"))
    monkeypatch.setattr(finding, "_is_folder_of_root", lambda path: False)


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def environ(state):
    return {"GPUSCHED_HOME": str(state), "XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"]}  # a short one


@pytest.fixture
def host(tmp_path):
    """A host that answers from a table; its socket's path."""
    answers = {"health": dict(HEALTH), "gpus": {"items": [dict(CARD)], "next_cursor": None}}

    class Handler(BaseHTTPRequestHandler):
        def address_string(self):
            return "client"

        def log_message(self, *args):
            pass

        def do_GET(self):
            body = json.dumps(answers[self.path.rpartition("/")[2]]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = UnixStreamServer(str(tmp_path / "h.sock"), Handler)
    server.answers = answers
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def look(environ, name):
    (found,) = [check for check in doctor.checks(environ) if check.name == name]
    return found


def test_a_service_for_all_users_is_told_from_a_host_of_ones_own():
    told = [doctor._describe_host(HEALTH | {"kind": kind}, "/s").summary for kind in ("system", "serve")]
    assert ["for all users" in summary for summary in told] == [True, False]


def test_a_fresh_machine_is_healthy_and_nothing_is_made(environ, state):
    found = doctor.checks(environ)
    assert [check for check in found if not check.ok] == []
    assert not state.exists()


def test_every_part_is_looked_at(environ):
    names = [check.name for check in doctor.checks(environ)]
    assert len(names) == len(set(names))
    assert {"python", "platform", "packages", "kernel features", "state folder", "database"} <= set(names)
    assert {"socket", "host", "gpus", "server extension"} <= set(names)


def test_no_gpu_is_a_warning_with_its_cause(environ, monkeypatch):
    monkeypatch.setattr(doctor, "probe", lambda: "There is no driver.")
    check = look(environ, "gpus")
    assert check.ok
    assert check.warning
    assert check.summary == "There is no driver."
    assert "GPUSCHED_SIMULATE" in check.hint


@pytest.mark.parametrize(
    ("unseen", "words", "hint"),
    [
        ("containers", "this container sees only its own promises", "outside of the containers"),
        ("hosts", "another user of this machine runs a scheduler", "serve --system"),
        (None, "no other scheduler is known", None),
    ],
)
def test_it_is_said_whose_promises_a_host_cannot_see_and_what_helps(environ, host, unseen, words, hint):
    environ["GPUSCHED_SOCKET"] = host.server_address
    host.answers["health"]["unseen"] = unseen
    check = look(environ, "promises")
    assert (check.ok, check.warning) == (True, unseen is not None)
    assert words in check.summary
    assert hint is None if check.hint is None else hint in check.hint


def test_without_a_host_they_are_looked_for_where_there_are_cards(environ, monkeypatch):
    monkeypatch.setattr(doctor, "unseen", lambda **_: "containers")
    monkeypatch.setattr(doctor, "probe", lambda: "There is no driver.")
    assert not look(environ, "promises").warning
    monkeypatch.setattr(doctor, "probe", lambda: None)
    assert look(environ, "promises").warning
    assert not look({**environ, "GPUSCHED_SIMULATE": "2x24G"}, "promises").warning


def test_simulated_cards_are_marked_as_such(environ):
    assert "SIMULATED: 24.0G, 24.0G" in look({**environ, "GPUSCHED_SIMULATE": "2x24G"}, "gpus").summary


def test_a_bad_simulation_fails_with_the_accepted_form(environ):
    check = look({**environ, "GPUSCHED_SIMULATE": "many"}, "gpus")
    assert not check.ok
    assert "2x24G" in check.summary


def test_a_state_folder_that_is_a_file_fails(environ, state):
    state.touch()
    check = look(environ, "state folder")
    assert not check.ok
    assert "GPUSCHED_HOME" in check.hint


def test_a_state_folder_open_to_others_is_a_warning(environ, state):
    state.mkdir(mode=0o755)
    check = look(environ, "state folder")
    assert check.warning
    assert "chmod 700" in check.hint


def test_a_state_folder_on_a_network_file_system_fails(environ, monkeypatch):
    monkeypatch.setattr(doctor, "network_filesystem", lambda path: "nfs4")
    check = look(environ, "state folder")
    assert not check.ok
    assert "nfs4" in check.summary


def test_the_database_is_read_and_left_alone(environ, state):
    places.private_folder(state)
    SqliteStore(state / doctor.DATABASE).close()
    before = (state / doctor.DATABASE).read_bytes()
    assert f"schema {VERSION}, 0 jobs" in look(environ, "database").summary
    assert (state / doctor.DATABASE).read_bytes() == before


def test_the_database_of_a_running_host_can_be_read(environ, state):
    places.private_folder(state)
    store = SqliteStore(state / doctor.DATABASE)
    try:
        assert look(environ, "database").ok
        assert store.take_over(at=1.0, host="still works") == 1
    finally:
        store.close()


@pytest.mark.parametrize("content", [b"not a database at all, just words" * 40, None])
def test_a_foreign_database_fails(environ, state, content):
    places.private_folder(state)
    path = state / doctor.DATABASE
    if content:
        path.write_bytes(content)
    else:
        with closing(sqlite3.connect(path)) as foreign:
            foreign.execute("CREATE TABLE notes (text)")
    check = look(environ, "database")
    assert not check.ok
    assert str(path) in check.summary
    assert check.hint


def test_a_socket_folder_that_is_no_folder_fails(environ):
    (Path(environ["XDG_RUNTIME_DIR"]) / "jupyter-gpusched").touch()
    assert not look(environ, "socket").ok


def test_no_host_is_in_order_when_none_was_named(environ):
    check = look(environ, "host")
    assert check.ok
    assert "none is running" in check.summary


def test_a_service_of_the_machine_that_is_down_is_told_as_trouble(environ, monkeypatch):
    monkeypatch.setattr(finding, "_is_folder_of_root", lambda path: path == finding.SYSTEM_STATE)
    check = look({name: environ[name] for name in environ if name != "GPUSCHED_HOME"}, "host")
    assert not check.ok
    assert "is not running" in check.summary
    assert "administrator" in check.hint


def test_a_named_host_that_is_not_there_fails(environ, tmp_path):
    check = look({**environ, "GPUSCHED_SOCKET": str(tmp_path / "gone.sock")}, "host")
    assert not check.ok
    assert check.hint


def test_a_host_is_described_with_its_cards(environ, host):
    environ = {**environ, "GPUSCHED_SOCKET": host.server_address}
    summary = look(environ, "host").summary
    for part in ("serve in process 7", "version 0.1.0", "API 1", "epoch 3", "SIMULATED cards 1x8G"):
        assert part in summary
    assert look(environ, "gpus").summary == "GPU 0 Simulated 8G 8.0G (SIMULATED)"


@pytest.mark.parametrize(("kind", "own"), [("system", False), ("hub", False), ("serve", True)])
def test_who_uses_a_service_has_no_place_of_the_own_and_is_told_who_administers(environ, host, kind, own):
    host.answers["health"] |= {"kind": kind, "administrators": "ann and members of gpu-admins"}
    environ = {**environ, "GPUSCHED_SOCKET": host.server_address}
    found = {check.name: check.summary for check in doctor.checks(environ)}
    assert {"state folder", "database", "socket"}.isdisjoint(found) is not own
    assert ("administrators: ann and members of gpu-admins" in found["host"]) is not own
    assert ("host memory and CPUs of jobs: counted, not limited" in found["host"]) is not own


def test_a_degraded_host_and_a_sick_card_are_warnings(environ, host):
    host.answers["health"] |= {"status": "degraded", "causes": ["the disk is full"]}
    host.answers["gpus"]["items"][0]["health"] = {"status": "lost", "cause": "fell off the bus"}
    environ = {**environ, "GPUSCHED_SOCKET": host.server_address}
    assert (look(environ, "host").warning, look(environ, "host").hint) == (True, "the disk is full")
    assert (look(environ, "gpus").warning, look(environ, "gpus").hint) == (True, "GPU 0: fell off the bus")


def test_a_host_of_another_api_fails_with_the_side_to_upgrade(environ, host):
    host.answers["health"]["api"] = places.API + 1
    check = look({**environ, "GPUSCHED_SOCKET": host.server_address}, "host")
    assert not check.ok
    assert "Upgrade" in check.hint


def test_a_missing_package_is_named_with_the_command(environ, monkeypatch):
    monkeypatch.setattr(doctor, "DEPENDENCIES", ("no-such-package-of-ours",))
    check = look(environ, "packages")
    assert not check.ok
    assert check.hint == "pip install no-such-package-of-ours"


@pytest.mark.parametrize(
    ("value", "warning"),
    [(True, False), (False, True), (None, True)],
)
def test_the_server_extension_is_found_in_the_configuration(environ, tmp_path, monkeypatch, value, warning):
    for name in ("JUPYTER_CONFIG_PATH", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr("jupyter_core.paths.ENV_CONFIG_PATH", [])
    monkeypatch.setattr("jupyter_core.paths.SYSTEM_CONFIG_PATH", [])
    if value is not None:
        folder = tmp_path / "JUPYTER_CONFIG_DIR" / "jupyter_server_config.d"
        folder.mkdir(parents=True)
        content = {"ServerApp": {"jpserver_extensions": {"jupyter_gpusched": value}}}
        (folder / "jupyter_gpusched.json").write_text(json.dumps(content))
    check = look(environ, "server extension")
    assert check.ok
    assert check.warning is warning


def test_one_check_that_breaks_hides_no_other(environ, monkeypatch):
    def broken():
        raise RuntimeError("surprise")

    monkeypatch.setattr(doctor, "_platform", broken)
    found = {check.name: check for check in doctor.checks(environ)}
    assert "surprise" in found["platform"].summary
    assert found["python"].ok


@pytest.fixture
def at_home(environ, monkeypatch):
    for name in [name for name in os.environ if name.startswith("GPUSCHED_")]:
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)


def test_json_is_one_object_with_every_check(at_home, capsys):
    assert doctor.main(as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is True
    assert {"name", "ok", "summary", "hint"} <= told["checks"][0].keys()


def test_a_failed_check_makes_the_exit_code_1_and_is_visible(at_home, state, capsys):
    state.touch()
    assert doctor.main(as_json=False) == 1
    assert "FAIL  state folder" in capsys.readouterr().out


def test_the_text_names_this_python(at_home, capsys):
    doctor.main(as_json=False)
    assert sys.executable in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ground", "ok", "words"),
    [
        (Ground(locks="locks do not work: No locks available"), False, "No locks available"),
        (Ground(shared_memory="memory cannot be shared: No such device"), True, "slower journal"),
    ],
)
def test_what_does_not_work_in_the_state_folder_is_said(environ, state, monkeypatch, ground, ok, words):
    state.mkdir(mode=0o700, parents=True)
    monkeypatch.setattr(doctor, "try_out", lambda folder: ground)
    found = look(environ, "state folder")
    assert (found.ok, found.warning) == (ok, ok)
    assert words in found.summary
    assert "local disk" in found.hint


def test_how_jobs_are_ended_is_told_as_the_host_found_it(environ, host):
    environ["GPUSCHED_SOCKET"] = host.server_address
    notice = "Jobs end when this server does: it is the service jupyter.service."
    host.answers["health"] |= {"ending": "by a cgroup of its own", "notices": [notice]}
    check = look(environ, "ending jobs")
    assert (check.ok, check.warning, check.summary, check.hint) == (True, True, "by a cgroup of its own", notice)
    host.answers["health"]["notices"] = []
    assert not look(environ, "ending jobs").warning


def test_without_a_host_it_is_tried_how_jobs_can_be_ended_and_nothing_is_left_behind(environ, state, monkeypatch):
    monkeypatch.setattr(doctor, "means_here", lambda *_: Means(no_cgroups="there are none", holes=False))
    check = look(environ, "ending jobs")
    assert check.summary.endswith("a marker in the environment; there are none")
    assert "Logs are not kept within their limit" in check.hint
    monkeypatch.undo()
    state.mkdir()
    assert look(environ, "ending jobs").ok
    assert list(state.iterdir()) == []
