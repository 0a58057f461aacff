"""What watching the cards costs, on a fake machine of 8 cards with 16 processes.

    python tests/bench/gpu_sampling.py [--rounds 200] [--seconds 10]

Prints how long one sample takes for the host, and how often the driver is called per second
with 1 and with 50 viewers, which must be the same: viewers read what was sampled anyway.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fake_nvml import fakegpu

from jupyter_gpusched.client import Client
from jupyter_gpusched.gpus.nvml import NvmlGpus, Timing
from jupyter_gpusched.places import read_host_record

CARDS = 8
PROCESSES = 16


def prepare(folder: Path) -> None:
    """The machine; the processes are this one under many numbers, as a driver would list them."""
    for name in [name for name in os.environ if name.startswith("GPUSCHED_")]:
        del os.environ[name]
    os.environ |= {
        "FAKE_NVML_STATE": str(folder / "machine"),
        "FAKE_NVML_CALLS": str(folder / "calls"),
        "LD_LIBRARY_PATH": str(fakegpu.build(folder / "driver")),
        "GPUSCHED_HOME": str(folder / "state"),
    }
    state = fakegpu.machine(*[{}] * CARDS)
    for number in range(PROCESSES):
        state.add("proc", gpu=number % CARDS, pid=4100000 + number, bytes=2**30, sticky=1)
    fakegpu.write(state)


def calls(folder: Path) -> int:
    return (folder / "calls").stat().st_size


async def sample(folder: Path, rounds: int) -> None:
    gpus = NvmlGpus(timing=Timing(least=0.0))
    try:
        await gpus.sample((), now=time.time())
        before, took = calls(folder), []
        for _ in range(rounds):
            start = time.perf_counter()
            cards = await gpus.sample((), now=time.time())
            took.append((time.perf_counter() - start) * 1000)
        assert len(cards) == CARDS
        assert sum(len(card.foreign) for card in cards) == PROCESSES
    finally:
        await gpus.close()
    per_sample = (calls(folder) - before) / rounds
    print(f"one sample of {CARDS} cards with {PROCESSES} processes: median {statistics.median(took):.2f} ms "
          f"({min(took):.2f} to {max(took):.2f}), {per_sample:.0f} driver calls")  # fmt: skip


@contextmanager
def host(folder: Path) -> Iterator[None]:
    with (folder / "host.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "jupyter_gpusched.hosts.daemon"], stdout=log, stderr=log)
    try:
        while read_host_record(folder / "state") is None:
            assert process.poll() is None, (folder / "host.log").read_text()
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


def view(ends: threading.Event, times: list[float]) -> None:
    """A viewer that asks twice a second, as an impatient page does."""
    client = Client.connect()
    while not ends.is_set():
        start = time.perf_counter()
        client.gpus()
        times.append((time.perf_counter() - start) * 1000)
        ends.wait(0.5)
    client.close()


def watch(folder: Path, viewers: int, seconds: float) -> None:
    ends, times = threading.Event(), []
    threads = [threading.Thread(target=view, args=(ends, times)) for _ in range(viewers)]
    for thread in threads:
        thread.start()
    time.sleep(2)
    before, start = calls(folder), time.monotonic()
    time.sleep(seconds)
    rate = (calls(folder) - before) / (time.monotonic() - start)
    ends.set()
    for thread in threads:
        thread.join()
    p99 = sorted(times)[int(len(times) * 0.99) - 1]
    print(f"{viewers:3} viewers: {rate:6.1f} driver calls per second, p99 of `gpus` {p99:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10.0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gs-bench-") as name:
        folder = Path(name)
        prepare(folder)
        asyncio.run(sample(folder, chosen.rounds))
        with host(folder):
            for viewers in (1, 50):
                watch(folder, viewers, chosen.seconds)


if __name__ == "__main__":
    main()
