"""Alerts from series of samples on a virtual clock: case 32, the third run of case 18, and sick cards."""

from dataclasses import replace

import pytest

from jupyter_gpusched.core.alerts import settle
from jupyter_gpusched.core.explain import waiting
from jupyter_gpusched.core.messages import (
    CancelRequested,
    Drained,
    Exited,
    Placed,
    Resumed,
    Sampled,
    Started,
    Submitted,
)
from jupyter_gpusched.core.model import Foreign, Opener
from jupyter_gpusched.core.quarantine import ordered
from jupyter_gpusched.core.state import State, apply
from tests.core.conftest import SETTINGS, G, card, grant, job, record

MINUTE = 60.0
KERNEL = Foreign(4711, 12 * G, "ann", 1.0, kernel=True, notebook="train.ipynb")


class Watched:
    """One card that is sampled every ten seconds, and the alerts that were raised and resolved."""

    def __init__(self, *jobs):
        self.now, self.told = 0.0, []
        self.state = State.begin(SETTINGS, gpus=[card(0)])
        for one in jobs:
            for event in (
                Submitted((one,)),
                Placed(one.id, (grant(one, 0),)),
                Started(one.id, 1, 0.0),
            ):
                self.state = apply(self.state, event, 0.0).state

    def see(self, minutes=0.0, *, every=10.0, **values):
        """So many minutes of samples with these values; at least one."""
        until = self.now + minutes * MINUTE
        while True:
            self.sample(card(0, at=self.now, **values))
            if self.now >= until:
                return self
            self.now += every

    def miss(self, minutes):
        """The card cannot be read for so long: its last figures stay."""
        last = self.state.seen["GPU-0"]
        until = self.now + minutes * MINUTE
        while self.now < until:
            self.now += 10.0
            self.sample(replace(last, health="unknown", health_cause="no answer"))
        return self

    def sample(self, *cards, fault=None):
        self.settle(apply(self.state, Sampled(cards), self.now).state, fault)

    def tell(self, event):
        self.settle(apply(self.state, event, self.now).state)

    def settle(self, state, fault=None):
        step = settle(state, self.now, fault=fault)
        self.state = step.state
        self.told += [(change.kind, change.detail["alert"]["kind"]) for change in step.changes]

    def restart(self):
        self.state = State.begin(SETTINGS, self.state.jobs.values(), (), self.state.operations)
        return self

    @property
    def alerts(self):
        return list(self.state.operations.alerts.values())

    def kinds(self):
        return [alert.kind for alert in self.alerts]


HELD = {"used": 12 * G, "utilization_pct": 0, "foreign": (KERNEL,), "unattributed": 0}


# --- case 32 ------------------------------------------------------------------------------


def test_29_minutes_of_nothing_and_then_a_spike_are_no_alert():
    watched = Watched().see(29, **HELD).see(**HELD | {"utilization_pct": 40}).see(29, **HELD)
    assert watched.told == []


def test_31_minutes_of_nothing_with_memory_held_are_one_alert_that_names_who_holds_it():
    watched = Watched().see(31, **HELD).see(60, **HELD)
    assert watched.told == [("alert_raised", "idle_kernel")]
    (alert,) = watched.alerts
    assert alert.message == (
        "A notebook kernel of ann (pid 4711) holds 12.0G of GPU 0, on which nothing has run for more than 30 minutes."
    )
    assert alert.own_message.startswith("The kernel of train.ipynb (pid 4711) holds 12.0G")
    assert (alert.since, alert.user, alert.gpu_index, alert.job_id) == (0.0, "ann", 0, None)


def test_an_alert_resolves_by_itself_and_the_next_episode_has_one_of_its_own():
    watched = Watched().see(31, **HELD).see(**HELD | {"utilization_pct": 2}).see(31, **HELD)
    assert watched.told == [
        ("alert_raised", "idle_kernel"), ("alert_resolved", "idle_kernel"), ("alert_raised", "idle_kernel"),
    ]  # fmt: skip
    watched.see(used=0, utilization_pct=0)
    assert watched.alerts == []


