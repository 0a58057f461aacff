"""Who is shown what of alerts, quarantines and foreign processes (case 39)."""

from __future__ import annotations

from jupyter_gpusched.callers import Caller
from jupyter_gpusched.core.alerts import settle
from jupyter_gpusched.core.messages import Placed, Quarantined, Sampled, Started, Submitted
from jupyter_gpusched.core.model import Foreign
from jupyter_gpusched.core.state import State, apply
from jupyter_gpusched.views import Views
from tests.core.conftest import SETTINGS, G, card, grant, job

KERNEL = Foreign(4711, 12 * G, "ann", 1.0, kernel=True, notebook="/home/ann/secret.ipynb")


def idle_for(seconds):
    """Ann's job and Ann's kernel hold a card on which nothing runs, and Ann has quarantined another."""
    state = State.begin(SETTINGS, gpus=[card(0), card(1)])
    one = job()
    for event in (Submitted((one,)), Placed(one.id, (grant(one, 0),)), Started(one.id, 1, 0.0)):
        state = apply(state, event, 0.0).state
    state = apply(state, Quarantined("GPU-1", "ann", "a fan is loud"), 0.0).state
    for now in range(0, seconds + 1, 30):
        first = card(0, at=now, used=15 * G, utilization_pct=0, used_by_job={one.id: 3 * G}, foreign=(KERNEL,))
        state = settle(apply(state, Sampled((first, card(1, at=now))), float(now)).state, float(now)).state
    return state


def shown(user):
    return Views.of(idle_for(1900), caller=Caller(user, 1, "/"), simulated=False, now=1900.0)


def test_the_owner_sees_alerts_about_the_machine_and_about_own_jobs():
    alerts = shown("ann").alerts()
    assert sorted(alert.kind for alert in alerts) == ["idle_job", "idle_kernel", "quarantined"]
    assert "/home/ann/secret.ipynb" in next(alert.message for alert in alerts if alert.kind == "idle_kernel")
    assert next(alert.job_id for alert in alerts if alert.kind == "idle_job") == "aaaa0001"


def test_another_sees_that_a_card_is_idle_and_held_but_neither_job_nor_notebook():
    alerts = shown("bob").alerts()
    assert sorted(alert.kind for alert in alerts) == ["idle_kernel", "quarantined"]
    assert not any("secret" in alert.message or "aaaa0001" in alert.message for alert in alerts)
    (process,) = [holder for holder in shown("bob").gpus()[0].holders if holder.kind == "foreign"]
    assert (process.user, process.pid, process.notebook) == ("ann", 4711, None)


def test_everybody_sees_who_quarantined_a_card_and_why():
    health = shown("bob").gpus()[1].health
    assert (health.status, health.by, health.cause) == ("quarantined", "ann", "a fan is loud (by ann)")
