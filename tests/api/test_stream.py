"""The WebSocket of the server extension: who may open it, what it brings, and what it bears."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from http import HTTPStatus

import pytest
from pytest_jupyter.jupyter_server import *  # noqa: F403  (its fixtures, for this module alone: see conftest.py)
from tornado.httpclient import HTTPClientError
from waiting import DEADLINE_S, wait_for

from jupyter_gpusched.hosts import socket as stream
from jupyter_gpusched.places import read_host_record, state_folder

PATH = ("gpusched", "api", "v1", "stream")


@pytest.fixture(autouse=True)
def simulated(own_environment, monkeypatch):
    monkeypatch.setenv("GPUSCHED_SIMULATE", "2x24564M")


@pytest.fixture
def jp_server_config():
    return {
        "ServerApp": {"jpserver_extensions": {"jupyter_gpusched": True}},
        "IdentityProvider": {"cookie_name": "login"},
    }


async def frame(tab):
    text = await asyncio.wait_for(tab.read_message(), DEADLINE_S)
    assert text is not None, "the server closed the stream"
    return json.loads(text)


async def until(tab, wanted):
    """All frames up to the first that is wanted, which comes last."""
    seen = []
    while True:
        seen.append(await frame(tab))
        if wanted(seen[-1]):
            return seen


def of_type(kind):
    return lambda frame: frame["type"] == kind


def ended(job_id):
    return lambda frame: (
        frame["type"] == "job" and frame["job"]["id"] == job_id and frame["job"]["phase"] == "succeeded"
    )


async def in_thread(call, *args):
    return await asyncio.get_running_loop().run_in_executor(None, call, *args)


def wait_for_pid(pid):
    wait_for(lambda: (record := read_host_record(state_folder())) and record.pid == pid, "the host does not change")


async def test_a_tab_gets_a_snapshot_first_and_then_every_event_once(host, client, command, jp_ws_fetch):
    tab = await jp_ws_fetch(*PATH)
    snapshot = (await until(tab, of_type("snapshot")))[-1]
    assert snapshot["connected"]
    assert len(snapshot["gpus"]) == 2
    assert snapshot["jobs"] == []
    job_id = client.submit(command("true"))
    frames = await until(tab, ended(job_id))
    jobs = [seen for seen in frames if seen["type"] == "job"]
    assert jobs[0]["job"]["phase"] == "queued"
    assert [seen["seq"] for seen in jobs] == sorted({seen["seq"] for seen in jobs})


async def test_a_tab_that_comes_later_is_shown_what_is_true_then(host, client, command, jp_ws_fetch):
    first = await jp_ws_fetch(*PATH)
    job_id = client.submit(command("true"))
    await until(first, ended(job_id))
    second = await jp_ws_fetch(*PATH)
    snapshot = await frame(second)
    assert snapshot["type"] == "snapshot"
    assert [(job["id"], job["phase"]) for job in snapshot["jobs"]] == [(job_id, "succeeded")]


async def test_a_tab_that_can_unpack_is_sent_packed_frames(host, jp_ws_fetch):
    """Browsers all can: the snapshot of thousands of jobs has megabytes."""
    tab = await jp_ws_fetch(*PATH, compression_options={})
    assert "permessage-deflate" in tab.headers["Sec-WebSocket-Extensions"]
    snapshot = (await until(tab, of_type("snapshot")))[-1]
    assert len(snapshot["gpus"]) == 2


async def test_the_host_is_read_once_for_all_tabs_and_not_at_all_without_any(host, jp_ws_fetch, monkeypatch):
    opened = []
    answer = stream.answer

    def counted(state, target):
        opened.append(target)
        return answer(state, target)

    monkeypatch.setattr(stream, "answer", counted)
    tabs = [await jp_ws_fetch(*PATH) for _ in range(5)]
    for tab in tabs:
        await until(tab, of_type("snapshot"))
    assert opened == ["events"]
    before = set(asyncio.all_tasks())
    for tab in tabs:
        tab.close()
    readers = [task for task in before if "Feed" in repr(task.get_coro())]
    assert len(readers) == 2
    _, left = await asyncio.wait(readers, timeout=DEADLINE_S)
    assert not left


async def test_a_takeover_loses_no_event_and_repeats_none(host, client, command, jp_ws_fetch, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    tab = await jp_ws_fetch(*PATH)
    seen = await until(tab, of_type("snapshot"))  # a job submitted before it would begin in it
    job_id = client.submit(command("cat", str(gate)))
    seen += await until(tab, lambda f: f["type"] == "job" and f["job"]["phase"] == "running")
    await in_thread(host.kill)
    seen += await until(tab, lambda f: f["type"] == "status" and not f["connected"])
    await in_thread(wait_for_pid, os.getpid())
    seen += await until(tab, lambda f: f["type"] == "status" and f["connected"])
    gate.write_text("")
    seen += await until(tab, ended(job_id))
    sequence = [f["seq"] for f in seen if f["type"] == "job"]
    assert sequence == sorted(set(sequence))
    history = [f["job"]["phase"] for f in seen if f["type"] == "job"]
    assert history[0] == "queued"
    assert len([f for f in seen if f["type"] == "snapshot"]) == 1


async def test_what_a_waiting_job_waits_for_is_kept_true_without_events_of_its_own(
    host, client, command, jp_ws_fetch, tmp_path
):
    gates = [tmp_path / "a", tmp_path / "b"]
    for gate in gates:
        os.mkfifo(gate)
    tab = await jp_ws_fetch(*PATH)
    for gate in gates:
        client.submit(command("cat", str(gate), vram="20G"))
    waiting = client.submit(command("true", gpus=2, vram="20G"))

    def sentence(f):
        return next((f["waiting"][text] for job_id, _, _, text, _ in f["places"] if job_id == waiting), None)

    def says(words):
        return lambda f: f["type"] == "queue" and words(sentence(f))

    before = sentence((await until(tab, says(bool)))[-1])
    gates[0].write_text("")
    await until(tab, says(lambda now: now != before))
    gates[1].write_text("")
    await until(tab, ended(waiting))


@pytest.mark.parametrize(("overtaken", "asked"), [(0, 1), (1, 2), (100, 3)])
async def test_a_queue_that_an_event_has_overtaken_is_asked_for_again_but_not_for_ever(
    tmp_path, monkeypatch, overtaken, asked
):
    feed, answers = stream.Feed(tmp_path), []

    async def queued():
        answers.append(f"answer {len(answers)}")
        if len(answers) <= overtaken:
            feed._picture.take({"type": "job", "seq": len(answers), "job": {"id": "a", "phase": "queued"}})
        return answers[-1:]

    monkeypatch.setattr(feed, "_queued", queued)
    assert await feed._fresh_queue() == [f"answer {asked - 1}"]
    assert len(answers) == asked


async def test_a_tab_that_comes_back_gets_what_it_missed_and_nothing_twice(host, client, command, jp_ws_fetch):
    stays = await jp_ws_fetch(*PATH)
    first = client.submit(command("true"))
    seen = await until(stays, ended(first))
    second = client.submit(command("true"))
    await until(stays, ended(second))
    back = await jp_ws_fetch(*PATH, params={"after": str(seen[-1]["seq"])})
    missed = await until(back, of_type("status"))
    assert not [f for f in missed if f["type"] == "snapshot"]
    told = [f["seq"] for f in missed if f["type"] == "job"]
    assert told == sorted(set(told))
    assert {f["job"]["id"] for f in missed if f["type"] == "job"} >= {second}
    assert told[0] > seen[-1]["seq"]


@pytest.mark.parametrize("after", ["0", "999999999999999999", "x"])
async def test_a_tab_that_names_an_event_nobody_remembers_gets_a_snapshot(host, client, command, jp_ws_fetch, after):
    client.wait(client.submit(command("true")))
    first = await jp_ws_fetch(*PATH)
    await until(first, of_type("snapshot"))
    back = await jp_ws_fetch(*PATH, params={"after": after})
    await until(back, of_type("snapshot"))


async def test_a_tab_to_which_nothing_new_is_sent_hears_that_the_server_is_there(host, jp_ws_fetch, monkeypatch):
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.05)
    tab = await jp_ws_fetch(*PATH)
    await until(tab, of_type("snapshot"))
    await until(tab, of_type("status"))


def test_texts_on_which_many_wait_are_sent_once():
    views = [
        {
            "id": f"a{n}",
            "position": n,
            "estimated_start": None,
            "estimated_start_range": None,
            "waiting": f"card {n % 2}",
        }
        for n in range(4)
    ]
    told = json.loads(stream._queue_frame(views))
    assert told["waiting"] == ["card 0", "card 1"]
    assert [place[3] for place in told["places"]] == [0, 1, 0, 1]


def test_alerts_are_part_of_the_picture_until_they_are_resolved():
    picture = stream.Picture()
    alert = {"id": "a1", "kind": "driver", "message": "The driver does not answer."}
    picture.take({"seq": 1, "type": "alert", "event": "raised", "alert": alert})
    assert json.loads(picture.snapshot())["alerts"] == [alert]
    picture.take({"seq": 2, "type": "alert", "event": "resolved", "alert": alert})
    assert json.loads(picture.snapshot())["alerts"] == []


async def test_without_login_there_is_no_stream(jp_ws_fetch):
    with pytest.raises(HTTPClientError) as refused:
        await jp_ws_fetch(*PATH, headers={"Authorization": "token wrong"})
    assert refused.value.code == HTTPStatus.FORBIDDEN


@pytest.mark.parametrize("origin", ["https://elsewhere.example", None])
async def test_a_browsers_cookie_opens_the_stream_only_from_our_own_site(jp_fetch, jp_ws_fetch, origin):
    logged_in = await jp_fetch("api", "me")
    cookie = next(c for c in logged_in.headers.get_list("Set-Cookie") if c.startswith("login=")).partition(";")[0]
    by_cookie = {"Authorization": "", "Cookie": cookie} | ({"Origin": origin} if origin else {})
    if origin is None:
        await until(await jp_ws_fetch(*PATH, headers=by_cookie), of_type("snapshot"))
        return
    with pytest.raises(HTTPClientError) as refused:
        await jp_ws_fetch(*PATH, headers=by_cookie)
    assert refused.value.code == HTTPStatus.FORBIDDEN


async def test_in_a_server_that_the_hub_shares_only_its_owner_may_look(jp_ws_fetch, monkeypatch):
    monkeypatch.setenv("JUPYTERHUB_USER", "somebody-else")
    with pytest.raises(HTTPClientError) as refused:
        await jp_ws_fetch(*PATH)
    assert refused.value.code == HTTPStatus.FORBIDDEN


class SlowTab:
    """A tab whose network takes nothing until it is told to run."""

    def __init__(self, picture):
        self.received = []
        self.enough = asyncio.Event()
        self.pending = stream.Tab(self._send, picture)

    async def _send(self, text):
        self.received.append(text)
        if len(self.received) == self.wanted:
            self.enough.set()

    async def run_until(self, count):
        self.wanted = count
        task = asyncio.create_task(self.pending.run())
        await asyncio.wait_for(self.enough.wait(), DEADLINE_S)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_slow_tab_gets_the_newest_gpu_frame_and_no_backlog():
    tab = SlowTab(stream.Picture(seq=0))
    for number in range(100):
        tab.pending.put("gpus", f"gpus {number}")
    tab.pending.put("job", "job 1")
    tab.pending.put("job", "job 2")
    await tab.run_until(3)
    assert tab.received == ["job 1", "job 2", "gpus 99"]


async def test_a_tab_that_fell_far_behind_gets_a_snapshot_instead():
    picture = stream.Picture(seq=7)
    tab = SlowTab(picture)
    for number in range(stream.MOST_PENDING + 1):
        tab.pending.put("job", f"job {number}")
    await tab.run_until(1)
    empty = {"jobs": [], "gpus": [], "alerts": [], "cause": None}
    assert json.loads(tab.received[0]) == {"seq": 7, "type": "snapshot", **empty, "connected": False}


async def test_a_slow_tab_gets_the_newest_output_cursor_of_each_job():
    tab = SlowTab(stream.Picture(seq=0))
    for number in range(50):
        tab.pending.put("outputs aaaa", f"a {number}")
        tab.pending.put("outputs bbbb", f"b {number}")
    await tab.run_until(2)
    assert tab.received == ["a 49", "b 49"]


def test_a_deleted_job_leaves_the_picture():
    picture = stream.Picture()
    picture.take({"type": "snapshot", "seq": 1, "jobs": [{"id": "aaaa", "phase": "succeeded"}], "gpus": []})
    picture.take({"type": "job", "seq": 2, "event": "deleted", "job": {"id": "aaaa", "phase": "succeeded"}})
    assert picture.jobs == {}
