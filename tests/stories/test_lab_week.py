"""Story 3, a week in a lab without an administrator: people on shared cards, half an hour in two seconds."""

from __future__ import annotations

import json
import os
import time

import pytest
from many_users import Loads, OutsideUse, lab
from waiting import wait_for

from jupyter_gpusched.core.model import Foreign

G = 1024
IDLE_S = 2.0
"""Half an hour, with the clock compressed."""
INTERVAL_S = 0.2

KERNEL = Foreign(4711, 20 * G, "bob", 1.0, kernel=True, notebook="/home/bob/forgotten.ipynb")


@pytest.fixture
def week(own_environment, tmp_path):
    """Six people on four cards: ``ann`` submits arrays, ``bob`` forgets kernels, ``new`` is new; others just work."""
    clock = {"sample_interval_s": INTERVAL_S, "idle_after_s": IDLE_S}
    with lab(own_environment, tmp_path, simulate="4x24564M", **clock) as running:
        yield running


def work_of_others(week, *users):
    """A card each is taken."""
    for user in users:
        until(week, user, week.submit(user, "sleep", "600", gpus=1, vram="23G"), "running")


def view(week, user, job_id):
    return week.ask(user, "GET", f"jobs/{job_id}").json


def until(week, user, job_id, *phases):
    return wait_for(
        lambda: found if (found := view(week, user, job_id))["phase"] in phases else None,
        f"{job_id} of {user} does not become {phases}",
    )


def cards(week, user="new"):
    return week.ask(user, "GET", "gpus").json["items"]


def alerts(week, user, kind="idle_kernel"):
    return [one for one in week.ask(user, "GET", "alerts").json["items"] if one["kind"] == kind]


def test_monday_somebody_new_sees_who_holds_what_since_when_and_nothing_of_what_it_is_for(week):
    """Step 1."""
    OutsideUse(week).on[1] = KERNEL
    job = week.submit("ann", "sh", "-c", "sleep 600 # secret", gpus=1, vram="4G", name="secret", preferred_gpus=["0"])
    until(week, "ann", job, "running")
    first, second, *_free = wait_for(
        lambda: found if (found := cards(week))[1]["holders"] else None, "the kernel is not seen"
    )
    (of_ann,), (of_bob,) = first["holders"], second["holders"]
    assert (first["total_mib"], first["available_mib"]) == (24564, 24564 - 4 * G)
    assert (of_ann["kind"], of_ann["user"], of_ann["promised_mib"]) == ("job", "ann", 4 * G)
    assert of_ann["since"] is not None
    assert (second["available_mib"], second["foreign_mib"]) == (24564 - 20 * G, 20 * G)
    assert (of_bob["kind"], of_bob["user"], of_bob["vram_mib"], of_bob["since"]) == ("foreign", "bob", 20 * G, 1.0)
    told = json.dumps([first, second])
    assert not any(word in told for word in ("secret", job, "forgotten"))


def test_one_job_of_somebody_new_starts_at_the_next_free_place_not_after_two_hundred(week):
    """Step 2."""
    spec = {"argv": ["sleep", "0.3"], "gpus": 1, "vram": "20G"}
    assert week.ask("ann", "POST", "jobs", {"jobs": [spec] * 200}).status == 201
    job = week.submit("new", "true", gpus=1, vram="20G")
    assert view(week, "new", job)["position"] is not None
    until(week, "new", job, "succeeded")
    left = week.ask("ann", "GET", "jobs?phase=queued&limit=1000").json["items"]
    assert len(left) > 180, "ann's came first"
    assert week.ask("ann", "POST", "jobs/cancel", {"name": "sleep*", "grace": "0s"}).status == 200


def test_a_forgotten_kernel_is_told_once_led_to_by_its_owner_and_its_memory_is_offered_when_it_ends(week):
    """Steps 3 and 4."""
    outside = OutsideUse(week)
    outside.on = dict.fromkeys(range(4), KERNEL)
    wait_for(lambda: all(card["holders"] for card in cards(week)), "the kernel is not seen")
    job = week.submit("ann", "true", gpus=1, vram="10G")
    wait_for(lambda: len(alerts(week, "bob")) == 4, "nobody is told")
    (own, *_), (others, *_) = alerts(week, "bob"), alerts(week, "new")
    assert "forgotten.ipynb" in own["message"]
    assert "pid 4711" in own["message"]
    assert "forgotten" not in json.dumps(others)
    assert (others["user"], others["gpu_index"], others["severity"]) == ("bob", own["gpu_index"], "warning")
    looks = cards(week)[0]["sampled_at"]
    wait_for(lambda: cards(week)[0]["sampled_at"] > looks + 3 * INTERVAL_S, "nobody looks any more")
    raised = [event for event in log(week) if event["kind"] == "alert_raised"]
    assert len(raised) == 4, "once for an episode on each card"
    assert view(week, "ann", job)["phase"] == "queued", "nothing is ended for the sake of others"
    outside.on.clear()  # bob shuts his kernel down
    ended = time.time()
    started = until(week, "ann", job, "succeeded")["started_at"]
    assert started - ended < 2 * INTERVAL_S + 5, "two intervals, and what a machine under load adds"
    wait_for(lambda: not alerts(week, "bob"), "the alert stays")


