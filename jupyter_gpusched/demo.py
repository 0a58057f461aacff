"""``jupyter gpusched demo``: five real jobs share one simulated 8 GB card, watched in the terminal.

Uses the product as a user would (a host of its own, in a temporary folder), so that what
it shows is what one gets. Nothing here is scheduled, measured or faked by the demo.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .client import Client
from .core.quantities import show_mib, show_seconds
from .jobs import Job, JobFailed
from .places import ask_host_to_stop, read_host_record

LONGEST_S = 55.0
CARD = "1x8G"
BAR_WIDTH = 32

OCR = """
    # Reads the words back from a page drawn as dots: the way a scanner sees it.
    import time
    FONT = {"GPU": (5, 7), "QUEUE": (9, 7), "FREE": (7, 7)}
    page = [(word, wide * high) for word, (wide, high) in FONT.items()]
    read = []
    for word, dots in page * 4:
        time.sleep(0.5)
        read.append(word)
        print(f"line {len(read)}: {word} ({dots} dots)")
    print("read", len(read), "words")
"""
IMAGE = """
    # Renders the Mandelbrot set as text.
    import time
    rows = []
    for y in range(-8, 9):
        row = ""
        for x in range(-30, 11):
            c, z, n = complex(x / 15, y / 8), 0j, 0
            while abs(z) < 2 and n < 40:
                z, n = z * z + c, n + 1
            row += " .:-=+*#%@"[min(n // 4, 9)]
        rows.append(row)
        time.sleep(0.3)
    image = "\\n".join(rows)
    print(image)
"""
TUNING = """
    # Fits a line by gradient descent, like a very small fine-tuning.
    import time
    data = [(x / 10, 3 * x / 10 + 1) for x in range(20)]
    slope = offset = 0.0
    for epoch in range(1, 9):
        for _ in range(200):
            for x, y in data:
                error = slope * x + offset - y
                slope, offset = slope - 0.02 * error * x, offset - 0.02 * error
        loss = sum((slope * x + offset - y) ** 2 for x, y in data) / len(data)
        print(f"epoch {epoch}/8: loss {loss:.6f}")
        time.sleep(0.6)
    model = {"slope": round(slope, 3), "offset": round(offset, 3)}
"""
SPEECH = """
    # Finds which of four tones is in a signal (Goertzel's filter).
    import math, time
    signal = [math.sin(2 * math.pi * 697 * n / 8000) for n in range(800)]
    for tone in (697, 770, 852, 941):
        c, a, b = 2 * math.cos(2 * math.pi * tone / 8000), 0.0, 0.0
        for sample in signal:
            a, b = sample + c * a - b, a
        print(f"{tone} Hz: power {a * a + b * b - c * a * b:,.0f}")
        time.sleep(1.0)
    print("heard 697 Hz")
"""
INFERENCE = """
    # Classifies four points with given weights.
    import time
    weights = {"cat": (1.0, -0.5), "dog": (-0.8, 0.9)}
    answers = []
    for x, y in [(2, 1), (0, 2), (3, 0), (-1, 1)]:
        time.sleep(1.2)
        scores = {name: a * x + b * y for name, (a, b) in weights.items()}
        answers.append(max(scores, key=scores.get))
        print((x, y), "->", answers[-1])
"""


@dataclass(frozen=True)
class Part:
    """One of the demo's jobs; a script runs from a file, a cell as from a notebook."""

    name: str
    vram: str
    code: str
    script: bool = False
    outputs: tuple[str, ...] = ()

    def spec(self, folder: Path) -> dict[str, Any]:
        common = {"name": self.name, "vram": self.vram, "cwd": str(folder), "python": sys.executable}
        code = textwrap.dedent(self.code).strip() + "\n"
        if not self.script:
            return {**common, "source": code, "outputs": list(self.outputs), "env": dict(os.environ)}
        path = folder / f"{self.name}.py"
        path.write_text(code)
        return {**common, "path": path.name, "env": dict(os.environ)}


PARTS = (
    Part("OCR", "1G", OCR, script=True),
    Part("image", "4G", IMAGE, outputs=("image",)),
    Part("fine-tuning", "6G", TUNING, outputs=("model", "loss")),
    Part("speech", "2G", SPEECH, script=True),
    Part("inference", "1G", INFERENCE, outputs=("answers",)),
)


def main() -> int:
    """Run the demo. Returns 0 when every job succeeded, else 1."""
    if not sys.platform.startswith("linux"):
        sys.stderr.write("jupyter gpusched: jobs run on Linux only; from here, use a host on a Linux machine.\n")
        return 2
    home = Path(tempfile.mkdtemp(prefix="gpusched-demo-"))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GPUSCHED_")}
    environ |= {"GPUSCHED_HOME": str(home / "state"), "GPUSCHED_SIMULATE": CARD, "GPUSCHED_IDLE_EXIT": "30"}
    try:
        return _run(Client.connect(start=True, environ=environ), home)
    finally:
        if (record := read_host_record(home / "state")) is not None:
            ask_host_to_stop(record)
            _gone(home / "state" / "host.json")
        shutil.rmtree(home, ignore_errors=True)


def _run(client: Client, home: Path) -> int:
    print("This demo uses a SIMULATED GPU with 8 GB; the jobs on it are real processes of this machine.")
    print("Five jobs are submitted at once. Together they want 14G, so they have to share:\n")
    work = home / "work"
    work.mkdir()
    ids = client.submit_many([part.spec(work) for part in PARTS])
    for part, job_id in zip(PARTS, ids, strict=True):
        print(f"  submitted {job_id}  {part.name:<12} {part.vram}")
    print()
    started = time.monotonic()
    screen = Screen(live=sys.stdout.isatty())
    for jobs, gpus in _watch(client, ids):
        screen.draw(jobs, gpus, time.monotonic() - started)
        over = all(job["ended_at"] is not None for job in jobs) and not any(gpu["holders"] for gpu in gpus)
        if over or time.monotonic() - started > LONGEST_S:
            break
    return _results(client, ids)


def _watch(client: Client, ids: list[str]) -> Iterator[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """The five jobs and the card after each event; queued jobs are asked again, since their words change."""
    for _frame in client.events():
        yield [client.job(job_id) for job_id in ids], client.gpus()


class Screen:
    """Draws queue and occupancy: in place on a terminal, one line per change elsewhere."""

    def __init__(self, *, live: bool) -> None:
        self._live = live
        self._height = 0
        self._said: dict[str, str] = {}

    def draw(self, jobs: list[dict[str, Any]], gpus: list[dict[str, Any]], elapsed_s: float) -> None:
        if not self._live:
            self._lines(jobs, gpus, elapsed_s)
            return
        lines = [f"{show_seconds(elapsed_s):>5}", *(_bar(gpu) for gpu in gpus), "", *(_row(job) for job in jobs)]
        width = shutil.get_terminal_size().columns - 1
        sys.stdout.write(f"\x1b[{self._height}F" if self._height else "")
        sys.stdout.writelines(f"\x1b[2K{line[:width]}\n" for line in lines)
        sys.stdout.flush()
        self._height = len(lines)

    def _lines(self, jobs: list[dict[str, Any]], gpus: list[dict[str, Any]], elapsed_s: float) -> None:
        changed = [job for job in jobs if self._said.get(job["id"]) != job["phase"]]
        for job in changed:
            self._said[job["id"]] = job["phase"]
            print(f"{elapsed_s:5.1f}s  {_row(job)}")
        if changed:
            for gpu in gpus:
                print(f"{elapsed_s:5.1f}s  {_bar(gpu)}", flush=True)


def _bar(gpu: dict[str, Any]) -> str:
    filled = round(BAR_WIDTH * gpu["promised_mib"] / gpu["total_mib"])
    bar = "#" * filled + "." * (BAR_WIDTH - filled)
    free = show_mib(gpu["available_mib"])
    return f"GPU {gpu['index']} (simulated) [{bar}] {show_mib(gpu['promised_mib'])} promised, {free} free"


def _row(job: dict[str, Any]) -> str:
    words = f"{job['name']:<12} {show_mib(job['vram_mib']):>6}  {job['phase']:<10}"
    return f"{words} {job['waiting'] or job['message'] or ''}".rstrip()


def _results(client: Client, ids: list[str]) -> int:
    print("\nResults:")
    failed = 0
    for part, job_id in zip(PARTS, ids, strict=True):
        job = Job(job_id, client)
        if not job.view["ended_at"]:
            job.cancel()
        try:
            values = job.wait(timeout=30).result() or {}
        except JobFailed as error:
            failed += 1
            print(f"  {part.name}: {error}")
            continue
        said = values or job.logs().strip().splitlines()[-1]
        if part.name == "image":
            print(f"  {part.name}:\n{textwrap.indent(values['image'], '    ')}")
        else:
            print(f"  {part.name}: {said}")
    print(HOW_TO_GO_ON if not failed else f"\n{failed} of {len(ids)} jobs did not succeed.")
    return 1 if failed else 0


HOW_TO_GO_ON = """
The same in a notebook:   GPUSCHED_SIMULATE=1x8G jupyter lab
  then in a cell          %load_ext jupyter_gpusched
  and above any cell      %%gpujob --vram 4G
On a machine with NVIDIA cards leave GPUSCHED_SIMULATE out."""


def _gone(path: Path) -> None:
    """Wait until the host has taken back its announcement, so that nothing writes into the folder any more."""
    deadline = time.monotonic() + 5
    while path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
