"""``jupyter gpusched top``: GPUs and queue in the terminal, live, drawn with plain ANSI codes.

Fed by the host's events; asks on its own only for the queue's words on waiting, which change
without an event. Not on a terminal it prints how things stand, once. It never acts on a job.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from .client import Client
from .core.model import GpuSchedError
from .describe import FINAL, alerts_list, gpus_table, job_rows, jobs_table, one_line, table

View = dict[str, Any]

ENDED_SHOWN = 20
REDRAW_S = 0.25
"""The shortest time between two drawings."""

LOOK_S = 1.0
"""At least so often the picture is drawn anew, since times go on."""

STALE_S = 5.0
_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"  # alternate screen, no cursor, no wrapping of long lines
_LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_ORDER = {"running": 0, "stopping": 1, "starting": 2, "queued": 3}


def main(client: Client) -> int:
    """Watch until ``q`` or Ctrl-C. Raises ``GpuSchedError`` when the host stays away."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print(snapshot(client))
        return 0
    with suppress(KeyboardInterrupt):
        _Watch(client, Picture(client.health().get("gpu_cause"))).run()
    return 0


def snapshot(client: Client) -> str:
    """How things stand: cards, and jobs that have not ended."""
    gpus = client.gpus()
    cards = gpus_table(gpus, None if gpus else client.health().get("gpu_cause"))
    live = [view for view in client.jobs() if view["phase"] not in FINAL]
    alerts = alerts_list(client.alerts())
    jobs = jobs_table(_sorted(live)) if live else "No job is waiting or running."
    return "\n\n".join(part for part in (cards, alerts, jobs) if part)


@dataclass
class Picture:
    """What is known: kept up to date by events."""

    gpu_cause: str | None = None
    jobs: dict[str, View] = field(default_factory=dict)
    gpus: list[View] = field(default_factory=list)
    alerts: dict[str, View] = field(default_factory=dict)
    heard_at: float | None = None

    def take(self, frame: View, now: float) -> None:
        self.heard_at = now
        if frame["type"] == "snapshot":
            self.jobs = {job["id"]: job for job in frame["jobs"]}
            self.alerts = {alert["id"]: alert for alert in frame.get("alerts", ())}
        if frame["type"] in ("snapshot", "gpus"):
            self.gpus = frame["gpus"]
        elif frame["type"] == "job":
            self._take_job(frame["job"], deleted=frame["event"] == "deleted")
        elif frame["type"] == "alert":
            self.alerts.pop(frame["alert"]["id"], None)
            if frame["event"] == "raised":
                self.alerts[frame["alert"]["id"]] = frame["alert"]

    def _take_job(self, job: View, *, deleted: bool) -> None:
        self.jobs.pop(job["id"], None)  # the newest comes last
        if not deleted:
            self.jobs[job["id"]] = job
        ended = [known for known, view in self.jobs.items() if view["phase"] in FINAL]
        for known in ended[:-ENDED_SHOWN]:
            del self.jobs[known]

    def take_queue(self, views: list[View]) -> None:
        """Fresh words on waiting; a job that has moved on since keeps its newer view."""
        for view in views:
            if self.jobs.get(view["id"], view)["phase"] == "queued":
                self.jobs[view["id"]] = view

    def waiting(self) -> bool:
        return any(view["phase"] == "queued" for view in self.jobs.values())

    def lines(self, width: int, height: int, now: float) -> list[str]:
        """The picture for a terminal of this size: heading, cards, jobs; what has no room is counted."""
        views = _sorted(list(self.jobs.values()))
        if self.heard_at is None:
            return [self._heading(views, now)[:width]]
        cards = gpus_table(self.gpus, self.gpu_cause, now)
        told = [f"{alert['severity']}: {one_line(alert['message'])}" for alert in self.alerts.values()]
        lines = [self._heading(views, now), "", *cards.splitlines(), "", *told, *([""] if told else [])]
        rows = table(job_rows(views, now)).splitlines() if views else ["No job is waiting or running."]
        room = max(1, height - len(lines))
        if len(rows) > room:
            left_out = len(rows) - room + 1
            rows = [*rows[: room - 1], f"... and {left_out} more; `jupyter gpusched ls` lists all"]
        return [line[:width] for line in [*lines, *rows][:height]]

    def _heading(self, views: list[View], now: float) -> str:
        counts = {phase: sum(view["phase"] == phase for view in views) for phase in ("running", "queued")}
        told = ", ".join(f"{count} {phase}" for phase, count in counts.items())
        silence = None if self.heard_at is None else now - self.heard_at
        if silence is None:
            state = "connecting"
        elif silence > STALE_S and self.gpus:
            state = f"no news for {silence:.0f}s: the host may be restarting"
        else:
            state = time.strftime("%H:%M:%S", time.localtime(now))
        return f"jupyter gpusched top   {told}   {state}   (q leaves)"