def test_31_minutes_without_samples_are_stale_and_not_idle():
    watched = Watched().see(**HELD).miss(31)
    assert watched.kinds() == ["driver"]
    assert not any(kind.startswith("idle") for _, kind in watched.told)


def test_time_without_samples_is_neither_busy_nor_idle():
    watched = Watched().see(20, **HELD).miss(20).see(9, **HELD)
    assert watched.kinds() == []
    assert watched.see(3, **HELD).kinds() == ["idle_kernel"]


def test_samples_far_apart_say_nothing_of_the_time_between():
    assert Watched().see(120, every=600.0, **HELD).kinds() == []


def test_a_card_without_a_utilization_is_never_idle():
    assert Watched().see(60, **HELD | {"utilization_pct": None}).kinds() == []


def test_a_card_that_nobody_has_is_no_alert():
    assert Watched().see(60, used=0, utilization_pct=0, unattributed=0).told == []


def test_a_few_mib_of_a_desktop_are_no_alert():
    small = HELD | {"foreign": (KERNEL._replace(vram=100),)}
    assert Watched().see(60, **small).told == []


def test_whoever_comes_to_an_idle_card_has_half_an_hour_of_their_own():
    watched = Watched().see(29, used=0, utilization_pct=0).see(2, **HELD)
    assert watched.kinds() == []


def of_job(used, utilization=0):
    return {"used": used, "utilization_pct": utilization, "used_by_job": {"aaaa0001": used}, "unattributed": 0}


def test_a_job_that_holds_memory_and_does_nothing_is_told_apart_from_a_kernel():
    watched = Watched(job()).see(31, **of_job(3 * G))
    (alert,) = watched.alerts
    assert (alert.kind, alert.job_id, alert.user) == ("idle_job", "aaaa0001", "ann")
    assert alert.message == "Job aaaa0001 holds 3.0G of GPU 0, on which nothing has run for more than 30 minutes."


def test_a_job_without_a_process_on_its_card_for_31_minutes_holds_it_unused_even_if_others_are_busy():
    watched = Watched(job()).see(31, **of_job(0, utilization=90))
    (alert,) = watched.alerts
    assert (alert.kind, alert.message) == (
        "held_unused", "Job aaaa0001 has held GPU 0 for more than 30 minutes without a process on it.",
    )  # fmt: skip
    watched.see(**of_job(1 * G, utilization=90))
    assert watched.told[-1] == ("alert_resolved", "held_unused")


def test_a_job_whose_use_cannot_be_told_is_not_said_to_do_nothing():
    assert "held_unused" not in Watched(job()).see(60, used=3 * G, utilization_pct=0).kinds()


def test_the_end_of_a_job_resolves_its_alert():
    watched = Watched(job()).see(31, **of_job(3 * G))
    watched.tell(CancelRequested("aaaa0001", "ann"))
    watched.tell(Exited("aaaa0001", 1, record(143, stopped="cancelled")))
    assert watched.told[-1] == ("alert_resolved", "idle_job")


def test_a_restart_of_the_host_neither_resolves_an_idle_alert_nor_raises_it_again():
    watched = Watched().see(31, **HELD).restart()
    watched.sample()  # the driver has not answered the new host yet
    watched.see(40, **HELD)
    assert watched.told == [("alert_raised", "idle_kernel")]
    watched.see(**HELD | {"utilization_pct": 50})
    assert watched.told[-1] == ("alert_resolved", "idle_kernel")


# --- memory without an owner -----------------------------------------------------------------


