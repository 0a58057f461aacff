"""How soon jobs start, beside the fastest durable queue for GPUs that we know (gq-local), in one run.

    python tests/bench/dispatch.py [--rounds 10] [--drain 900] [--peer VENV]

Four cards, one job a card; on ours they are simulated, the peer sees the fake driver. VENV is an
environment of its own with ``pip install gq-local``; without it only ours is measured. Needs gcc.
A job is a program whose first instruction reads the clock. Both are asked over their sockets,
without their clients' programs. For each queue, medians over the rounds: a submission until it is
acknowledged, and until the job's first instruction; from the last instruction of a job on a full
machine to the first one of the next; then jobs per second while many wait. All shifts with the
machine's load: compare within one run only.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).parents[1]))

from fake_nvml import fakegpu

CARDS = 4
PROBE = r"""
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
static long long now(void) {
    struct timespec t; clock_gettime(CLOCK_REALTIME, &t); return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static void put(const char *file, const char *id, const char *what, long long t) {
    char line[200]; int n = snprintf(line, sizeof line, "%s%s %lld\n", id, what, t);
    int d = open(file, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (write(d, line, n) != n) _exit(3);
    close(d);
}
int main(int c, char **v) {  /* FILE ID [GO]: say when it began; with GO, wait for that file and say when it ended */
    put(v[1], v[2], "+", now());
    if (c > 3) { while (access(v[3], F_OK)) usleep(500); put(v[1], v[2], "-", now()); }
    return 0;
}
"""


class Queue(Protocol):
    name: str

    def submit(self, argv: list[str]) -> None: ...
    def stop(self) -> None: ...


class Ours:
    name = "jupyter-gpusched"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        environ = {name: value for name, value in os.environ.items() if not name.startswith("GPUSCHED_")}
        environ |= {"GPUSCHED_HOME": str(folder / "state"), "GPUSCHED_SIMULATE": f"{CARDS}x24G"}
        command = [sys.executable, "-m", "jupyter_gpusched.cli", "serve"]
        self._host = subprocess.Popen(
            command, env=environ, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
        )
        record = folder / "state" / "host.json"
        until(record.exists)
        self._door = http.client.HTTPConnection("localhost")
        self._door.sock = socket.socket(socket.AF_UNIX)
        self._door.sock.connect(json.loads(record.read_text())["socket"])

    def submit(self, argv: list[str]) -> None:
        told = {"argv": argv, "vram": "20G", "cwd": str(self._folder), "env": {"PATH": os.environ["PATH"]}}
        self._door.request("POST", "/gpusched/api/v1/jobs", json.dumps(told), {"Content-Type": "application/json"})
        answer = self._door.getresponse()
        content = answer.read()
        if answer.status != 201:
            raise RuntimeError(f"the host refused the job: {content!r}")

    def stop(self) -> None:
        self._host.terminate()
        self._host.wait()


class Peer:
    name = "gq-local"

    def __init__(self, folder: Path, venv: Path) -> None:
        self._folder, self._program = folder, venv / "bin" / "gq"
        fakegpu.write(fakegpu.machine(*[{}] * CARDS), folder / "machine")
        self._environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "GQ_DATA_DIR": str(folder / "data"),
            "GQ_RUNTIME_DIR": str(folder / "run"),
            "GQ_ALLOW_ROOT": "1",
            "LD_LIBRARY_PATH": str(fakegpu.build(folder / "driver")),
            "FAKE_NVML_STATE": str(folder / "machine"),
        }
        self._call("start")
        until((folder / "run" / "gq.sock").exists)

    def _call(self, word: str) -> None:
        subprocess.run([self._program, "daemon", word], env=self._environ, check=True, capture_output=True)

    def submit(self, argv: list[str]) -> None:
        told = {"type": "submit", "protocol": 2, "argv": argv, "cwd": str(self._folder), "name": "x", "group": None}
        told |= {"env": {"PATH": os.environ["PATH"]}, "requested_gpus": 1, "key": None}
        with socket.socket(socket.AF_UNIX) as door:
            door.connect(str(self._folder / "run" / "gq.sock"))
            door.sendall(json.dumps(told).encode() + b"\n")
            answer = door.makefile("rb").readline()
        if not json.loads(answer).get("ok"):
            raise RuntimeError(f"gq refused the job: {answer!r}")

    def stop(self) -> None:
        self._call("stop")


def until(what: Callable[[], Any], timeout_s: float = 300.0, pause_s: float = 0.001) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := what()):
        if time.monotonic() > deadline:
            raise TimeoutError("the queue does not get there")
        time.sleep(pause_s)
    return found


class Stopwatch:
    """Jobs of one queue, and when each began and ended (nanoseconds since the epoch)."""

    def __init__(self, queue: Queue, probe: Path, folder: Path) -> None:
        self._queue, self._probe, self._folder = queue, str(probe), folder
        self._stamps = folder / "stamps"

    def stamps(self) -> dict[str, int]:
        with contextlib.suppress(FileNotFoundError):
            return {name: int(at) for name, at in (line.split() for line in self._stamps.read_text().splitlines())}
        return {}

    def at(self, stamp: str) -> int:
        return int(until(lambda: self.stamps().get(stamp)))

    def submit(self, name: str, *, go: str | None = None) -> None:
        more = [] if go is None else [str(self._folder / go)]
        self._queue.submit([self._probe, str(self._stamps), name, *more])

    def fill(self, name: str) -> list[str]:
        """A job on each card; they end by ``release``."""
        jobs = [f"{name}.{card}" for card in range(CARDS)]
        for job in jobs:
            self.submit(job, go=f"go-{job}")
        for job in jobs:
            self.at(f"{job}+")
        return jobs

    def release(self, *jobs: str) -> None:
        for job in jobs:
            (self._folder / f"go-{job}").touch()

    def start(self, name: str) -> tuple[float, float]:
        """Milliseconds until a submission to an idle machine was acknowledged, and until the job began."""
        sent = time.time_ns()
        self.submit(name)
        acknowledged = time.time_ns()
        return (acknowledged - sent) / 1e6, (self.at(f"{name}+") - sent) / 1e6

    def handover(self, name: str) -> float:
        """Milliseconds between the end of a job and the start of the one that waited for its card."""
        first, *others = self.fill(name)
        self.submit(f"{name}.next")
        time.sleep(0.3)
        self.release(first)
        took = (self.at(f"{name}.next+") - self.at(f"{first}-")) / 1e6
        self.release(*others)
        for job in others:
            self.at(f"{job}-")
        time.sleep(0.3)
        return took

    def drain(self, count: int) -> tuple[float, float]:
        """Submissions per second to a full machine, and starts per second once it is free."""
        holders = self.fill("drain")
        sent = time.time_ns()
        for number in range(count):
            self.submit(f"short.{number}")
        submitted = time.time_ns()
        self.release(*holders)
        names = [f"short.{number}+" for number in range(count)]
        stamps = until(lambda: (seen := self.stamps()).keys() >= set(names) and seen, pause_s=0.05)
        last = max(stamps[name] for name in names)
        return count / (submitted - sent) * 1e9, count / (last - submitted) * 1e9


def measure(queue: Queue, probe: Path, folder: Path, rounds: int, drain: int) -> None:
    watch = Stopwatch(queue, probe, folder)
    try:
        watch.start("first")
        time.sleep(1)
        starts = []
        for number in range(rounds):
            starts.append(watch.start(f"start.{number}"))
            time.sleep(0.1)
        freed = [watch.handover(f"freed.{number}") for number in range(rounds)]
        submits, drained = watch.drain(drain)
    finally:
        queue.stop()
    acknowledged, started = zip(*starts, strict=True)
    words = [
        f"acknowledged {statistics.median(acknowledged):.1f} ms",
        f"started {statistics.median(started):.1f} ms ({min(started):.1f} to {max(started):.1f})",
        f"freed to next {statistics.median(freed):.1f} ms ({min(freed):.1f} to {max(freed):.1f})",
        f"submitted {submits:.0f}/s",
        f"drained {drained:.0f}/s",
    ]
    print(f"{queue.name:<18} {', '.join(words)}", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=10)
    arguments.add_argument("--drain", type=int, default=900)
    arguments.add_argument("--peer", type=Path, metavar="VENV")
    chosen = arguments.parse_args()
    home = Path(tempfile.mkdtemp(prefix="gs-dispatch-"))
    (home / "probe.c").write_text(PROBE)
    subprocess.run(["gcc", "-O2", "-o", home / "probe", home / "probe.c"], check=True)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    try:
        for name in ("peer", "ours") if chosen.peer else ("ours",):
            (folder := home / name).mkdir()
            queue: Queue = Ours(folder) if name == "ours" else Peer(folder, chosen.peer)
            measure(queue, home / "probe", folder, chosen.rounds, chosen.drain)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
