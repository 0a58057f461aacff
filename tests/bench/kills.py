"""Hosts, supervisors and jobs killed at random while jobs are submitted, started, cancelled and end.

    python tests/bench/kills.py --rounds 500 [--first-seed 0]

Two candidates share one state folder; whoever hosts is killed and the other takes over. Each
round is seeded. What is checked (``verdict.py``) is what can be seen from outside.
``tests/api/test_kills.py`` runs some rounds in CI.
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
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.verdict import Expectation, Told, faults

from jupyter_gpusched.client import Client
from jupyter_gpusched.core.model import GpuSchedError
from jupyter_gpusched.launch import attempt as files
from jupyter_gpusched.places import host_alive, read_host_record, start_time
from jupyter_gpusched.runner.tree import send

DEADLINE_S = 30.0
CANDIDATE = str(Path(__file__).with_name("candidate.py"))

JOB = """
echo "$GPUSCHED_JOB_ID $GPUSCHED_ATTEMPT" >> {folder}/runs
{helper}
n=0; while [ $n -lt {lines} ]; do echo "line $n"; n=$((n+1)); sleep 0.02; done
echo "$GPUSCHED_JOB_ID $GPUSCHED_ATTEMPT" >> {folder}/ends
exit {code}
"""
HELPER = "(trap '' TERM; setsid sleep 600) &"
"""A child in a session of its own that outlives the job unless somebody ends it."""


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
                [sys.executable, CANDIDATE],
                env=self._environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def kill_the_host(self) -> None:
        """Kill whoever hosts."""
        record = read_host_record(self.state)
        for number, process in enumerate(self.processes):
            if record is not None and process.pid == record.pid and host_alive(record):
                self.kill(number)

    def kill(self, number: int) -> None:
        """Kill a candidate, which may be hosting, waiting or just taking over, and put a new one in its place."""
        self.processes[number].kill()
        self.processes[number].wait()
        self.processes[number] = self._start()
        self.kills += 1

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@dataclass
class Round:
    """One round's hosts and jobs, and what was done to them."""

    dice: random.Random
    folder: Path
    environ: dict[str, str]
    pair: Pair
    client: Client
    jobs: dict[str, Expectation] = field(default_factory=dict)
    strangers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    followed: dict[str, list[bytes]] = field(default_factory=dict)
    stream: list[tuple[int, str, str]] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    # --- what users do ---------------------------------------------------------------------

    def submit(self) -> None:
        code, lines = self.dice.choice([0, 0, 0, 3]), self.dice.randrange(8)
        helper = HELPER if self.dice.random() < 0.2 else ""
        script = JOB.format(folder=self.folder, helper=helper, lines=lines, code=code)
        spec = {
            "argv": ["sh", "-c", script],
            "vram": f"{self.dice.choice([1, 2, 4, 8])}G",
            "gpus": self.dice.choice([1, 1, 1, 2]),
            "grace": "0.2s",
            "cwd": str(self.folder),
            "env": self.environ,
            "idempotency_key": f"{self.dice.random()}",
        }
        job_id = str(again(lambda: self.client.submit(spec)))
        self.jobs[job_id] = Expectation(code, "".join(f"line {n}\n" for n in range(lines)).encode())
        if self.dice.random() < 0.25:
            self.thread(self.follow, job_id)

    def cancel(self) -> None:
        job_id = self.dice.choice(list(self.jobs))
        grace = self.dice.choice(["0s", "0.1s"])
        self.jobs[job_id].cancelled = again(lambda: self.client.cancel(job_id, grace=grace))["phase"]

    def follow(self, job_id: str) -> None:
        parts = self.followed.setdefault(job_id, [])
        client = connected(self.environ)
        parts.extend(client.follow(job_id))
        client.close()

    def watch(self) -> None:
        try:
            for frame in connected(self.environ).events(after=0):
                if frame["type"] == "job":
                    self.stream.append((frame["seq"], frame["job"]["id"], frame["job"]["phase"]))
        except GpuSchedError:
            if not self.over.is_set():
                raise

    def thread(self, what: Callable[..., None], *arguments: Any, joined: bool = True) -> None:
        thread = threading.Thread(target=what, args=arguments, daemon=True)
        thread.start()
        if joined:
            self.threads.append(thread)

    # --- what goes wrong -------------------------------------------------------------------

    def kill_something(self) -> None:
        self.dice.choice([self.pair.kill_the_host, self.kill_a_candidate, self.kill_a_supervisor, self.kill_a_job])()

    def kill_a_candidate(self) -> None:
        self.pair.kill(self.dice.randrange(2))

    def kill_a_supervisor(self) -> None:
        job_id, place = self.an_attempt()
        claim = place and files.read_claim(place, 1)
        if claim and claim.get("pid") and killed(claim):
            self.jobs[job_id].supervisor_killed = True

    def kill_a_job(self) -> None:
        job_id, place = self.an_attempt()
        started = place and files.read_started(place, 1)
        if started and killed(started["main"]):
            self.jobs[job_id].killed = True

    def an_attempt(self) -> tuple[str, Path | None]:
        """A job that has files but no exit record yet."""
        folders = {job_id: self.pair.state / "jobs" / job_id for job_id in self.jobs}
        alive = [
            job_id for job_id, place in folders.items() if files.read_started(place, 1) or self.dice.random() < 0.3
        ]
        alive = [job_id for job_id in alive if files.read_exit(folders[job_id], 1) is None]
        job_id = self.dice.choice(alive or list(self.jobs))
        return job_id, folders[job_id]

    # --- who must not be harmed ------------------------------------------------------------

    def add_stranger(self) -> None:
        """A process of the same user that looks like one of a living job in all but what counts."""
        job_id, place = self.an_attempt()
        claim = (place and files.read_claim(place, 1)) or {}
        marker = claim.get("marker") or "0" * 32
        alike = {"GPUSCHED_JOB_ID": job_id, "GPUSCHED_ATTEMPT": "1", "GPUSCHED_STOP_FILE": f"{place}/attempt-1/stop"}
        tempting = [{}, {"OLD_GPUSCHED_MARKER": marker}, {"NOTE": f"see GPUSCHED_MARKER={marker}"}]
        self.strangers.append(
            subprocess.Popen(
                ["sleep", "600"],
                env=self.environ | alike | tempting[len(self.strangers) % len(tempting)],
                cwd=self.folder,
                start_new_session=self.dice.random() < 0.5,
            )
        )

    # --- the end ---------------------------------------------------------------------------

    def told(self) -> Told:
        views = {job_id: self.client.wait(job_id, timeout=DEADLINE_S) for job_id in self.jobs}
        drained = until(lambda: not any(gpu["holders"] for gpu in self.client.gpus()))
        for thread in self.threads:
            thread.join(DEADLINE_S)
        replay = self.replay()
        until(lambda: self.stream and self.stream[-1][0] >= replay[-1][0])
        left = until(lambda: not self.processes_left())
        return Told(
            views=views,
            runs=Counter(self.lines("runs")),
            ends=Counter(self.lines("ends")),
            logs={job_id: self.client.log(job_id) for job_id in self.jobs if views[job_id]["attempts"]},
            followed={job_id: b"".join(parts) for job_id, parts in self.followed.items()},
            stream=list(self.stream),
            replay=replay,
            grants_left=[] if drained else self.client.gpus(),
            processes_left=[] if left else self.processes_left(),
            strangers_harmed=[one.pid for one in self.strangers if one.poll() is not None],
            kills=self.pair.kills,
        )

    def replay(self) -> list[tuple[int, str, str]]:
        """What a new listener is told of everything that happened."""
        last = next(iter(connected(self.environ).events()))["seq"]
        told = []
        for frame in connected(self.environ).events(after=0):
            if frame["type"] == "job":
                told.append((frame["seq"], frame["job"]["id"], frame["job"]["phase"]))
            if frame["seq"] >= last:
                return told
        return told

    def lines(self, name: str) -> list[tuple[str, str]]:
        return [tuple(line.split()) for line in (self.folder / name).read_text().splitlines()]  # type: ignore[misc]

    def processes_left(self) -> list[str]:
        """Supervisors and jobs of this round that still live."""
        jobs = os.fsencode(self.pair.state / "jobs")
        ours = {process.pid for process in (*self.pair.processes, *self.strangers)}
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                command = Path(f"/proc/{name}/cmdline").read_bytes()
                told = command + Path(f"/proc/{name}/environ").read_bytes()
            except OSError:
                continue
            if jobs in told and int(name) not in ours and start_time(int(name)) is not None:
                found.append(f"{name} {command!r}")
        return found

    def end(self) -> None:
        self.over.set()
        self.pair.end()
        for stranger in self.strangers:
            stranger.kill()
            stranger.wait()
        for left in self.processes_left():  # after a fault only
            os.kill(int(left.split()[0]), signal.SIGKILL)


