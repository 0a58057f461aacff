"""Who is shown what of alerts, quarantines and foreign processes (case 39)."""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpusched.callers import Caller
from jupyter_gpusched.core.alerts import settle
from jupyter_gpusched.core.messages import Placed, Quarantined, Sampled, Started, Submitted
from jupyter_gpusched.core.model import Foreign, Opener
from jupyter_gpusched.core.state import State, apply
from jupyter_gpusched.telemetry import Counts, Machine, exposition
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


def test_monitoring_counts_the_alerts_that_whoever_asks_may_read():
    def counted(user):
        views = shown(user)
        machine = Machine(views.state, 1900.0, views.gpus(), views.alerts(), Counts(), simulated=False, writable=True)
        return exposition(machine).decode()

    of_a_job = 'gpusched_alerts{kind="idle_job"'
    assert of_a_job in counted("ann")
    assert of_a_job not in counted("bob")
    assert 'gpusched_alerts{kind="idle_kernel",severity="warning"} 1.0' in counted("bob")


def unattributed():
    """Memory is held that no process in the driver's list admits to; ann's have the card open, and one of nobody."""
    openers = (Opener(11, "secret-program", "ann"), Opener(12, "secret-program", "ann"), Opener(13, "secret-program"))
    state = State.begin(SETTINGS, gpus=[card(0)])
    for now in range(0, 31, 10):
        gpu = card(0, at=now, used=8 * G, unattributed=8 * G, device_file="/dev/nvidia0", opened_by=openers)
        state = settle(apply(state, Sampled((gpu,)), float(now)).state, float(now)).state
    state = apply(state, Submitted((replace(job("waits", vram=20 * G), owner="bob"),)), 30.0).state
    return lambda user, admin=False: Views.of(
        state, caller=Caller(user, 1, "/", admin=admin), simulated=False, now=30.0
    )


def test_what_processes_with_an_open_card_run_is_told_to_their_user_and_to_administrators():
    see = unattributed()
    for views, programs in (
        (see("bob"), [None, None, None]),
        (see("ann"), ["secret-program", "secret-program", None]),
        (see("carol", admin=True), ["secret-program"] * 3),
    ):
        (gpu,) = views.gpus()
        assert [(one.pid, one.user, one.program) for one in gpu.opened_by] == list(
            zip((11, 12, 13), ("ann", "ann", None), programs, strict=True)
        )
    (alert,), (told) = see("bob").alerts(), see("bob").jobs(list(see("bob").state.jobs.values()))
    assert "pid 11 (of ann)" in alert.message
    assert "secret-program" not in f"{alert} {told}"
    assert "pid 13 (secret-program)" in see("carol", admin=True).alerts()[0].message


def test_everybody_sees_who_quarantined_a_card_and_why():
    health = shown("bob").gpus()[1].health
    assert (health.status, health.by, health.cause) == ("quarantined", "ann", "a fan is loud, by ann")
