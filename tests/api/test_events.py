"""The stream of events: nothing missing, nothing twice, no backlog of what is only worth its newest state."""

from __future__ import annotations

import asyncio
import json
import random
import select
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rest import Rest
from tornado.iostream import IOStream
from waiting import wait_for

from jupyter_gpusched.events import EventsHandler


@pytest.fixture
def rest(host):
    rest = Rest(host.client().health()["socket"])
    yield rest
    rest.close()


def connections(path: str) -> int:
    """Open connections at the host's end of its socket."""
    lines = Path("/proc/net/unix").read_text().splitlines()
    return sum(line.endswith(f" {path}") and line.split()[5] == "03" for line in lines)


def job_frames(events, *, until):
    """Job frames up to and with the one that ``until`` accepts."""
    for frame in events:
        if frame["type"] == "job":
            yield frame
            if until(frame):
                return


def test_a_snapshot_comes_first_and_then_what_happens(rest, client, command):
    before = client.submit(command("sleep", "60"))
    with rest.events() as events:
        stream = iter(events)
        first = next(stream)
        assert first["type"] == "snapshot"
        assert [job["id"] for job in first["jobs"]] == [before]
        assert len(first["gpus"]) == 2
        job_id = client.submit(command("true"))
        seen = list(job_frames(stream, until=lambda f: f["job"]["id"] == job_id and f["job"]["phase"] == "succeeded"))
    told = [frame["event"] for frame in seen if frame["job"]["id"] == job_id]
    # The cards are looked at when they are, also between two of these; what ends at once is not seen to start.
    assert [event for event in told if event not in ("measured", "started")][:3] == ["submitted", "placed", "exited"]
    seqs = [frame["seq"] for frame in seen]
    assert seqs == sorted(set(seqs))
    assert seqs[0] > first["seq"]


def test_a_reader_that_is_cut_off_at_random_misses_nothing_and_gets_nothing_twice(rest, client, command):
    """Cut in the middle of lines, while jobs come and go; compared with the whole journal at the end."""
    chance = random.Random(7)
    with rest.events() as events:
        after = next(iter(events))["seq"]
    begun, got, waiting, cuts = after, [], set(), 0
    deadline = time.monotonic() + 60
    while len(got) < 60 or waiting:
        assert time.monotonic() < deadline, "the stream stands still"
        if cuts < 8:
            waiting.update(client.submit_many([command("true", gpus=0, vram=None) for _ in range(3)]))
        raw, budget = b"", chance.randint(1, 6000)
        with rest.events(after=after) as events:
            events.connection.sock.settimeout(1.5)
            try:
                while len(raw) < budget:
                    raw += events.response.read1(chance.randint(1, 700))
            except TimeoutError:
                pass
        cuts += 1
        for line in raw.split(b"\n")[:-1]:  # the last one was torn
            frame = json.loads(line) if line.strip() else {"type": None}
            if frame["type"] == "job":
                got.append(frame)
                after = frame["seq"]
                if frame["job"]["ended_at"]:
                    waiting.discard(frame["job"]["id"])
    assert cuts > 5
    with rest.events(after=begun) as events:
        whole = list(job_frames(events, until=lambda frame: frame["seq"] == after))
    assert [frame["seq"] for frame in got] == [frame["seq"] for frame in whole]


def test_after_zero_is_the_whole_journal(rest, client, command):
    job_id = client.submit(command("true"))
    client.wait(job_id)
    with rest.events(after=0) as events:
        first = next(iter(events))
    assert (first["type"], first["event"], first["job"]["id"]) == ("job", "submitted", job_id)


def test_an_after_that_this_journal_never_gave_is_answered_with_a_snapshot(rest):
    """As when the database was replaced: the reader must forget what it has."""
    with rest.events(after=10**9) as events:
        first = next(iter(events))
    assert first["type"] == "snapshot"
    assert first["seq"] < 10**9


def test_what_a_running_job_writes_is_announced_and_not_sent(rest, client, command, tmp_path):
    script = tmp_path / "job.sh"
    script.write_text("echo hello\nsleep 60\n")
    with rest.events() as events:
        stream = iter(events)
        next(stream)
        job_id = client.submit(command("sh", str(script)))
        frame = next(frame for frame in stream if frame["type"] == "outputs")
    assert set(frame) == {"seq", "type", "job_id", "attempt", "next", "log_size", "progress"}
    assert (frame["job_id"], frame["attempt"], frame["log_size"]) == (job_id, 1, 6)
    items, following, _ = client.outputs(job_id)
    assert following == frame["next"]
    assert items[0]["text"] == "hello\n"


def test_the_cursor_of_a_cell_counts_its_outputs(rest, client, tmp_path):
    source = "import time\nfor n in range(3):\n    display(n)\ntime.sleep(60)"
    spec = {"source": source, "gpus": 0, "cwd": str(tmp_path)}
    with rest.events() as events:
        job_id = client.submit(spec)
        frame = next(f for f in events if f["type"] == "outputs" and f["next"] >= 3)
    assert frame["next"] == client.outputs(job_id)[1]
    with rest.events(after=frame["seq"]) as again:
        assert next(f for f in again if f["type"] == "outputs")["next"] == frame["next"]


def test_a_slow_reader_finds_the_newest_picture_of_the_cards_and_no_backlog(start_host):
    host = start_host("2x24G", "--GpuSched.sample_interval_s=0.1")
    with Rest(host.client().health()["socket"]).events() as events:
        assert next(iter(events))["type"] == "snapshot"
        wait_for(lambda: select.select([events.connection.sock], [], [], 0)[0], "no frame comes")
        begun = time.time()
        wait_for(lambda: time.time() > begun + 2, "time stands still")  # twenty samples pass unread
        waited = events.connection.sock.recv(2**20, socket.MSG_PEEK)
        assert waited.count(b'"type":"gpus"') <= 2
        newest = next(f for f in events if f["type"] == "gpus" and f["gpus"][0]["sampled_at"] > begun + 1.5)
    assert newest["gpus"][0]["sampled_at"] - begun < 10


def test_a_reader_that_leaves_is_forgotten_at_once(rest, client):
    path = client.health()["socket"]
    before = connections(path)
    streams = [rest.events() for _ in range(3)]
    assert connections(path) == before + 3
    for stream in streams:
        stream.close()
    wait_for(lambda: connections(path) == before, "the host holds on to readers that have left")


def test_an_auto_started_host_ends_although_a_reader_had_been_there(start_host):
    daemon = start_host("1x8G", "--auto", environ={"GPUSCHED_IDLE_EXIT": "1"})
    with Rest(daemon.client().health()["socket"]).events() as events:
        next(iter(events))
    assert daemon.process.wait(timeout=30) == 0


def test_a_reader_that_left_this_very_moment_has_nothing_unread():
    """Its stream is closed before the handler is told: the look at its socket must bear that."""

    async def look() -> bool:
        ours, theirs = socket.socketpair()
        with theirs:
            stream = IOStream(ours)
            handler = EventsHandler.__new__(EventsHandler)
            handler.request = SimpleNamespace(connection=SimpleNamespace(stream=stream))
            stream.close()
            return handler._unread()

    assert not asyncio.run(look())
