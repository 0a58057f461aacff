"""What a deep queue costs whoever submits, looks at it, or asks for something else meanwhile.

    python tests/bench/engine_depth.py [--depth 10000] [--idle 30] [--rounds 40]

A host of its own on four simulated cards, all of them full. At 100 waiting jobs and at the given depth:
a durable submission, the first page of the list, one job, the first frame of a stream of events, how
soon that stream tells of a submission, CPU while nothing happens (without and with an open stream)
and memory. Then an array of as many elements is submitted, held, released and cancelled, while another
connection asks for the host's health all the time and a stream of events is open: the longest that
the first one waits is what everybody else feels.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

API = "/gpusched/api/v1/"
CARDS = 4
SHALLOW = 100


class Door(http.client.HTTPConnection):
    """One connection to the host's socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        content = None if body is None else json.dumps(body)
        self.request(method, API + path, content, {"Content-Type": "application/json"})
        answer = self.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:200]!r}")
        return json.loads(text or b"null")


class Stream:
    """An open stream of events, and when each of its frames came."""

    def __init__(self, path: str) -> None:
        self._door = Door(path)
        self._door.request("GET", API + "events")
        self._lines = self._door.getresponse()

    def frame(self) -> tuple[float, int, dict[str, Any]]:
        """The next one: when it was whole, its bytes, and what it says."""
        while True:
            line = self._lines.readline()
            if line.strip():
                return time.perf_counter(), len(line), json.loads(line)

    def until_told_of(self, job_id: str) -> float:
        while True:
            at, _, frame = self.frame()
            if frame["type"] == "job" and frame["job"]["id"] == job_id:
                return at

    def close(self) -> None:
        self._door.close()


class Host:
    def __init__(self, folder: Path) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("GPUSCHED_")}
        environ |= {"GPUSCHED_HOME": str(folder / "state"), "GPUSCHED_SIMULATE": f"{CARDS}x24G"}
        environ["XDG_RUNTIME_DIR"] = str(folder)
        command = [sys.executable, "-m", "jupyter_gpusched.cli", "serve"]
        self.process = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        record = folder / "state" / "host.json"
        while not record.exists():
            time.sleep(0.01)
        self.socket = json.loads(record.read_text())["socket"]
        self.folder = folder

    def spec(self, *, seconds: int = 3600) -> dict[str, object]:
        return {"argv": ["sleep", str(seconds)], "vram": "20G", "cwd": str(self.folder)}

    def cpu_s(self) -> float:
        """Of the host alone."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mib(self) -> float:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

    def stop(self) -> None:
        door = Door(self.socket)
        door.ask("POST", "jobs/cancel", {"name": "*", "grace": "0s"})
        self.process.terminate()
        self.process.wait()


def ms(samples: list[float]) -> str:
    ordered = sorted(sample * 1000 for sample in samples)
    return f"{statistics.median(ordered):7.1f} ms ({ordered[0]:.1f} to {ordered[-1]:.1f})"


def timed(ask: Callable[[], object], rounds: int) -> list[float]:
    took = []
    for _ in range(rounds):
        begun = time.perf_counter()
        ask()
        took.append(time.perf_counter() - begun)
        time.sleep(0.01)
    return took


def at_depth(host: Host, door: Door, rounds: int, idle_s: float) -> None:
    print(f"submission    {ms(timed(lambda: door.ask('POST', 'jobs', host.spec()), rounds))}")
    print(f"first page    {ms(timed(lambda: door.ask('GET', 'jobs?limit=100'), rounds))}")
    newest = door.ask("GET", "jobs?limit=1")["items"][0]["id"]
    print(f"one job       {ms(timed(lambda: door.ask('GET', f'jobs/{newest}'), rounds // 2))}")
    firsts, sizes = [], []
    for _ in range(5):
        begun = time.perf_counter()
        stream = Stream(host.socket)
        at, size, _ = stream.frame()
        firsts.append(at - begun)
        sizes.append(size)
        stream.close()
    print(f"first frame   {ms(firsts)}, {max(sizes) / 2**20:.1f} MiB")
    stream = Stream(host.socket)
    stream.frame()
    told = []
    for _ in range(rounds // 2):
        begun = time.perf_counter()
        told.append(stream.until_told_of(door.ask("POST", "jobs", host.spec())["id"]) - begun)
        time.sleep(0.05)
    print(f"told of it    {ms(told)}")
    reader = threading.Thread(target=_read_on, args=(stream,), daemon=True)
    reader.start()
    print(f"idle CPU      {idle(host, idle_s):7.2f} % with a stream")
    stream.close()
    print(f"idle CPU      {idle(host, idle_s):7.2f} % without")
    print(f"memory        {host.resident_mib():7.1f} MiB", flush=True)


def _read_on(stream: Stream) -> None:
    try:
        while True:
            stream.frame()
    except (OSError, ValueError, AttributeError, http.client.HTTPException):
        return


def idle(host: Host, seconds: float) -> float:
    time.sleep(20)  # what was asked before has its echoes, such as a forecast
    begun = host.cpu_s()
    time.sleep(seconds)
    return (host.cpu_s() - begun) / seconds * 100


@contextmanager
def somebody_else(host: Host) -> Iterator[list[float]]:
    """Asks for the host's health all the time; what it waited, in seconds."""
    waits: list[float] = []
    over = threading.Event()

    def ask() -> None:
        door = Door(host.socket)
        while not over.is_set():
            waits.extend(timed(lambda: door.ask("GET", "health"), 1))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield waits
    finally:
        over.set()
        asking.join()


def arrays(host: Host, door: Door, count: int) -> None:
    body = {"jobs": [host.spec()] * count, "array": {}}
    stream = Stream(host.socket)
    threading.Thread(target=_read_on, args=(stream,), daemon=True).start()
    array = ""
    for act in ("submit", "hold", "release", "cancel"):
        time.sleep(1)
        with somebody_else(host) as waits:
            begun = time.perf_counter()
            if act == "submit":
                array = door.ask("POST", "jobs", body)["array_id"]
            else:
                door.ask("POST", f"jobs/{array}/{act}", {})
            took = time.perf_counter() - begun
            time.sleep(2)
        print(
            f"{act:<8} an array of {count}: {took:5.2f} s; others waited at most {max(waits) * 1000:5.0f} ms",
            flush=True,
        )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--depth", type=int, default=10_000)
    arguments.add_argument("--rounds", type=int, default=40)
    arguments.add_argument("--idle", type=float, default=30.0, metavar="SECONDS")
    chosen = arguments.parse_args()
    home = Path(tempfile.mkdtemp(prefix="gs-depth-"))
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    host = Host(home)
    try:
        door = Door(host.socket)
        for _ in range(CARDS):
            door.ask("POST", "jobs", host.spec())
        for depth in (SHALLOW, chosen.depth):
            while (missing := depth - _waiting(door)) > 0:
                door.ask("POST", "jobs", {"jobs": [host.spec()] * min(1000, missing)})
            print(f"-- {_waiting(door)} waiting", flush=True)
            time.sleep(2)
            at_depth(host, door, chosen.rounds, chosen.idle)
        arrays(host, door, chosen.depth)
    finally:
        host.stop()
        shutil.rmtree(home, ignore_errors=True)


def _waiting(door: Door) -> int:
    return int(door.ask("GET", "health")["live_jobs"]) - CARDS


if __name__ == "__main__":
    main()