def one_round(seed: int, folder: Path, *, jobs: int = 20, kills: int = 8) -> list[str]:
    """Run one round; returns what went wrong, empty when nothing did."""
    for name in ("runs", "ends"):
        (folder / name).touch()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GPUSCHED_")}
    environ |= {"GPUSCHED_HOME": str(folder / "state"), "GPUSCHED_SIMULATE": "2x8G", "GPUSCHED_AUTOSTART": "0"}
    pair = Pair(environ, folder / "hosts.log")
    try:
        this = Round(random.Random(seed), folder, environ, pair, connected(environ))
    except BaseException:
        pair.end()
        raise
    try:
        this.thread(this.watch, joined=False)
        play(this, jobs, kills)
        return faults(this.jobs, this.told())
    finally:
        this.end()


def play(this: Round, jobs: int, kills: int) -> None:
    """Submissions, cancellations and kills in a random order, and more kills while the last jobs end."""
    acts: list[Callable[[], None]] = [this.submit] * jobs + [this.cancel] * (jobs // 5)
    acts += [this.add_stranger] * 6
    acts += [this.pair.kill_the_host, this.kill_a_supervisor, this.kill_a_job] + [this.kill_something] * (kills - 3)
    this.dice.shuffle(acts)
    this.submit()
    for act in acts:
        if act != this.submit:
            time.sleep(this.dice.random() * 0.04)
        act()
    for _ in range(3):
        time.sleep(this.dice.random() * 0.2)
        this.kill_something()


def connected(environ: dict[str, str]) -> Client:
    return again(lambda: Client.connect(environ=environ))


def again(call: Callable[[], Any]) -> Any:
    """A call that a dying host did not answer is made again, as a user would; its key makes that safe."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return call()
        except GpuSchedError as error:
            if error.code not in ("no_host", "unavailable") or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def until(what: Callable[[], object]) -> bool:
    """Whether it became true in time."""
    deadline = time.monotonic() + DEADLINE_S
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def killed(record: dict[str, Any]) -> bool:
    """SIGKILL to that very process; False when it has ended already."""
    if start_time(record["pid"]) != record["start_time"]:
        return False
    try:
        send(record["pid"], record["start_time"], signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=500)
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
        if (seed - chosen.first_seed) % 20 == 19:
            print(f"up to seed {seed}: {bad} with a fault, {time.monotonic() - started:.0f} s", flush=True)
    print(f"{chosen.rounds} rounds, {bad} with a fault, {time.monotonic() - started:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