def log(week):
    return week.ask("root2", "GET", "admin/events?limit=1000").json["items"]


TRAINING = """
import os, pathlib, signal, sys, time
saved = pathlib.Path(os.environ["GPUSCHED_CHECKPOINT_DIR"], "epoch")
epoch = int(saved.read_text()) if saved.exists() else 0
print("attempt", os.environ["GPUSCHED_ATTEMPT"], "begins at epoch", epoch, flush=True)
def save(*_):
    saved.write_text(str(epoch + 7))
    sys.exit(1)
signal.signal(signal.SIGTERM, save)
while not epoch:
    time.sleep(0.05)
"""


def test_thursday_a_deadline_takes_a_card_from_who_agreed_to_it_who_goes_on_where_it_was(week, tmp_path):
    """Steps 5 and 7."""
    work_of_others(week, "cleo", "dan")
    (tmp_path / "training.py").write_text(TRAINING)
    script = {"kind": "script", "path": str(tmp_path / "training.py"), "gpus": 2, "vram": "20G", "priority": "low"}
    training = week.ask("ann", "POST", "jobs", script | {"cwd": str(tmp_path), "env": dict(os.environ)}).json["id"]
    wait_for(lambda: b"begins" in week.ask("ann", "GET", f"jobs/{training}/log").body, "the training does not begin")
    urgent = week.submit("bob", "sleep", "1", gpus=2, vram="20G", priority="high")
    until(week, "bob", urgent, "running", "succeeded")
    waiting = view(week, "ann", training)
    assert waiting["attempts"][0]["outcome"] == "preempted"
    assert urgent not in json.dumps(waiting), "not which job, but"
    assert "bob" in waiting["attempts"][0]["message"], "whose"
    first_end = waiting["attempts"][0]["ended_at"]
    ended = until(week, "ann", training, "succeeded")
    assert view(week, "bob", urgent)["started_at"] >= first_end, "only when the memory was free"
    assert [one["number"] for one in ended["attempts"]] == [1, 2]
    for number, epoch in ((1, 0), (2, 7)):
        told = week.ask("ann", "GET", f"jobs/{training}/log?attempt={number}").body.decode()
        assert told == f"attempt {number} begins at epoch {epoch}\n"


def test_friday_cards_are_kept_for_a_demo_and_open_again_by_themselves(week):
    """Step 6: what would reach into the window waits, what is over before it starts."""
    work_of_others(week, "cleo", "eve")
    minutes = 30
    begins = time.strftime("%Y-%m-%d %H:%M", time.gmtime(time.time() + minutes * 60))
    asked = {"gpus": 2, "zone": "UTC", "from": begins, "for": "4h", "cause": "demo"}
    assert week.ask("root2", "POST", "reservations", asked).status == 201
    long = week.submit("ann", "true", gpus=1, vram="1G", time_limit="2h")
    short = week.submit("new", "true", gpus=1, vram="1G", time_limit="5m")
    until(week, "new", short, "succeeded")
    assert "reservation" in view(week, "ann", long)["waiting"]
    for user in ("ann", "new"):
        kept = [one["cause"] for card in cards(week, user) for one in card["reservations"]]
        assert kept == ["demo", "demo"], "on two of the four"
    (made,) = week.ask("new", "GET", "reservations").json["items"]
    assert week.ask("root2", "DELETE", f"reservations/{made['id']}").status == 204
    until(week, "ann", long, "succeeded")
    assert week.ask("root2", "POST", "reservations", {"gpus": 2, "zone": "UTC", "for": "2s"}).status == 201
    after = week.submit("ann", "true", gpus=1, vram="1G")
    assert view(week, "ann", after)["phase"] == "queued"
    until(week, "ann", after, "succeeded")
    assert week.ask("new", "GET", "reservations").json["items"] == []


def test_sunday_they_look_at_the_week(week):
    """Step 8: for each of them the hours, the waits, the failures, and for how much of it the cards did nothing."""
    loads = Loads(week)
    for user, busy in (("ann", 0.0), ("bob", 80.0)):
        loads.pct = busy
        job = week.submit(user, "sleep", "1", gpus=1, vram="20G")
        until(week, user, job, "succeeded")
    loads.pct = None
    shares = {row["user"]: row["idle_share"] for row in week.ask("root2", "GET", "admin/report").json["items"]}
    assert shares == {"ann": 1.0, "bob": 0.0}
    for user, argv in (("ann", ("sleep", "0.5")), ("ann", ("false",)), ("bob", ("true",))):
        job = week.submit(user, *argv, gpus=1, vram="20G")
        until(week, user, job, "succeeded", "failed")
    rows = {row["user"]: row for row in week.ask("root2", "GET", "admin/report").json["items"]}
    assert (rows["ann"]["jobs"], rows["ann"]["succeeded"], rows["ann"]["failed"]) == (3, 2, 1)
    assert rows["bob"]["jobs"] == 2
    assert rows["ann"]["gpu_hours"] > 0
    assert all(row["mean_wait_s"] is not None for row in rows.values())
