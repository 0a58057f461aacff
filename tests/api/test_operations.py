"""Quarantine, drain and alerts through a real host: who did what is in the journal and outlives the host."""

from __future__ import annotations

import json
import sys

import pytest
from rest import Rest
from waiting import wait_for

from jupyter_gpusched.places import read_host_record, state_folder
from jupyter_gpusched.store import SqliteStore


@pytest.fixture
def rest(host):
    rest = Rest(read_host_record(state_folder()).socket)
    yield rest
    rest.close()


def journal(*kinds):
    store = SqliteStore(state_folder() / "gpusched.sqlite")
    try:
        return [event for event in store.events(after=0, limit=1000) if event.kind in kinds]
    finally:
        store.close()


def card(client, index=0):
    return next(gpu for gpu in client.gpus() if gpu["index"] == index)


def test_a_quarantined_card_gets_no_jobs_and_those_on_it_go_on(client, command):
    running = client.submit(command("sleep", "600", vram="20G"))
    view = wait_for(lambda: (v := client.job(running))["phase"] == "running" and v, "it does not start")
    index = view["gpus"][0]["index"]
    shown = client.quarantine(index, "a fan is loud.")
    assert (shown["health"]["status"], shown["health"]["by"]) == ("quarantined", view["user"])
    assert client.job(running)["phase"] == "running"
    done = client.wait(client.submit(command("true", vram="1G")))
    assert done["gpus"][0]["index"] != index or done["phase"] != "succeeded"
    assert done["attempts"][0]["gpus"][0]["index"] != index
    waits = client.submit(command("true", vram="1G", preferred_gpus=[str(index)], gpus=2))
    words = wait_for(lambda: client.job(waits)["waiting"], "no reason")
    assert f"GPU {index} is quarantined (a fan is loud, by {view['user']})" in words
    (alert,) = client.alerts()
    assert (alert["kind"], alert["gpu_index"], alert["severity"]) == ("quarantined", index, "warning")
    client.cancel(running, grace="0s")
    client.release(index, "the fan was cleaned")
    assert client.wait(waits)["phase"] == "succeeded"
    assert client.alerts() == []
    (quarantined,), (returned,) = journal("quarantined"), journal("returned")
    assert (quarantined.detail["by"], quarantined.detail["cause"]) == (view["user"], "a fan is loud")
    assert (returned.detail["by"], returned.detail["cause"]) == (view["user"], "the fan was cleaned")
    assert [event.detail["alert"]["kind"] for event in journal("alert_raised", "alert_resolved")] == ["quarantined"] * 2


def test_a_quarantine_and_a_drain_outlive_their_host(start_host, command):
    first = start_host()
    client = first.client()
    client.quarantine(1, "burnt")
    client.drain("new disks")
    first.kill()
    client = start_host().client()
    assert card(client, 1)["health"]["status"] == "quarantined"
    health = client.health()
    assert (health["drained"]["cause"], health["status"]) == ("new disks", "degraded")
    assert len(journal("took_over")) == 2
    assert [alert["kind"] for alert in client.alerts()] == ["quarantined", "drained"]
    assert len(journal("alert_raised")) == 2, "they are the same episodes"


