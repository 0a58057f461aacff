"""A Jupyter server beside a service: it joins it, hosts nothing itself, and says why when it does not answer."""

from __future__ import annotations

import asyncio
import json
import os
from http import HTTPStatus

import pytest
from pytest_jupyter.jupyter_server import *  # noqa: F403  (its fixtures, for this module alone: see conftest.py)
from tornado.httpclient import HTTPClientError
from waiting import DEADLINE_S, wait_for

from jupyter_gpusched import find_host
from jupyter_gpusched.hosts import upstream
from jupyter_gpusched.hosts.upstream import HubService, JoinedHost, Nowhere, OwnHost, upstream_of
from jupyter_gpusched.places import read_host_record, state_folder

API = ("gpusched", "api", "v1")


@pytest.fixture
def jp_server_config():
    return {"ServerApp": {"jpserver_extensions": {"jupyter_gpusched": True}}}


@pytest.fixture
def elsewhere(start_host, tmp_path, monkeypatch):
    """A host on a state folder of its own, which the environment names by its socket."""
    home = tmp_path / "elsewhere"
    with monkeypatch.context() as there:
        there.setenv("GPUSCHED_HOME", str(home))
        host = start_host("1x8G")
        host.socket = read_host_record(home).socket
    monkeypatch.setenv("GPUSCHED_SOCKET", host.socket)
    return host


async def test_a_server_joins_the_host_that_is_named_and_hosts_nothing_itself(elsewhere, jp_fetch):
    health = json.loads((await jp_fetch(*API, "health")).body)
    assert health["pid"] == elsewhere.pid
    assert not (state_folder() / "host.lock").exists()


async def test_a_joined_host_that_ends_is_told_of_and_not_replaced(elsewhere, jp_fetch, jp_ws_fetch):
    tab = await jp_ws_fetch(*API, "stream")

    async def until(wanted):
        while True:
            frame = json.loads(await asyncio.wait_for(tab.read_message(), DEADLINE_S))
            if wanted(frame):
                return frame

    await until(lambda frame: frame["type"] == "snapshot")
    elsewhere.kill()
    lost = await until(lambda frame: frame["type"] == "status" and frame["cause"])
    assert not lost["connected"]
    assert "does not answer" in lost["cause"]
    with pytest.raises(HTTPClientError) as refusal:
        await jp_fetch(*API, "gpus")
    assert refusal.value.code == HTTPStatus.SERVICE_UNAVAILABLE
    error = json.loads(refusal.value.response.body)["error"]
    assert error["code"] == "no_host"
    assert "tell the administrator" in error["hint"]
    assert not (state_folder() / "host.lock").exists()


async def test_without_the_token_the_page_is_told_what_is_missing(monkeypatch, jp_configurable_serverapp):
    monkeypatch.setenv("GPUSCHED_SERVICE_URL", "http://127.0.0.1:9/")
    host = upstream_of(state_folder())
    assert isinstance(host, Nowhere)
    with pytest.raises(upstream.HostLost) as lost:
        async with upstream.answer(host, "events"):
            pass
    assert "JUPYTERHUB_API_TOKEN" in lost.value.told


@pytest.mark.parametrize(
    ("environ", "kind"),
    [
        ({"GPUSCHED_SOCKET": "/x.sock", "GPUSCHED_SERVICE_URL": "http://h/", "JUPYTERHUB_API_TOKEN": "t"}, JoinedHost),
        ({"GPUSCHED_SERVICE_URL": "http://h/services/gpusched", "JUPYTERHUB_API_TOKEN": "t"}, HubService),
        ({"GPUSCHED_SERVICE_URL": "http://h/services/gpusched"}, Nowhere),
        ({"GPUSCHED_SERVICE_URL": "nonsense", "JUPYTERHUB_API_TOKEN": "t"}, Nowhere),
        ({"GPUSCHED_SIMULATE": "1x8G"}, OwnHost),
        ({}, OwnHost),
    ],
)
def test_a_server_asks_whom_a_client_would_ask(environ, kind, monkeypatch, tmp_path):
    monkeypatch.setattr(upstream, "SYSTEM_SOCKET", str(tmp_path / "none.sock"))
    assert isinstance(upstream_of(tmp_path, environ), kind)


def test_a_server_does_not_host_beside_a_service_that_is_down(monkeypatch, tmp_path):
    monkeypatch.setattr(upstream, "SYSTEM_SOCKET", str(tmp_path / "none.sock"))
    monkeypatch.setattr(find_host, "_is_folder_of_root", lambda path: path == find_host.SYSTEM_STATE)
    assert isinstance(upstream_of(tmp_path, {}), JoinedHost)
    assert isinstance(upstream_of(tmp_path, {"GPUSCHED_HOME": str(tmp_path)}), OwnHost)


def test_a_system_service_is_joined_also_while_it_is_being_restarted(monkeypatch, tmp_path, start_host):
    host = start_host("1x8G")
    socket = read_host_record(state_folder()).socket
    monkeypatch.setattr(upstream, "SYSTEM_SOCKET", socket)
    assert isinstance(upstream_of(tmp_path, {}), JoinedHost)
    host.kill()
    wait_for(lambda: os.path.exists(socket), "a killed host's socket stays")
    assert isinstance(upstream_of(tmp_path, {}), JoinedHost)
    assert isinstance(upstream_of(tmp_path, {"GPUSCHED_SIMULATE": "1x8G"}), OwnHost)
