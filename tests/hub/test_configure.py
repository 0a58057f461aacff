"""One line in a Hub's configuration: what it adds, and what it leaves alone."""

import os

import pytest
from traitlets.config import Config

from jupyter_gpusched.hosts.hub import ADMIN_SCOPE, configure

SCOPE = "access:services!service=gpusched"


def test_an_empty_configuration_gets_service_scopes_and_address():
    c = Config()
    configure(c, port=8765, state="/srv/queue", environment={"GPUSCHED_SIMULATE": "1x8G"}, options=["--x"])
    service = c.JupyterHub.services[0]
    assert service["name"] == "gpusched"
    assert service["url"] == c.Spawner.environment["GPUSCHED_SERVICE_URL"] == "http://127.0.0.1:8765"
    assert service["command"][1:] == ["-m", "jupyter_gpusched.hosts.hub", "--x"]
    assert service["environment"]["GPUSCHED_HOME"] == "/srv/queue"
    assert service["environment"]["GPUSCHED_SIMULATE"] == "1x8G"
    assert c.JupyterHub.load_roles == [{"name": "user", "scopes": ["self", SCOPE]}]
    assert c.Spawner.server_token_scopes == ["users:activity!user", "access:servers!server", SCOPE, ADMIN_SCOPE]
    assert ADMIN_SCOPE in c.JupyterHub.custom_scopes


def test_what_is_there_already_stays():
    c = Config()
    c.JupyterHub.services = [{"name": "culler"}]
    c.JupyterHub.load_roles = [{"name": "user", "scopes": ["self", "shares!user"]}, {"name": "culler", "scopes": []}]
    c.Spawner.environment = {"LANG": "de_DE.UTF-8"}
    c.Spawner.server_token_scopes = ["access:servers!server", "users:activity!user", "list:users"]
    configure(c)
    assert [service["name"] for service in c.JupyterHub.services] == ["culler", "gpusched"]
    assert c.JupyterHub.load_roles[0] == {"name": "user", "scopes": ["self", "shares!user", SCOPE]}
    assert c.JupyterHub.load_roles[1] == {"name": "culler", "scopes": []}
    assert c.Spawner.environment["LANG"] == "de_DE.UTF-8"
    assert "list:users" in c.Spawner.server_token_scopes
    assert SCOPE in c.Spawner.server_token_scopes


def test_what_was_only_added_to_stays_too():
    c = Config()
    c.JupyterHub.services.append({"name": "culler"})
    c.Spawner.environment.update({"LANG": "C"})
    configure(c)
    assert [service["name"] for service in c.JupyterHub.services] == ["culler", "gpusched"]
    assert c.Spawner.environment["LANG"] == "C"


def test_what_cannot_be_added_to_is_named():
    c = Config()
    c.Spawner.server_token_scopes = lambda spawner: []
    with pytest.raises(TypeError, match=r"c\.Spawner\.server_token_scopes is of a kind that cannot be added to"):
        configure(c)


@pytest.mark.parametrize(("uid", "port", "home"), [(0, 876, "/var/lib/jupyter-gpusched"), (1000, 8765, None)])
def test_root_listens_where_no_user_can_take_its_place(monkeypatch, uid, port, home):
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    c = Config()
    configure(c)
    assert c.Spawner.environment["GPUSCHED_SERVICE_URL"] == f"http://127.0.0.1:{port}"
    assert c.JupyterHub.services[0]["environment"].get("GPUSCHED_HOME") == home