def _sorted(views: list[View]) -> list[View]:
    """Running first, then the queue in its order, then what ended last."""

    def order(view: View) -> tuple[int, float, float]:
        if view["phase"] in FINAL:
            return len(_ORDER), -(view["ended_at"] or 0.0), 0.0
        return _ORDER[view["phase"]], view["position"] or 0, view["started_at"] or view["submitted_at"]

    return sorted(views, key=order)


class _Watch:
    """Draws a picture whenever there is news, a key or a new size of the terminal."""

    def __init__(self, client: Client, picture: Picture) -> None:
        self._client = client
        self._picture = picture
        self._lock = threading.Lock()
        self._failure: GpuSchedError | None = None
        self._asked_at = 0.0

    def run(self) -> None:
        with _wakeup() as (woken, wake), _terminal():
            threading.Thread(target=self._listen, args=(wake,), name="gpusched-top", daemon=True).start()
            while self._failure is None:
                self._ask_for_the_queue()
                self._draw()
                time.sleep(REDRAW_S)
                if _left(woken):
                    return
        raise self._failure

    def _listen(self, wake: int) -> None:
        try:
            for frame in self._client.events():
                with self._lock:
                    self._picture.take(frame, time.time())
                _poke(wake)
        except GpuSchedError as error:
            self._failure = error
            _poke(wake)

    def _ask_for_the_queue(self) -> None:
        if self._picture.waiting() and time.monotonic() - self._asked_at > LOOK_S:
            self._asked_at = time.monotonic()
            with suppress(GpuSchedError):  # the events say so when the host is gone
                queued = self._client.jobs(phase="queued", limit=200)
                with self._lock:
                    self._picture.take_queue(queued)

    def _draw(self) -> None:
        size = os.get_terminal_size(sys.stdout.fileno())  # not $COLUMNS, which would never change
        with self._lock:
            lines = self._picture.lines(size.columns, size.lines, time.time())
        drawn = "\n".join(f"{line}\x1b[K" for line in lines)
        sys.stdout.write(f"\x1b[H{drawn}\x1b[J")
        sys.stdout.flush()


@contextmanager
def _wakeup() -> Iterator[tuple[int, int]]:
    """A pipe that news and signals write to: its reading and its writing end."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signals = (signal.SIGWINCH, signal.SIGTERM, signal.SIGINT)  # the last may be ignored by whoever started us
    before = {number: signal.getsignal(number) for number in signals}
    signal.signal(signal.SIGWINCH, lambda *_: None)
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)
    fd_before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading, writing
    finally:
        signal.set_wakeup_fd(fd_before)
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt  # so that the terminal is put back as it was


@contextmanager
def _terminal() -> Iterator[None]:
    """The alternate screen, with keys read one by one; everything is put back in any case."""
    keys = sys.stdin.fileno()
    before = termios.tcgetattr(keys)
    try:
        tty.setcbreak(keys)
        sys.stdout.write(_ENTER)
        sys.stdout.flush()
        yield
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        termios.tcsetattr(keys, termios.TCSADRAIN, before)


def _poke(wake: int) -> None:
    with suppress(BlockingIOError, OSError):
        os.write(wake, b"\0")


def _left(woken: int) -> bool:
    """Wait for news, a key, a signal, or a second; whether the key or the signal says to leave.

    Signals are looked for here too: an interrupt that comes while Python runs a callback is lost as an exception.
    """
    keys = sys.stdin.fileno()
    ready, _, _ = select.select([keys, woken], [], [], LOOK_S)
    told = os.read(woken, 4096) if woken in ready else b""
    if signal.SIGINT in told or signal.SIGTERM in told:
        return True
    if keys not in ready:
        return False
    pressed = os.read(keys, 64)
    return not pressed or b"q" in pressed.lower() or b"\x04" in pressed