def test_a_drained_machine_takes_jobs_and_starts_none_until_it_is_resumed(client, command):
    running = client.submit(command("sleep", "600", vram="1G"))
    wait_for(lambda: client.job(running)["phase"] == "running", "it does not start")
    client.drain("new disks")
    client.drain("another cause")  # it is drained already: the first cause stands
    assert client.health()["causes"] == [f"{client.health()['drained']['by']} has drained this machine: new disks."]
    queued = client.submit(command("true", vram="1G"))
    assert "has drained this machine: new disks; nothing starts" in client.job(queued)["waiting"]
    assert client.job(running)["phase"] == "running"
    assert client.resume()["drained"] is None
    assert client.wait(queued)["phase"] == "succeeded"
    assert [event.kind for event in journal("drained", "resumed")] == ["drained", "resumed"]
    client.cancel(running, grace="0s")


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("admin/quarantine", {"gpu": 7}, 422, "there is no GPU 7"),
        ("admin/quarantine", {"gpu": "GPU-none"}, 422, "there is no GPU"),
        ("admin/quarantine", {}, 422, "missing required field"),
        ("admin/quarantine", {"gpu": 0, "why": "x"}, 422, "unknown field"),
        ("admin/quarantine", {"gpu": 0, "cause": "x" * 501}, 422, "more than 500 characters"),
        ("admin/quarantine", {"gpu": 0, "release": True}, 409, "is not quarantined"),
        ("admin/drain", {"cause": 3}, 422, "cannot be understood"),
        ("admin/drain", [], 422, "cannot be understood"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_to_do(rest, path, body, status, words):
    refused = rest("POST", path, body)
    assert refused.status == status
    assert words in refused.error["message"]
    assert refused.error["hint"]


def test_alerts_are_frames_of_the_stream_and_part_of_a_snapshot(client, rest):
    uuid = card(client)["uuid"]
    with rest.events() as events:
        snapshot = next(iter(events))
        assert snapshot["alerts"] == []
        client.quarantine(uuid)
        raised = next(frame for frame in events if frame["type"] == "alert")
        client.release(uuid)
        resolved = next(frame for frame in events if frame["type"] == "alert")
    assert (raised["event"], resolved["event"]) == ("raised", "resolved")
    assert raised["alert"]["id"] == resolved["alert"]["id"]
    assert resolved["seq"] > raised["seq"] > snapshot["seq"]
    client.quarantine(uuid)
    assert [alert["gpu_uuid"] for alert in rest("GET", "alerts").json["items"]] == [uuid]
    with rest.events() as events:
        assert [alert["gpu_uuid"] for alert in next(iter(events))["alerts"]] == [uuid]
    with rest.events(after=raised["seq"] - 1) as events:
        assert next(frame for frame in events if frame["type"] == "alert") == raised


def test_a_cursor_older_than_the_journal_gets_a_snapshot_first(start_host, command):
    first = start_host()
    client = first.client()
    done = client.wait(client.submit(command("true", vram="1G")))
    wait_for(lambda: not client.gpus()[0]["holders"], "its memory is not let go")
    first.kill()
    live = start_host(None, "--GpuSched.events_kept=0", "--simulate=2x24564M").client()
    job_id = live.submit(command("sleep", "600", vram="1G"))
    rest = Rest(read_host_record(state_folder()).socket)
    wait_for(lambda: not [event for event in journal("submitted") if event.job.id == done["id"]], "it is not pruned")
    with rest.events(after=1) as events:
        frame = next(iter(events))
    rest.close()
    assert frame["type"] == "snapshot"
    assert [job["id"] for job in frame["jobs"]] == [job_id]
    assert live.job(done["id"])["phase"] == "succeeded", "its record stays"
    live.cancel(job_id, grace="0s")


CHECK = """
import pathlib, os, sys
seen = pathlib.Path(sys.argv[1])
seen.write_text(sys.argv[2] + " " + os.environ["CUDA_VISIBLE_DEVICES"])
sys.exit(0 if seen.with_name("well").exists() else "the card is still hot")
"""


def test_a_card_that_died_under_jobs_returns_when_the_configured_check_passes(start_host, command, tmp_path):
    script, seen = tmp_path / "check.py", tmp_path / "seen"
    script.write_text(CHECK)
    settings = [
        f"--GpuSched.quarantine_check={sys.executable} {script} {seen}",
        "--GpuSched.quarantine_check_interval_s=0.2",
    ]
    client = start_host("1x24564M", *settings).client()
    for _ in range(3):
        assert client.wait(client.submit(command("sh", "-c", "kill -SEGV $$", vram="1G")))["signal"] == 11
    ill = wait_for(lambda: (gpu := card(client))["health"]["status"] == "quarantined" and gpu, "it is still used")
    assert ill["health"]["by"] == "gpusched"
    assert "3 attempts in a row died on it within 30s" in ill["health"]["cause"]
    queued = client.submit(command("true", vram="1G"))
    wait_for(seen.exists, "the check is not run")
    assert wait_for(seen.read_text, "it says nothing") == f"{ill['uuid']} {ill['uuid']}"
    assert client.job(queued)["phase"] == "queued"
    (tmp_path / "well").touch()
    assert client.wait(queued)["phase"] == "succeeded"
    (returned,) = journal("returned")
    assert (returned.detail["by"], returned.detail["gpu"]) == ("the check", ill["uuid"])
    assert "died" in json.dumps(returned.detail)


def test_three_jobs_with_a_mistake_in_them_take_no_card_away(client, command):
    for _ in range(4):
        assert client.wait(client.submit(command("sh", "-c", "exit 1", vram="1G")))["phase"] == "failed"
    assert {gpu["health"]["status"] for gpu in client.gpus()} == {"ok"}


def test_the_owner_of_a_host_is_its_administrator_and_may_list_everybodys_jobs(client, command, rest):
    job = client.submit(command("true", gpus=0, vram=None))
    assert [view["id"] for view in client.jobs(all_users=True)] == [job]
    assert [view["id"] for view in rest("GET", "jobs?user=somebody").json["items"]] == []
    assert rest("GET", "jobs?all_users=yes").error["field"] == "all_users"


def test_jobs_that_have_ended_are_listed_by_themselves_however_many_wait(rest, client, command):
    ended = client.submit(command("false", gpus=0, vram=None))
    client.wait(ended)
    client.submit(command("sleep", "600"))
    waiting = [client.submit(command("true", vram="24564M", gpus=2)) for _ in range(3)]
    assert [view["id"] for view in rest("GET", "jobs?ended=1&limit=2").json["items"]] == [ended]
    assert len(rest("GET", "jobs?ended=0").json["items"]) == 2 + len(waiting)
    assert rest("GET", "jobs?ended=yes").error["field"] == "ended"
