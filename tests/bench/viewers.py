"""What watching costs: CPU of the Jupyter server with 1 and with 50 tabs open, host included.

``python tests/bench/viewers.py`` starts a Jupyter server with simulated cards and a queue, opens
WebSockets as browser tabs do, and prints the CPU time per second of watching, and the ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tornado.websocket import websocket_connect

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

from waiting import wait_for  # noqa: E402


def _fixtures() -> Any:
    spec = importlib.util.spec_from_file_location("browser_conftest", TESTS / "browser" / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def watch(url: str, pid: int, tabs: int, seconds: float) -> tuple[float, float]:
    """CPU seconds and frames, both per second of watching."""
    sockets = [await websocket_connect(url) for _ in range(tabs)]
    frames = 0

    async def read(socket: Any) -> None:
        nonlocal frames
        while await socket.read_message() is not None:
            frames += 1

    readers = [asyncio.create_task(read(socket)) for socket in sockets]
    await asyncio.sleep(2)  # the snapshots are no part of watching
    frames, before, begun = 0, cpu_s(pid), time.monotonic()
    await asyncio.sleep(seconds)
    span = time.monotonic() - begun
    cost = (cpu_s(pid) - before) / span, frames / span / tabs
    for socket in sockets:
        socket.close()
    await asyncio.gather(*readers)
    return cost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--queued", type=int, default=100)
    chosen = parser.parse_args()
    fixtures = _fixtures()
    home, runtime = Path(tempfile.mkdtemp()), tempfile.mkdtemp(prefix="gs-")
    lab = fixtures.Lab(home, runtime)
    try:
        wait_for(lab.answers, "JupyterLab does not start", deadline_s=90)
        lab.submit({"argv": ["sleep", "3600"], "gpus": 2, "vram": "24G", "name": "busy"})
        lab.ask("jobs", {"jobs": [{"argv": ["true"], "vram": "20G"}] * chosen.queued})
        url = f"{lab.url.replace('http', 'ws')}/gpusched/api/v1/stream?token={fixtures.TOKEN}"
        costs = {}
        for tabs in (1, 50):
            costs[tabs], rate = asyncio.run(watch(url, lab.process.pid, tabs, chosen.seconds))
            print(f"{tabs:3} tabs: {100 * costs[tabs]:5.1f} % of one CPU, {rate:.1f} frames a second for each")
        print(f"50 tabs cost {costs[50] / costs[1]:.1f} times as much as one")
    finally:
        lab.end()
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(runtime, ignore_errors=True)


if __name__ == "__main__":
    main()
