"""The figures that the README and the changelog quote, measured on this machine in one run.

    python tests/bench/figures.py [--rounds 15] [--idle-s 20]

Starts a host of its own on simulated cards in a temporary folder; every figure is the median
over the rounds with minimum and maximum beside it. Two yardsticks from the same machine and
run (an fsync, a bare process start) are printed first, since absolute times mean little.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyter_gpusched.client import Client
from jupyter_gpusched.places import ask_host_to_stop, read_host_record

GIVEN_UP_S, PREPARING_S = 31.0, 3.0
"""After so long a process prepared for one kind of cells gives way to another; so long does it take to prepare one."""

STAMP = 'date +%s.%N >> "$0"'


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def show(what: str, seconds: list[float], aim: str = "") -> None:
    ms = [value * 1000 for value in seconds]
    print(f"{what:<52} {statistics.median(ms):8.1f} ms   ({min(ms):.1f} to {max(ms):.1f}) {aim}", flush=True)


@contextmanager
def own_host() -> Iterator[tuple[Client, Path]]:
    home = Path(tempfile.mkdtemp(prefix="gs-bench-"))
    for name in [name for name in os.environ if name.startswith("GPUSCHED_")]:
        del os.environ[name]
    os.environ |= {"GPUSCHED_HOME": str(home / "state"), "GPUSCHED_SIMULATE": "1x8G", "GPUSCHED_IDLE_EXIT": "600"}
    start = time.perf_counter()
    client = Client.connect(start=True)
    show("starting a host, until it answers", [time.perf_counter() - start], "aim 2000")
    try:
        yield client, home
    finally:
        if (record := read_host_record(home / "state")) is not None:
            ask_host_to_stop(record)
            while (home / "state" / "host.json").exists():
                time.sleep(0.02)
        shutil.rmtree(home, ignore_errors=True)


def yardsticks(home: Path, rounds: int) -> None:
    def fsync() -> None:
        with (home / "probe").open("ab") as file:
            file.write(b"x" * 1000)
            file.flush()
            os.fsync(file.fileno())

    show("yardstick: one fsync", [timed(fsync) for _ in range(rounds)])
    starts = {
        "/bin/true": ["/bin/true"],
        "python -I -S -c pass": [sys.executable, "-I", "-S", "-c", "pass"],
        "python with IPython imported": [sys.executable, "-c", "import IPython.core.interactiveshell"],
    }
    for name, argv in starts.items():
        show(f"yardstick: {name}", [timed(lambda argv=argv: subprocess.run(argv, check=True)) for _ in range(rounds)])


def command(home: Path, *argv: str, **more: Any) -> dict[str, Any]:
    return {"argv": list(argv), "cwd": str(home), "env": {"PATH": os.environ["PATH"]}, "vram": "1G"} | more


def stamped(path: Path) -> float:
    while not (path.exists() and path.read_text().endswith("\n")):
        time.sleep(0.0005)
    value = float(path.read_text())
    path.unlink()
    return value


def first_instruction(client: Client, home: Path, rounds: int) -> None:
    stamp, took = home / "stamp", []
    for _ in range(rounds):
        sent = time.time()
        job_id = client.submit(command(home, "sh", "-c", STAMP, str(stamp)))
        took.append(stamped(stamp) - sent)
        client.wait(job_id)
    show("submission to first instruction of a command", took, "aim 30")


def first_line(client: Client, home: Path, rounds: int) -> None:
    stamp = home / "stamp"
    source = f"import time\nopen({str(stamp)!r}, 'w').write(f'{{time.time()}}\\n')"

    def took(**env: str) -> tuple[float, float]:
        spec = {"source": source, "cwd": str(home), "vram": "1G", "python": sys.executable}
        sent = time.time()
        job_id = client.submit({**spec, "env": {**os.environ, **env}})
        at = stamped(stamp)
        return at - sent, at - client.wait(job_id)["started_at"]

    fresh = [took(KIND=str(number)) for number in range(rounds)]  # no two alike
    time.sleep(GIVEN_UP_S)
    took()
    time.sleep(PREPARING_S)
    prepared = [took() for _ in range(rounds)]
    for what, times in (("process", fresh), ("process, prepared", prepared)):
        show(f"submission to first line of a cell, {what}", [whole for whole, _ in times], "aim 120")
        show(f"start of a cell to its first line, {what}", [own for _, own in times], "at most 150, prepared 60")


def freed_card(client: Client, home: Path, rounds: int) -> None:
    gate, stamp, took = home / "gate", home / "stamp", []
    os.mkfifo(gate)
    for _ in range(rounds):
        holder = client.submit(command(home, "sh", "-c", f"read x < {gate}; {STAMP}", str(stamp), vram="8G"))
        while client.job(holder)["phase"] != "running":
            time.sleep(0.005)
        after = home / "after"
        waiting = client.submit(command(home, "sh", "-c", STAMP, str(after), vram="8G"))
        gate.write_text("go\n")
        freed = stamped(stamp)
        took.append(stamped(after) - freed)
        client.wait(waiting)
    show("freed card to next job's first instruction", took, "aim 20")


def submissions(client: Client, home: Path) -> None:
    blocker = client.submit(command(home, "sleep", "600", vram="8G"))
    spec = command(home, "true", vram="8G")
    single = timed(lambda: [client.submit(spec) for _ in range(500)])
    print(f"{'durable submissions, one by one':<52} {500 / single:8.0f} /s   aim 500")
    batches = [timed(lambda: client.submit_many([spec] * 1000)) for _ in range(3)]
    print(f"{'durable submissions, batches of 1,000':<52} {1000 / statistics.median(batches):8.0f} /s   aim 5000")
    show("list page of 100 with 3,500 queued", [timed(lambda: client.jobs(limit=100)) for _ in range(9)])
    waiting = client.jobs(phase="queued")
    for view in waiting:
        client.cancel(view["id"])
    client.cancel(blocker, grace="0s")
    client.wait(blocker)


def shift_enter(rounds: int) -> None:
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "jupyter_gpusched")
    shell.run_cell("data = list(range(100_000))")
    took = []
    with capture_output():
        for _ in range(rounds + 1):
            took.append(timed(lambda: shell.run_cell("%%gpujob --vram 1G --quiet\nprint(sum(data))").raise_error()))
            shell.run_cell("_.wait()")
    show("Shift-Enter to return, first in the kernel", took[:1], "aim 100")
    show("Shift-Enter to return", took[1:], "aim 100")


def idle(client: Client, seconds: float) -> None:
    pid = client.health()["pid"]
    ticks = os.sysconf("SC_CLK_TCK")

    def cpu_s() -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / ticks

    before = cpu_s()
    time.sleep(seconds)
    status = Path(f"/proc/{pid}/status").read_text()
    rss = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024
    print(f"{'idle CPU of the host':<52} {100 * (cpu_s() - before) / seconds:8.2f} %    aim 0.5")
    print(f"{'memory of the host (RSS, after all of the above)':<52} {rss:8.0f} MB   aim 90")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=15)
    arguments.add_argument("--idle-s", type=float, default=20)
    chosen = arguments.parse_args()
    with own_host() as (client, home):
        yardsticks(home, chosen.rounds)
        idle(client, chosen.idle_s)
        first_instruction(client, home, chosen.rounds)
        first_line(client, home, chosen.rounds)
        freed_card(client, home, chosen.rounds)
        shift_enter(chosen.rounds)
        submissions(client, home)
        idle(client, 3)


if __name__ == "__main__":
    main()
