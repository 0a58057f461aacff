"""Many who look and many who submit at once: everybody is served, the cards are asked once for all, nothing piles up.

The full course, with figures, is ``tests/bench/hub_load.py``; here nothing depends on how fast the machine is.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from itertools import pairwise

import pytest
from many_users import lab

from jupyter_gpusched.events import EventsHandler
from jupyter_gpusched.wire import PREFIX

USERS, READERS, STALLED = 20, 15, 4
INTERVAL_S, LOOKS = 0.1, 10
PATIENCE_S = 100.0
FRAME_BYTES = 64 * 1024
"""More than a snapshot of these jobs and cards takes."""


@pytest.fixture
def handlers(monkeypatch):
    """All streams that the host has opened."""
    opened = []
    initialize = EventsHandler.initialize
    monkeypatch.setattr(EventsHandler, "initialize", lambda self, desk: opened.append(self) or initialize(self, desk))
    return opened


@pytest.fixture
def queue(own_environment, tmp_path, handlers):
    with lab(own_environment, tmp_path, sample_interval_s=INTERVAL_S, cpus=64) as running:
        yield running


@pytest.fixture
def looks(queue):
    """When the cards were looked at; the moments at which the host asked for it."""
    asked, provider = [], queue.desk.engine.gpus
    look = provider.sample

    async def sample(grants, *, now):
        asked.append(time.monotonic())
        return await look(grants, now=now)

    provider.sample = sample
    return asked


def request(user):
    return f"GET {PREFIX}/events HTTP/1.0\r\nX-User: {user}\r\n\r\n".encode()


class Reader:
    """Follows the events: what it has seen of its owner's jobs, and of how many looks at the cards."""

    def __init__(self, queue, user):
        self.queue, self.user = queue, user
        self.running, self.looks = set(), set()
        self.changed = asyncio.Event()

    async def run(self):
        stream, writer = await asyncio.open_unix_connection(str(self.queue.host.socket), limit=2**20)
        try:
            writer.write(request(self.user))
            while line := await stream.readline():
                if line.startswith(b"{"):
                    self.take(json.loads(line))
        finally:
            writer.close()

    def take(self, frame):
        for job in frame.get("jobs") or [frame[key] for key in ("job",) if key in frame]:
            assert job["user"] == self.user, "nothing of anybody else's"
            if job["phase"] == "running":
                self.running.add(job["id"])
        self.looks.update(card["sampled_at"] for card in (frame.get("gpus") or [])[:1])
        self.changed.set()

    async def until(self, is_so):
        async def wait():
            while not is_so():
                self.changed.clear()
                await self.changed.wait()

        await asyncio.wait_for(wait(), PATIENCE_S)


def stalled(queue, user):
    """A program that asks for the events and then takes nothing."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE_S)
    connection.connect(str(queue.host.socket))
    connection.sendall(request(user))
    return connection


async def course(queue, users, readers):
    """Everybody submits at once while all look; then some more looks at the cards, seen by all who look."""
    tasks = [asyncio.create_task(reader.run()) for reader in readers]
    try:
        for reader in readers:
            await reader.until(lambda reader=reader: reader.looks)
        submits = (asyncio.to_thread(queue.submit, user, "sleep", "600", gpus=1, vram="1G") for user in users)
        ids = dict(zip(users, await asyncio.gather(*submits), strict=True))
        for reader in readers:
            await reader.until(lambda reader=reader: ids[reader.user] in reader.running)
            reader.looks.clear()
        for reader in readers:
            await reader.until(lambda reader=reader: len(reader.looks) >= LOOKS)
        return ids
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_a_course_that_looks_and_submits_at_once(queue, looks, handlers):
    users = [f"student{number:02}" for number in range(USERS)]
    asleep = {user: stalled(queue, user) for user in users[:STALLED]}
    try:
        panels = [Reader(queue, user) for user in users]
        more = [Reader(queue, users[number % USERS]) for number in range(STALLED, READERS)]
        ids = asyncio.run(course(queue, users, [*panels, *more]))
        at = time.time()

        store = queue.desk.engine.store
        assert {user: store.job(job).owner for user, job in ids.items()} == {user: user for user in users}
        apart = [later - earlier for earlier, later in pairwise(looks)]
        assert min(apart) >= 0.9 * INTERVAL_S, "the cards are asked once per interval, whoever looks"
        assert len(looks) > LOOKS
        assert len(handlers) == USERS + READERS
        kept = [one.request.connection.stream._write_buffer for one in handlers]
        assert max(len(one) for one in kept if one is not None) <= FRAME_BYTES, "what nobody takes is not kept"

        for user, connection in asleep.items():
            check_that_nothing_piled_up(connection, ids[user], at)
    finally:
        for connection in asleep.values():
            connection.close()


def check_that_nothing_piled_up(connection, job, at):
    """Whoever takes something again has every event of the own job, then the newest of the cards: no old looks."""
    seen, old = [], 0
    with connection.makefile("rb") as lines:
        for line in lines:
            if not line.startswith(b"{"):
                continue
            frame = json.loads(line)
            seen += [(frame["job"]["id"], frame["job"]["phase"])] if frame["type"] == "job" else []
            if frame["type"] == "gpus":
                if frame["gpus"][0]["sampled_at"] > at:
                    break
                old += 1
    assert old <= 1, f"{old} looks at the cards were kept for a reader that took none"
    assert [one for one in seen if one == (job, "running")], seen
