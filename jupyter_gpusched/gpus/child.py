"""The sampler's process as the host holds it: asks, takes in answers, and can be replaced at any time.

Event-driven inside the host's loop, by two pipes. Waits for nothing beyond what it is told, and
never for the process to end: one that is stuck in the driver cannot even be killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .causes import BROKE_OFF, Trouble

LONGEST_LINE = 2**24
"""Bytes of one answer: a card with more processes than anybody has."""

_CHUNK = 2**16


class Sampler:
    """One process of ``gpus.sampler``. Times are those of ``time.monotonic``. Raises ``OSError`` if it cannot start.

    cards   how many the driver counts; None until it has answered.
    failed  why the process cannot go on.
    latest  the last answer of each card.
    """

    def __init__(self) -> None:
        self.started_at = time.monotonic()
        self.cards: int | None = None
        self.failed: Trouble | None = None
        self.latest: dict[int, dict[str, Any]] = {}
        self._number = 0
        self._waiting_since: dict[int, float] = {}
        self._unread = b""
        self._heard = asyncio.Event()
        self._process = _spawn()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        os.set_blocking(self._to.fileno(), False)
        os.set_blocking(self._from.fileno(), False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._from, self._hear)

    def ask(self) -> None:
        """Ask every card for a new sample; a card that still owes one owes it since it was first asked."""
        self._number += 1
        now = time.monotonic()
        for card in range(self.cards or 0):
            self._waiting_since.setdefault(card, now)
        with suppress(OSError):  # the end of its output will say that it is gone; a full pipe, that it is stuck
            os.write(self._to.fileno(), b"%d\n" % self._number)

    def owes_for(self, card: int) -> float:
        """Seconds for which a card has not answered; 0 when it owes nothing."""
        since = self._waiting_since.get(card)
        return 0.0 if since is None else time.monotonic() - since

    def owing(self) -> set[int]:
        return set(self._waiting_since)

    async def wait(self, done: Callable[[], bool], at_most_s: float) -> None:
        """Wait until the answers make ``done()`` true, the process fails, or the time is over."""
        until = time.monotonic() + at_most_s
        while not done() and self.failed is None and (left := until - time.monotonic()) > 0:
            self._heard.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._heard.wait(), left)

    def kill(self) -> None:
        """Let go of the process at once; ``gone`` says later whether it has really ended."""
        self.failed = self.failed or BROKE_OFF
        if not self._from.closed:
            self._loop.remove_reader(self._from)
            self._from.close()
            self._to.close()
        self._process.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def gone(self) -> bool:
        return self._process.poll() is not None

    async def ended(self, at_most_s: float) -> None:
        """Wait for a killed process to be gone. One that cannot die is left behind without a warning."""
        until = time.monotonic() + at_most_s
        while not self.gone and time.monotonic() < until:  # noqa: ASYNC110  at the end of a host, for a few ms
            await asyncio.sleep(0.005)
        if not self.gone:
            self._process.returncode = -9

    def _hear(self) -> None:
        try:
            text = os.read(self._from.fileno(), _CHUNK)
            *lines, self._unread = (self._unread + text).split(b"\n")
            for line in lines:
                self._take(json.loads(line))
            if len(self._unread) > LONGEST_LINE:
                raise ValueError("a line without an end")
        except BlockingIOError:
            return
        except (ValueError, KeyError, TypeError) as error:
            self.failed = Trouble("ODD_ANSWER", f"the reading process said something odd ({error})")
        else:
            self.failed = self.failed or (None if text else BROKE_OFF)
        if self.failed is not None:
            self._loop.remove_reader(self._from)
        self._heard.set()

    def _take(self, line: dict[str, Any]) -> None:
        if "card" in line:
            self.latest[line["card"]] = line
            if line["number"] == self._number:
                self._waiting_since.pop(line["card"], None)
            else:  # it has answered an earlier request, so it is not stuck
                self._waiting_since[line["card"]] = time.monotonic()
        elif "cards" in line:
            self.cards = int(line["cards"])
            self._waiting_since = dict.fromkeys(range(self.cards), time.monotonic())
        else:
            self.failed = Trouble(**line["failed"])


def _spawn() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "jupyter_gpusched.gpus.sampler"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",  # a user's folder may hold files that are named like modules
        start_new_session=True,  # Ctrl-C at the host's terminal is the host's
        bufsize=0,
    )
