"""Cancel against start: a job that was cancelled before it started must never run.

    python tests/bench/cancel_race.py --rounds 500 [--seed 0]

Each round submits a job that writes down its id, and cancels it from a second thread after 0 to
50 ms. ``tests/api/test_ends.py`` runs some rounds.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from jupyter_gpusched.client import Client

LONGEST_DELAY_S = 0.05


def rounds(client: Client, folder: Path, count: int, seed: int) -> tuple[list[str], Counter[str]]:
    """What was wrong, a sentence each, and how the jobs ended."""
    chance = random.Random(seed)
    ran = folder / "ran"
    ran.touch()
    spec = {
        "argv": ["sh", "-c", f"echo $GPUSCHED_JOB_ID >> {ran}"],
        "cwd": str(folder), "env": {"PATH": os.environ["PATH"]}, "vram": "1G", "grace": "2s",
    }  # fmt: skip
    ids = []
    for _ in range(count):
        job_id = client.submit(spec)
        ids.append(job_id)
        canceller = threading.Thread(target=_cancel, args=(client, job_id, chance.uniform(0, LONGEST_DELAY_S)))
        canceller.start()
        canceller.join()
    views = [client.wait(job_id, 60) for job_id in ids]
    return list(_faults(views, Counter(ran.read_text().split()))), Counter(view["phase"] for view in views)


def _cancel(client: Client, job_id: str, delay_s: float) -> None:
    time.sleep(delay_s)
    client.cancel(job_id)
    client.cancel(job_id)  # again is no error


def _faults(views: list[dict[str, object]], runs: Counter[str]) -> Iterator[str]:
    for view in views:
        job_id, phase, started = str(view["id"]), view["phase"], view["started_at"]
        if phase not in ("succeeded", "cancelled"):
            yield f"{job_id} is {phase}: {view['message']}"
        if started is None and runs[job_id]:
            yield f"{job_id} is {phase} and never started, but it ran"
        if runs[job_id] > 1 or (phase == "succeeded" and runs[job_id] != 1):
            yield f"{job_id} is {phase} and ran {runs[job_id]} times"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    asked.add_argument("--rounds", type=int, default=500)
    asked.add_argument("--seed", type=int, default=0)
    options = asked.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.environ.update(GPUSCHED_HOME=f"{name}/state", GPUSCHED_SIMULATE="2x24G", GPUSCHED_IDLE_EXIT="5")
        begun = time.monotonic()
        faults, ends = rounds(Client.connect(start=True), Path(name), options.rounds, options.seed)
        print(f"{options.rounds} rounds in {time.monotonic() - begun:.0f} s: {dict(ends)}")
        print("\n".join(faults) or "no fault")
    raise SystemExit(bool(faults))


if __name__ == "__main__":
    main()
