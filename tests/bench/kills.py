"""Two hosts on one state folder, killed at random while jobs are submitted, started, cancelled and end.

    python tests/bench/kills.py --rounds 300 [--first-seed 0]

Each round is seeded. What is counted is counted from outside: every acknowledged job has one
final phase and ran once (a cancelled one at most once), exit codes are true, nothing is left
running and no memory stays granted. ``tests/api/test_kills.py`` runs some rounds in CI.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from jupyter_gpusched.client import Client
from jupyter_gpusched.core.model import GpuSchedError
from jupyter_gpusched.places import host_alive, read_host_record

DEADLINE_S = 60.0

CANDIDATE = """
import os, pathlib, signal
from jupyter_gpusched.hosts.host_thread import HostThread
from jupyter_gpusched.service import GpuSched
HostThread(pathlib.Path(os.environ["GPUSCHED_HOME"]), GpuSched()).start()
signal.pause()
"""
"""What a Jupyter server does for us, without the rest of the server."""


class Pair:
    """Two processes that are ready to host the same state folder."""

    def __init__(self, environ: dict[str, str], log: Path) -> None:
        self._environ = environ
        self._log = log
        self.state = Path(environ["GPUSCHED_HOME"])
        self.processes = [self._start(), self._start()]
        self.kills = 0

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", CANDIDATE],
                env=self._environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def kill_the_host(self) -> None:
        """Kill whoever hosts, if it is one of ours, and put a new candidate in its place."""
        record = read_host_record(self.state)
        for number, process in enumerate(self.processes):
            if record is not None and process.pid == record.pid and host_alive(record):
                process.send_signal(signal.SIGKILL)
                process.wait()
                self.processes[number] = self._start()
                self.kills += 1

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def one_round(seed: int, folder: Path, *, jobs: int = 25, kills: int = 3) -> list[str]:
    """Run one round; returns what went wrong, empty when nothing did."""
    dice = random.Random(seed)
    runs = folder / "runs"
    runs.touch()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GPUSCHED_")}
    environ |= {"GPUSCHED_HOME": str(folder / "state"), "GPUSCHED_SIMULATE": "2x8G", "GPUSCHED_AUTOSTART": "0"}
    pair = Pair(environ, folder / "hosts.log")
    try:
        client = _client(environ)
        acknowledged: dict[str, int] = {}
        cancelled: set[str] = set()
        kill_at = {dice.randrange(jobs) for _ in range(kills)}
        for number in range(jobs):
            code = dice.choice([0, 0, 0, 3])
            acknowledged[_submit(client, _spec(dice, runs, folder, environ, code))] = code
            if dice.random() < 0.2:
                victim = dice.choice(list(acknowledged))
                _cancel(client, victim)
                cancelled.add(victim)
            if number in kill_at:
                time.sleep(dice.random() * 0.05)
                pair.kill_the_host()
        views = {job_id: client.wait(job_id, timeout=DEADLINE_S) for job_id in acknowledged}
        return _check(views, acknowledged, cancelled, Counter(runs.read_text().split()), client, pair)
    finally:
        pair.end()


def _client(environ: dict[str, str]) -> Client:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return Client.connect(environ=environ)
        except GpuSchedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _spec(dice: random.Random, runs: Path, folder: Path, environ: dict[str, str], code: int) -> dict[str, Any]:
    script = f"echo $GPUSCHED_JOB_ID >> {runs}; sleep {dice.random() * 0.1:.3f}; exit {code}"
    return {
        "argv": ["sh", "-c", script],
        "vram": f"{dice.choice([1, 2, 4, 8])}G",
        "gpus": dice.choice([1, 1, 1, 2]),
        "cwd": str(folder),
        "env": environ,
        "idempotency_key": f"{dice.random()}",
    }


def _again(call: Any) -> Any:
    """A call that a dying host did not answer is made again, as a user would; its key makes that safe."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return call()
        except GpuSchedError as error:
            if error.code not in ("no_host", "unavailable") or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _submit(client: Client, spec: dict[str, Any]) -> str:
    return str(_again(lambda: client.submit(spec)))


def _cancel(client: Client, job_id: str) -> None:
    _again(lambda: client.cancel(job_id, grace="0s"))


def _check(
    views: dict[str, Any],
    codes: dict[str, int],
    cancelled: set[str],
    ran: Counter[str],
    client: Client,
    pair: Pair,
) -> list[str]:
    wrong = []
    for job_id, view in views.items():
        phase, times, code = view["phase"], ran[job_id], codes[job_id]
        expected = {"succeeded"} if code == 0 else {"failed"}
        if job_id in cancelled:
            expected.add("cancelled")
        if phase not in expected:
            wrong.append(f"{job_id} is {phase} ({view['message']}), expected {expected}")
        if times > 1 or (phase != "cancelled" and times != 1):
            wrong.append(f"{job_id} is {phase} and ran {times} times")
        if phase == "cancelled" and view["started_at"] is None and times:
            wrong.append(f"{job_id} was cancelled before it started, yet it ran")
        if phase == "failed" and view["exit_code"] != code:
            wrong.append(f"{job_id} ended with {view['exit_code']}, not {code}")
    if unknown := set(ran) - set(views):
        wrong.append(f"nobody acknowledged {unknown}, yet they ran")
    if not _drained(client):
        wrong.append(f"memory stays granted: {client.gpus()}")
    if not pair.kills:
        wrong.append("no host was killed: the round shows nothing")
    return wrong


def _drained(client: Client) -> bool:
    deadline = time.monotonic() + DEADLINE_S
    while any(gpu["holders"] for gpu in client.gpus()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=300)
    arguments.add_argument("--first-seed", type=int, default=0)
    chosen = arguments.parse_args()
    bad = 0
    started = time.monotonic()
    for seed in range(chosen.first_seed, chosen.first_seed + chosen.rounds):
        folder = Path(tempfile.mkdtemp(prefix="gs-kills-"))
        wrong = one_round(seed, folder)
        bad += bool(wrong)
        for line in wrong:
            print(f"seed {seed}: {line}  (kept: {folder})", flush=True)
        if not wrong:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{chosen.rounds} rounds, {bad} with a fault, {time.monotonic() - started:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
