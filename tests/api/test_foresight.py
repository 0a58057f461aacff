"""When a waiting job will probably start, as a host says it: by run times it knows, never by a guess."""

from __future__ import annotations

import time
from types import SimpleNamespace

import anyio
import pytest
from rest import Rest
from waiting import wait_for

from jupyter_gpusched import foresight
from jupyter_gpusched.core.estimate import Start
from jupyter_gpusched.core.messages import Drained
from jupyter_gpusched.core.state import State, apply
from jupyter_gpusched.ports import Recorded
from tests.core.conftest import SETTINGS

WHOLE = "24564M"


@pytest.fixture
def rest(host):
    rest = Rest(host.client().health()["socket"])
    yield rest
    rest.close()


@pytest.fixture
def told(client, command):
    """The id of a job that waits for one that says how long it runs at most."""
    client.submit(command("sleep", "60", vram=WHOLE, gpus=2, time_limit="10m"))
    return client.submit(command("true", vram="2G"))


def test_a_job_that_waits_for_a_limited_one_has_an_estimate_and_a_range(rest, told):
    wait_for(lambda: rest("GET", f"jobs/{told}").json["estimated_start"] is not None, "nothing is foretold")
    view = rest("GET", f"jobs/{told}").json
    earliest, latest = view["estimated_start_range"]
    assert time.time() - 5 < earliest <= view["estimated_start"] <= latest <= time.time() + 900


def test_lists_have_it_too_without_waiting_for_it(rest, told):
    def listed():
        return next(view for view in rest("GET", "jobs").json["items"] if view["id"] == told)

    wait_for(lambda: listed()["estimated_start_range"] is not None, "nothing is foretold in the list")


def test_who_waits_for_a_run_of_which_nothing_is_known_has_none(client, command, rest):
    client.submit(command("sleep", "60", vram=WHOLE, gpus=2))
    waits = client.submit(command("true", vram="2G"))
    view = rest("GET", f"jobs/{waits}").json
    assert (view["estimated_start"], view["estimated_start_range"]) == (None, None)


def test_a_running_job_has_none(client, command, rest):
    runs = client.submit(command("sleep", "60", vram="2G", time_limit="10m"))
    wait_for(lambda: rest("GET", f"jobs/{runs}").json["phase"] == "running", "it does not run")
    assert rest("GET", f"jobs/{runs}").json["estimated_start"] is None


class QuietEngine:
    """As much of an engine as is looked at: a state, and no earlier jobs."""

    state = State.begin(SETTINGS)
    store = SimpleNamespace(jobs=lambda limit: [])

    @staticmethod
    def clock():
        return 0.0


def looked(monkeypatch, act):
    """How often the future was looked at while ``act`` went on with a foresight."""
    looks = []
    monkeypatch.setattr(foresight, "foretold", lambda *_: looks.append(1) or {})

    async def run():
        ahead = foresight.Foresight(QuietEngine())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ahead.keep)
            with anyio.fail_after(30):
                await act(ahead)
            tasks.cancel_scope.cancel()

    anyio.run(run)
    return len(looks)


def test_nobody_looks_ahead_while_nobody_asks(monkeypatch):
    async def act(ahead):
        ahead.observe([Recorded(1, None, "drained", 0.0, {})], QuietEngine.state, sampled=True)
        await anyio.wait_all_tasks_blocked()

    assert looked(monkeypatch, act) == 0


def test_many_who_ask_cost_one_look_and_a_rest(monkeypatch):
    monkeypatch.setattr(foresight, "LEAST_PAUSE_S", 300.0)

    async def act(ahead):
        for number in range(50):
            ahead.observe([Recorded(number, None, "drained", 0.0, {})], QuietEngine.state, sampled=False)
            ahead.start("abcd1234")
            await ahead.renewed(20.0)  # the first waits for the look, the others do not wait for the end of its rest

    assert looked(monkeypatch, act) == 1


def test_what_could_not_be_foretold_is_null_and_logged(monkeypatch, caplog):
    async def act(ahead):
        monkeypatch.setattr(foresight, "foretold", lambda *_: 1 / 0)
        await ahead.renewed(20.0)
        assert ahead.start("abcd1234") is None

    looked(monkeypatch, act)
    assert "could not be foretold" in caplog.text


def test_nothing_that_was_foretold_is_told_on_a_drained_machine(monkeypatch):
    start = Start(10.0, 5.0, 20.0)

    async def act(ahead):
        monkeypatch.setattr(foresight, "foretold", lambda *_: {"abcd1234": start})
        ahead.observe([Recorded(1, None, "submitted", 0.0, {})], QuietEngine.state, sampled=False)
        await ahead.renewed(20.0)
        assert ahead.start("abcd1234") == start
        drained = apply(QuietEngine.state, Drained("root", "maintenance"), 0.0).state
        monkeypatch.setattr(QuietEngine, "state", drained)
        assert ahead.start("abcd1234") is None

    looked(monkeypatch, act)
