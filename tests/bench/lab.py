"""What the front end costs: ``python tests/bench/lab.py`` prints the figures of it that docs/figures.md has.

Time from opening Lab to a filled panel, CPU of the server with 1 and with 50 viewers, the memory of
a tab that is fed an hour of frames, and the size of all scripts in the wheel.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))
sys.path.insert(0, str(TESTS / "browser"))

import conftest  # noqa: E402
import viewers  # noqa: E402
from frames import Host, gpu, job  # noqa: E402
from waiting import wait_for  # noqa: E402

JOBS = 100
HOUR_S = 3600
SETTLED_S = 300
"""The tab keeps so much of the past anyway; what comes on top within an hour is growth."""

TIMES = """() => {
  const look = () => {
    const cards = document.querySelectorAll('[data-testid=gpusched-gpu]').length;
    const rows = document.querySelectorAll('[data-testid=gpusched-entry]').length;
    if (cards === 2 && rows > 1) window.filledAt = performance.now() / 1000;
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
  const wait = setInterval(() => {
    const restored = window.jupyterapp?.restored;
    if (restored) {
      clearInterval(wait);
      restored.then(() => { window.restoredAt = performance.now() / 1000; });
    }
  }, 5);
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=20.0, help="of watching")
    parser.add_argument("--no-wheel", action="store_true", help="leave out the size in the wheel, which needs Node")
    chosen = parser.parse_args()
    from playwright.sync_api import sync_playwright

    home, runtime = Path(tempfile.mkdtemp()), tempfile.mkdtemp(prefix="gs-")
    lab = conftest.Lab(home, runtime)
    try:
        wait_for(lab.answers, "JupyterLab does not start", deadline_s=90)
        lab.submit({"argv": ["sleep", "3600"], "gpus": 2, "vram": "24G", "name": "busy"})
        lab.ask("jobs", {"jobs": [{"argv": ["true"], "vram": "20G"}] * JOBS})
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=conftest.ARGUMENTS)
            opening(lab, browser, chosen.rounds)
            memory(lab, browser)
            browser.close()
        watching(lab, chosen.seconds)
    finally:
        lab.end()
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(runtime, ignore_errors=True)
    if not chosen.no_wheel:
        size()


def opening(lab: conftest.Lab, browser: Any, rounds: int) -> None:
    """From the address to cards and jobs in the panel, which was open before; with an empty cache each time."""
    page = conftest.Page(browser.new_page())
    page.open_lab(lab)
    page.show_panel()
    wait_for(lambda: any((lab.home / "workspaces").glob("*")), "the layout is not saved")
    page.page.wait_for_selector("[data-testid=gpusched-entry]")
    filled, restored = [], []
    for number in range(rounds + 1):
        tab = browser.new_page()
        tab.add_init_script(f"({TIMES})()")
        tab.goto(f"{lab.url}/lab?token={conftest.TOKEN}")
        tab.wait_for_function("() => window.filledAt && window.restoredAt", timeout=60_000)
        if number:  # the first one warms the server up
            filled.append(tab.evaluate("() => window.filledAt"))
            restored.append(tab.evaluate("() => window.restoredAt"))
        tab.close()
    page.page.close()
    print(f"opening Lab, until it has its layout:  {spread(restored)}")
    print(f"opening Lab, until the panel is full:  {spread(filled)}, with {JOBS} jobs")


def memory(lab: conftest.Lab, browser: Any) -> None:
    """The heap of a tab after an hour's worth of frames over what it was after the first five minutes of them."""
    page = conftest.Page(browser.new_page())
    host = Host(page.page, gpus=[gpu()])
    page.open_lab(lab)
    page.show_panel()
    session = page.page.context.new_cdp_session(page.page)

    def heap_mb() -> float:
        session.send("HeapProfiler.collectGarbage")
        return float(session.send("Runtime.getHeapUsage")["usedSize"]) / 1e6

    def feed(begin: int, end: int) -> None:
        for second in range(begin, end):
            host.send({"type": "gpus", "gpus": [gpu(sampled_at=1.7e9 + second, utilization_pct=float(second % 100))]})
            ended = job(f"j{second:07}", phase="succeeded", ended_at=1.7e9 + second)
            host.send({"type": "job", "seq": second + 2, "event": "exited", "at": 0, "job": ended})
        page.page.wait_for_selector(f"[data-job-id=j{end - 1:07}]")

    page.page.wait_for_selector("[data-testid=gpusched-gpu]")
    feed(0, SETTLED_S)
    before = heap_mb()
    feed(SETTLED_S, HOUR_S)
    after = heap_mb()
    page.page.close()
    print(f"heap of a tab: {before:.1f} MB after 5 minutes of frames, {after:.1f} MB after an hour of them")


def watching(lab: conftest.Lab, seconds: float) -> None:
    url = f"{lab.url.replace('http', 'ws')}/gpusched/api/v1/stream?token={conftest.TOKEN}"
    costs = {}
    for tabs in (1, 50):
        costs[tabs], rate = asyncio.run(viewers.watch(url, lab.process.pid, tabs, seconds))
        print(f"{tabs:3} viewers: {100 * costs[tabs]:5.1f} % of one CPU, {rate:.1f} frames a second for each")
    print(f"50 viewers cost {costs[50] / costs[1]:.1f} times as much as one")


def size() -> None:
    folder = tempfile.mkdtemp()
    try:
        subprocess.run(
            [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, str(TESTS.parent)], check=True
        )
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as opened:
            scripts = [each.file_size for each in opened.infolist() if _is_script(each.filename)]
        print(f"scripts of the front end in the wheel: {sum(scripts)} bytes in {len(scripts)} files")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_script(name: str) -> bool:
    return "labextensions/" in name and name.endswith(".js")


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} s ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
