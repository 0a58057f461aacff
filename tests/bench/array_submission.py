"""What it costs to submit an array that brings much along: time, bytes on the wire and on disk.

    python tests/bench/array_submission.py [ELEMENTS] [MIB]

Runs a host of its own on simulated cards; the elements are held up by a job that has all cards.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> None:
    count, mib = (int(word) for word in (*sys.argv[1:], "1000", "10")[:2])
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"GPUSCHED_HOME": folder, "XDG_RUNTIME_DIR": folder, "GPUSCHED_SIMULATE": "2x24G"}
        host = subprocess.Popen([sys.executable, "-m", "jupyter_gpusched.hosts.daemon"], stderr=subprocess.DEVNULL)
        try:
            measure(count, mib, Path(folder), host.pid)
        finally:
            host.terminate()
            host.wait()


def measure(count: int, mib: int, folder: Path, pid: int) -> None:
    import jupyter_gpusched as gs

    while not (folder / "host.json").exists():
        time.sleep(0.05)
    gs.submit(["sleep", "600"], gpus=2, vram="24G")
    big = os.urandom(mib << 20)

    def work(number: int, data: bytes) -> int:
        return number + len(data)

    begun = time.perf_counter()
    array = gs.map(work, range(count), kwargs={"data": big}, vram="1G")
    took = time.perf_counter() - begun
    begun = time.perf_counter()
    gs.jobs(limit=1)
    answered = time.perf_counter() - begun
    print(f"{count} elements that bring {mib} MiB along: submitted in {took:.2f} s, next request {answered:.3f} s")
    print(f"on disk: jobs {used(folder / 'jobs'):.1f} MiB, database {used(folder, 'gpusched.sqlite*'):.1f} MiB")
    print(f"memory of the host: {peak(pid):.0f} MiB at most; of this process {own_peak():.0f} MiB")
    begun = time.perf_counter()
    array.hold("measured")
    print(f"held in {time.perf_counter() - begun:.2f} s")
    begun = time.perf_counter()
    array.cancel()
    print(f"cancelled in {time.perf_counter() - begun:.2f} s")


def used(folder: Path, pattern: str = "**/*") -> float:
    seen = {(info.st_dev, info.st_ino): info.st_blocks * 512 for path in folder.glob(pattern) if (info := path.stat())}
    return sum(seen.values()) / 2**20


def peak(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def own_peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
