"""The table of scheduling quality: `python tests/bench/policy_table.py [--traces FOLDER] [--policy NAME] [--write]`.

Runs every trace through `core.simulate`, compares with the recorded baselines of
`baselines.csv`, and prints must, aim and own figure of each measure, and beside it that of a schedule
for which all run times were known (`habits.Knowing`); `--write` puts the table into
docs/explanation/scheduling.md. Ratios are geometric means over traces. `--verify FOLDER` also makes every
schedule once more with `jupyter gpusched simulate` and has FOLDER/verify.py, which knows nothing of us, say
whether it is possible and how good it is: that must be what the table was made of.
"""

import argparse
import csv
import gzip
import io
import math
import re
import subprocess
import sys
import tempfile
import time
from ast import literal_eval
from dataclasses import replace
from pathlib import Path

import habits
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


def knowing(traced, name):
    gpus, vram = machine(name)
    return score(traced, habits.run(traced, habits.Knowing(), gpus=gpus, vram=vram))


def geo(values):
    values = list(values)
    return math.exp(sum(math.log(max(value, 1e-9)) for value in values) / len(values)) if values else math.nan


def measure(folder, policy, *, only="", quiet=False):
    """The runs: by trace the plain one, without estimates, with saturated cards, and with all run times known."""
    base = {row["file"]: row for row in csv.DictReader((HERE / "baselines.csv").open())}
    plain, blank, full, known = {}, {}, {}, {}
    for path in sorted(folder.glob("*.csv.gz")):
        name = path.name
        if name not in base or (only and not re.search(only, name)):
            continue
        began = time.perf_counter()
        traced = load(path)
        plain[name] = run(traced, name, policy)
        blank[name] = run(without_estimates(traced), name, policy)
        known[name] = knowing(traced, name)
        if base[name]["naive_full_compute_s"]:
            full[name] = run([replace(one, compute=1.0) for one in traced], name, policy, contention=True)
        if not quiet:
            print(f"{name} {time.perf_counter() - began:.1f}s", flush=True)
    return {name: {key: float(v) if v else None for key, v in row.items() if key != "file"}
            for name, row in base.items() if name in plain}, plain, blank, full, known  # fmt: skip


def table(base, plain, blank, full, known):
    """(measure, must, aim, own, own if all run times were known) of each line; None = that says nothing there."""

    def ratio(attribute, column, runs=plain, one=0.0):
        return geo(
            (getattr(runs[name], attribute) + one) / (base[name][column] + one)
            for name in runs
            if base[name][column] is not None
        )

    def both(title, must, aim, attribute, column, one=0.0):
        return title, must, aim, ratio(attribute, column, one=one), ratio(attribute, column, known, one)

    def worst(runs):
        return max(runs[name].completion_s / base[name]["easy_completion_s"] for name in runs)

    completion, waits = "mean completion", "longest wait"
    lost = 100 * sum(found.lost_work for found in plain.values()) / len(plain)
    return [
        both(f"S1 {completion} / naive retry queue", 0.80, 0.68, "completion_s", "naive_completion_s"),
        both(f"S2 {completion} / EASY, user estimates", 0.64, 0.55, "completion_s", "easy_completion_s"),
        both(f"S3 {completion} / strict FIFO", 0.35, 0.30, "completion_s", "fifo_completion_s"),
        both(f"S3 {completion} / exclusive GPUs", 0.21, 0.18, "completion_s", "exclusive_completion_s"),
        both(f"S4 {completion} / lower bound", 2.15, 1.85, "completion_s", "least_completion_s"),
        both("S5 mean bounded slowdown / naive", 0.52, 0.40, "slowdown", "naive_slowdown"),
        both(f"S6 {waits} / EASY", 1.33, 1.10, "longest_wait_s", "easy_longest_wait_s"),
        both(f"S6 {waits} / naive", 0.90, 0.75, "longest_wait_s", "naive_longest_wait_s"),
        both("S7 urgent jobs' mean wait / naive", 0.04, 0.01, "urgent_wait_s", "naive_urgent_wait_s", one=1.0),
        both("S8 makespan / bound", 1.09, 1.06, "makespan_s", "least_makespan_s"),
        ("S8 lost work, %", 1.0, 0.5, lost, None),
        both("S9 worst user's mean bounded slowdown / naive", 0.50, 0.35, "worst_user", "naive_worst_user"),
        ("S10 S1 without estimates", 0.92, 0.82, ratio("completion_s", "naive_completion_s", blank), None),
        ("S11 S1 with every job at 100 % SM", 0.64, 0.55, ratio("completion_s", "naive_full_compute_s", full), None),
        ("S12 worst trace / EASY", 1.38, 1.20, worst(plain), worst(known)),
    ]


def markdown(rows, traces):
    lines = [f"{traces} traces; geometric means of ratios, smaller is better.", ""]
    lines += ["| measure | must | aim | ours | if all run times were known |", "| --- | --- | --- | --- | --- |"]
    for name, must, aim, own, known in rows:
        lines.append(f"| {name} | {must:g} | {aim:g} | {own:.3g} | {'' if known is None else f'{known:.3g}'} |")
    return "\n".join(lines)


def verify(yardstick, traces, policy, plain):
    """The schedules of the command line, judged by the yardstick's own program. Raises for one that is not as ours."""
    with tempfile.TemporaryDirectory() as folder:
        for name, ours in plain.items():
            gpus, vram = machine(name)
            cards, out = ["--gpus", str(gpus), "--vram", str(vram)], Path(folder) / "schedule.csv"
            simulating = [
                sys.executable,
                "-m",
                "jupyter_gpusched.cli",
                "simulate",
                str(traces / name),
                "--out",
                str(out),
            ]
            subprocess.run([*simulating, *cards, "--policy", policy], check=True, stdout=subprocess.DEVNULL)
            verifying = [sys.executable, str(yardstick / "verify.py"), str(traces / name), str(out), *cards]
            judged = subprocess.run(verifying, check=True, stdout=subprocess.PIPE, text=True).stdout
            found = literal_eval(judged[judged.index("{") : judged.index("}") + 1])
            for its, attribute in (("jct", "completion_s"), ("bsld", "slowdown"), ("maxwait", "longest_wait_s")):
                if not math.isclose(found[its], getattr(ours, attribute), rel_tol=1e-4, abs_tol=0.01):
                    raise ValueError(f"{name}: {its} is {found[its]}, and was {getattr(ours, attribute)}")
    return f"verify.py: all {len(plain)} schedules of `jupyter gpusched simulate` are possible and as good as here."


def main():
    asked = argparse.ArgumentParser()
    asked.add_argument("--traces", type=Path, default=HERE / "traces")
    asked.add_argument("--policy", choices=NAMED, default="default")
    asked.add_argument("--only", default="", help="a pattern for names of traces")
    asked.add_argument("--write", action="store_true", help="into docs/explanation/scheduling.md")
    asked.add_argument("--verify", type=Path, metavar="FOLDER", help="of the yardstick, with its verify.py")
    options = asked.parse_args()
    base, plain, blank, full, known = measure(options.traces, NAMED[options.policy], only=options.only)
    rows = table(base, plain, blank, full, known)
    text = markdown(rows, len(plain))
    print(text)
    for name in plain:
        gpus, vram = machine(name)
        found = bounds(load(options.traces / name), gpus=gpus, vram=vram)
        assert math.isclose(found.completion_s, base[name]["least_completion_s"], rel_tol=1e-4), name
        break
    if options.verify:
        print(verify(options.verify, options.traces, options.policy, plain))
    if options.write:
        page.put(text, "figures", Path(__file__).name)


if __name__ == "__main__":
    main()
