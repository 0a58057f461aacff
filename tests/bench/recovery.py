"""How long a queue is without its host: from kill -9 to the next one's first true answer and first start.

    python tests/bench/recovery.py [--rounds 5] [--queued 1000] [--running 50]

Simulated cards are full with the running jobs, each of which is a real process. The host is
killed, one of them ends meanwhile, and the next host must adopt the others before it starts
one of the waiting ones in that place. Two kinds of next host: one started afterwards, and a
server that was waiting for the lock.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from jupyter_gpusched.client import Client
from jupyter_gpusched.core.model import GpuSchedError
from jupyter_gpusched.places import read_host_record

CARDS = 5
DEADLINE_S = 60.0
SERVE = ("-m", "jupyter_gpusched.hosts.daemon")
SERVER = (str(Path(__file__).with_name("candidate.py")),)


class Recovery(NamedTuple):
    """Seconds from kill -9. ``running`` is how many of the adopted jobs the first answer showed as running."""

    answer_s: float
    placement_s: float
    running: int


class Hosts:
    """Processes that host, or are ready to, on one state folder."""

    def __init__(self, home: Path, running: int) -> None:
        self.home = home
        environ = {name: value for name, value in os.environ.items() if not name.startswith("GPUSCHED_")}
        size = f"{CARDS}x{-(-running // CARDS)}G"
        self.environ = environ | {
            "GPUSCHED_HOME": str(home / "state"),
            "GPUSCHED_SIMULATE": size,
            "GPUSCHED_AUTOSTART": "0",
        }
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, arguments: tuple[str, ...]) -> subprocess.Popen[bytes]:
        with (self.home / "hosts.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments], env=self.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._started.append(process)
        return process

    def client(self) -> Client:
        return _until(lambda: Client.connect(environ=self.environ))

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()


def _until(ask):
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return ask()
        except GpuSchedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)


@contextmanager
def full_house(queued: int, running: int) -> Iterator[tuple[Hosts, subprocess.Popen[bytes], Path, Path]]:
    """A host whose cards are full and whose queue is long; the gate that ends one job, and what the next one makes."""
    home = Path(tempfile.mkdtemp(prefix="gs-recovery-"))
    gate, stamp = home / "gate", home / "stamp"
    os.mkfifo(gate)
    hosts = Hosts(home, running)
    try:
        host = hosts.start(SERVE)
        client = hosts.client()
        spec = {"cwd": str(home), "env": {"PATH": os.environ["PATH"]}, "vram": "1G"}
        first = {**spec, "argv": ["sh", "-c", f"read x < {gate}"]}
        rest = {**spec, "argv": ["sleep", "3600"]}
        client.submit_many([first, *[rest] * (running - 1)])
        client.submit_many([{**spec, "argv": ["sh", "-c", 'date +%s.%N >> "$0"', str(stamp)]}, *[rest] * (queued - 1)])
        while len(client.jobs(phase="running")) < running:
            time.sleep(0.05)
        client.close()
        yield hosts, host, gate, stamp
    finally:
        hosts.end()
        _end_all_of(home)
        shutil.rmtree(home, ignore_errors=True)


def recover(queued: int, running: int, *, waiting: bool) -> Recovery:
    """One recovery; ``waiting`` = by a server that waits for the lock, else by a host started after the kill."""
    with full_house(queued, running) as (hosts, host, gate, stamp):
        if waiting:
            hosts.start(SERVER)
            time.sleep(2.0)  # it has imported what it needs, and waits
        host.send_signal(signal.SIGKILL)
        killed, killed_wall = time.monotonic(), time.time()
        host.wait()
        gate.write_text("\n")
        if not waiting:
            hosts.start(SERVE)
        client = hosts.client()
        phases = Counter(view["phase"] for view in client.jobs())
        answer_s = time.monotonic() - killed
        assert client.health()["pid"] != host.pid
        assert sum(phases.values()) == queued + running, phases
        while not (stamp.exists() and stamp.read_text().endswith("\n")):
            assert time.monotonic() - killed < DEADLINE_S, (hosts.home / "hosts.log").read_text()
            time.sleep(0.002)
        return Recovery(answer_s, float(stamp.read_text()) - killed_wall, phases["running"])


def _end_all_of(home: Path) -> None:
    """The jobs outlive their hosts, as they should; each supervisor names its folder in its command line."""
    record = read_host_record(home / "state")
    mark = os.fsencode(home / "state" / "jobs")
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            told = Path(f"/proc/{name}/cmdline").read_bytes() + Path(f"/proc/{name}/environ").read_bytes()
            if mark in told and (record is None or int(name) != record.pid):
                os.kill(int(name), signal.SIGKILL)
        except OSError:
            continue


def show(what: str, seconds: list[float]) -> None:
    print(f"{what:<62} {statistics.median(seconds):6.2f} s   ({min(seconds):.2f} to {max(seconds):.2f})   aim 2")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--queued", type=int, default=1000)
    arguments.add_argument("--running", type=int, default=50)
    chosen = arguments.parse_args()
    print(f"{chosen.queued} queued and {chosen.running} running jobs, kill -9 of the host")
    for waiting, name in ((False, "a host started at once"), (True, "a server that waited")):
        found = [recover(chosen.queued, chosen.running, waiting=waiting) for _ in range(chosen.rounds)]
        show(f"{name}: first true answer, all jobs listed", [one.answer_s for one in found])
        show(f"{name}: first start in a freed place", [one.placement_s for one in found])


if __name__ == "__main__":
    main()
