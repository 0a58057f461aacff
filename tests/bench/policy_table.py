"""The table of scheduling quality: `python tests/bench/policy_table.py [--traces FOLDER] [--policy NAME] [--write]`.

Runs every trace through `core.simulate`, compares with the recorded baselines of
`baselines.csv`, and prints must, aim and own figure of each measure; `--write` puts the table
into docs/explanation/scheduling.md. Ratios are geometric means over traces.
"""

import argparse
import csv
import gzip
import io
import math
import re
import time
from dataclasses import replace
from pathlib import Path

import page

from jupyter_gpusched.core.metrics import bounds, score
from jupyter_gpusched.core.policies import NAMED
from jupyter_gpusched.core.simulate import simulate
from jupyter_gpusched.core.trace import read_trace, without_estimates

HERE = Path(__file__).resolve().parent


def machine(name):
    return (2, 24576) if name.startswith("lab2g") else (8, 81920)


def load(path):
    with gzip.open(path) as packed:
        return read_trace(io.TextIOWrapper(packed))


def run(traced, name, policy, *, contention=False):
    gpus, vram = machine(name)
    return score(traced, simulate(traced, gpus=gpus, vram=vram, policy=policy, contention=contention))


def geo(values):
    values = list(values)
    return math.exp(sum(math.log(max(value, 1e-9)) for value in values) / len(values)) if values else math.nan


def measure(folder, policy, *, only="", quiet=False):
    """The runs: by trace the plain one, the one without estimates, and the one with saturated cards."""
    base = {row["file"]: row for row in csv.DictReader((HERE / "baselines.csv").open())}
    plain, blank, full = {}, {}, {}
    for path in sorted(folder.glob("*.csv.gz")):
        name = path.name
        if name not in base or (only and not re.search(only, name)):
            continue
        began = time.perf_counter()
        traced = load(path)
        plain[name] = run(traced, name, policy)
        blank[name] = run(without_estimates(traced), name, policy)
        if base[name]["naive_full_compute_s"]:
            full[name] = run([replace(one, compute=1.0) for one in traced], name, policy, contention=True)
        if not quiet:
            print(f"{name} {time.perf_counter() - began:.1f}s", flush=True)
    return {name: {key: float(v) if v else None for key, v in row.items() if key != "file"}
            for name, row in base.items() if name in plain}, plain, blank, full  # fmt: skip


def table(base, plain, blank, full):
    """(measure, must, aim, own) of each line."""

    def ratio(attribute, column, runs=plain, one=0.0):
        return geo(
            (getattr(runs[name], attribute) + one) / (base[name][column] + one)
            for name in runs
            if base[name][column] is not None
        )

    easy = max(plain[name].completion_s / base[name]["easy_completion_s"] for name in plain)
    lost = 100 * sum(found.lost_work for found in plain.values()) / len(plain)
    return [
        ("S1 mean completion / naive retry queue", 0.80, 0.68, ratio("completion_s", "naive_completion_s")),
        ("S2 mean completion / EASY, user estimates", 0.64, 0.55, ratio("completion_s", "easy_completion_s")),
        ("S3 mean completion / strict FIFO", 0.35, 0.30, ratio("completion_s", "fifo_completion_s")),
        ("S3 mean completion / exclusive GPUs", 0.21, 0.18, ratio("completion_s", "exclusive_completion_s")),
        ("S4 mean completion / lower bound", 2.15, 1.85, ratio("completion_s", "least_completion_s")),
        ("S5 mean bounded slowdown / naive", 0.52, 0.40, ratio("slowdown", "naive_slowdown")),
        ("S6 longest wait / EASY", 1.33, 1.10, ratio("longest_wait_s", "easy_longest_wait_s")),
        ("S6 longest wait / naive", 0.90, 0.75, ratio("longest_wait_s", "naive_longest_wait_s")),
        ("S7 urgent jobs' mean wait / naive", 0.04, 0.01, ratio("urgent_wait_s", "naive_urgent_wait_s", one=1.0)),
        ("S8 makespan / bound", 1.09, 1.06, ratio("makespan_s", "least_makespan_s")),
        ("S8 lost work, %", 1.0, 0.5, lost),
        ("S9 worst user's mean bounded slowdown / naive", 0.50, 0.35, ratio("worst_user", "naive_worst_user")),
        ("S10 S1 without estimates", 0.92, 0.82, ratio("completion_s", "naive_completion_s", blank)),
        ("S11 S1 with every job at 100 % SM", 0.64, 0.55, ratio("completion_s", "naive_full_compute_s", full)),
        ("S12 worst trace / EASY", 1.38, 1.20, easy),
    ]


def markdown(rows, traces):
    lines = [f"{traces} traces; geometric means of ratios, smaller is better.", "", "| measure | must | aim | ours |"]
    lines += ["| --- | --- | --- | --- |"]
    lines += [f"| {name} | {must:g} | {aim:g} | {own:.3g} |" for name, must, aim, own in rows]
    return "\n".join(lines)


def main():
    asked = argparse.ArgumentParser()
    asked.add_argument("--traces", type=Path, default=HERE / "traces")
    asked.add_argument("--policy", choices=NAMED, default="default")
    asked.add_argument("--only", default="", help="a pattern for names of traces")
    asked.add_argument("--write", action="store_true", help="into docs/explanation/scheduling.md")
    options = asked.parse_args()
    base, plain, blank, full = measure(options.traces, NAMED[options.policy], only=options.only)
    rows = table(base, plain, blank, full)
    text = markdown(rows, len(plain))
    print(text)
    for name in plain:
        gpus, vram = machine(name)
        found = bounds(load(options.traces / name), gpus=gpus, vram=vram)
        assert math.isclose(found.completion_s, base[name]["least_completion_s"], rel_tol=1e-4), name
        break
    if options.write:
        page.put(text, "figures", Path(__file__).name)


if __name__ == "__main__":
    main()