def test_memory_that_no_process_admits_to_is_an_alert_that_names_who_has_the_device_open():
    lost = {
        "used": 20 * G,
        "unattributed": 20 * G,
        "device_file": "/dev/nvidia0",
        "opened_by": (Opener(123, "python", "ann"), Opener(124, "secret")),
    }
    watched = Watched()
    watched.see(**lost)
    assert watched.told == [], "lists and memory are not read at the same instant"
    watched.now += 10
    watched.see(**lost)
    (alert,) = watched.alerts
    assert alert.kind == "unattributed"
    assert alert.message == (
        "GPU 0 has 20.0G in use that no process admits to; /dev/nvidia0 is open in pid 123 (of ann), pid 124."
    )
    assert alert.own_message == (
        "GPU 0 has 20.0G in use that no process admits to; "
        "/dev/nvidia0 is open in pid 123 (python of ann), pid 124 (secret)."
    ), "what they run is told to administrators"
    one = job("waits", vram=10 * G)
    words = waiting(apply(watched.state, Submitted((one,)), watched.now).state, one, watched.now)
    assert words == (
        "needs 10.0G on 1 GPU; best is GPU 0: 4.0G free, 20.0G unattributed, that no process admits to; "
        "/dev/nvidia0 is open in pid 123 (of ann), pid 124"
    )
    watched.see(used=0, unattributed=0)
    assert watched.told[-1] == ("alert_resolved", "unattributed")


def test_memory_of_others_and_memory_of_nobody_are_two_figures():
    gpu = card(0, used=20 * G, unattributed=8 * G, foreign=(KERNEL,))
    one = job("waits", vram=10 * G)
    state = apply(State.begin(SETTINGS, gpus=[gpu]), Submitted((one,)), 0.0).state
    assert "12.0G in use outside the queue, 8.0G unattributed" in waiting(state, one, 0.0)


# --- cards and driver ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("health", "kind", "severity"), [("lost", "quarantined", "error"), ("unknown", "driver", "warning")]
)
def test_a_sick_card_is_an_alert_until_it_is_well(health, kind, severity):
    watched = Watched().see(health=health, health_cause="it is ill")
    (alert,) = watched.alerts
    assert (alert.kind, alert.severity) == (kind, severity)
    assert "it is ill" in alert.message


def test_a_broken_driver_is_one_alert_and_not_one_for_each_card():
    watched = Watched()
    ill = [card(index, health="unknown", health_cause="mismatch") for index in range(2)]
    watched.sample(*ill, fault="The NVIDIA driver was upgraded.")
    (alert,) = watched.alerts
    assert (alert.id, alert.message, alert.severity) == ("driver", "The NVIDIA driver was upgraded.", "error")
    watched.sample(card(0), card(1))
    assert watched.told == [("alert_raised", "driver"), ("alert_resolved", "driver")]


def test_a_machine_on_which_jobs_end_with_the_server_says_so_until_a_host_that_can_do_better():
    why = "it is the service jupyter.service, which ends all its processes"
    first = settle(State.begin(replace(SETTINGS, ends_with_server=why), gpus=[card(0)]), 0.0)
    assert [(change.kind, change.detail["alert"]["message"]) for change in first.changes] == [
        ("alert_raised", f"Jobs end when this server does: {why}.")
    ]
    assert settle(first.state, 10.0).changes == ()
    later = settle(State.begin(SETTINGS, (), [card(0)], first.state.operations), 20.0)
    assert [change.kind for change in later.changes] == ["alert_resolved"]


def test_a_drained_machine_says_who_stopped_it_and_why_until_it_is_resumed():
    state = State.begin(SETTINGS, gpus=[card(0)])
    drained, _ = ordered(state.operations, Drained("ann", "new disks"), state.gpus, 5.0)
    first = settle(replace(state, operations=drained), 6.0)
    assert [(change.kind, change.detail["alert"]["message"]) for change in first.changes] == [
        ("alert_raised", "Nothing new starts here: ann has drained this machine: new disks.")
    ]
    resumed, _ = ordered(first.state.operations, Resumed("ann", "done"), state.gpus, 7.0)
    later = settle(replace(first.state, operations=resumed), 8.0)
    assert [change.kind for change in later.changes] == ["alert_resolved"]
