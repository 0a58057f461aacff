"""The cards as many are sent them: made once for each caller, and never another's."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest

from jupyter_gpusched import views as views_of
from jupyter_gpusched.callers import Caller
from jupyter_gpusched.core.messages import Placed, Sampled, Started, Submitted
from jupyter_gpusched.core.state import State, apply
from jupyter_gpusched.frames import KEPT_S, CardFrames
from jupyter_gpusched.views import Views
from tests.core.conftest import SETTINGS, card, grant, job


@pytest.fixture
def state():
    """Ann has a job on a card."""
    state, one = State.begin(SETTINGS, gpus=[card(0), card(1)]), job()
    for event in (Submitted((one,)), Placed(one.id, (grant(one, 0),)), Started(one.id, 1, 0.0)):
        state = apply(state, event, 0.0).state
    return state


@pytest.fixture
def made(monkeypatch):
    """How many views of a card were made."""
    counted, make = [], Views._gpu

    def count(*words):
        counted.append(words)
        return make(*words)

    monkeypatch.setattr(views_of.Views, "_gpu", count)
    return counted


def seen(state, user, *, now=1.0, admin=False):
    return Views.of(state, caller=Caller(user, None, "/", admin=admin), simulated=True, now=now)


def test_sixty_tabs_of_a_user_cost_as_much_as_one(state, made):
    frames = CardFrames()
    lines = {frames.line(seen(state, "ann"), 7) for _ in range(60)}
    assert len(made) == len(state.gpus)
    (line,) = lines
    assert json.loads(line) == {"type": "gpus", "seq": 7, "gpus": msgspec.to_builtins(seen(state, "ann").gpus())}
    assert frames.of(seen(state, "ann")) is frames.of(seen(state, "ann"))


def test_nobody_is_sent_what_another_sees(state):
    frames = CardFrames()
    ids = [frames.of(seen(state, "ann"))[0].holders[0].job_id]
    ids += [frames.of(seen(state, user, admin=admin))[0].holders[0].job_id for user, admin in
            (("bob", False), ("Ann", False), ("ann ", False), ("bob", True))]  # fmt: skip
    assert ids == ["aaaa0001", None, None, None, "aaaa0001"]
    assert b"aaaa0001" not in frames.line(seen(state, "bob"), 1)
    assert b"aaaa0001" in frames.line(seen(state, "ann"), 1)


def test_what_changes_is_told_and_so_is_what_time_changes(state):
    frames = CardFrames()
    before = frames.of(seen(state, "ann"))
    after = apply(state, Sampled((card(0, at=2.0, used=5), card(1, at=2.0))), 2.0).state
    assert frames.of(seen(after, "ann"))[0].used_mib == 5
    assert frames.of(seen(state, "ann")) == before
    first = frames.of(seen(state, "ann", now=1.0))
    assert frames.of(seen(state, "ann", now=1.0 + 2 * KEPT_S)) is not first
    assert frames.of(replace(seen(state, "ann"), now=0.0)) is not first, "a clock that was put back"
