"""What shorter longest waits cost: `python tests/bench/wait_plot.py [--families lab ...] [--seeds 101]`.

Draws docs/images/waits-by-completion.svg and prints the points. A point is the longest wait against the mean completion
time, both in units of those of the retrying queue, geometric means over fresh traces (`fresh_traces.py`). Two curves
are the default policy with what protects those who wait turned up: age that outweighs everything else once a job has
waited for so many times what first come, first served would have kept it, and patience that ends so much sooner.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import families
import fresh_traces
import habits
import matplotlib
from policy_table import geo

from jupyter_gpusched.core.metrics import score
from jupyter_gpusched.core.policies import DEFAULT, NAMED, Hybrid, Policy
from jupyter_gpusched.core.simulate import simulate

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "waits-by-completion.svg"


@dataclass(frozen=True, slots=True)
class Late(Hybrid):
    """Age hardly counts up to so many times the wait of first come, first served (and some hours), then above all."""

    late_backlog: float = 1.0

    def order(self, job):
        usual = 14400.0 + self.per_expected * job.expected_s + self.late_backlog * job.backlog_s
        return (Hybrid.order(self, job)[0] / (1.0 + (job.waited_s / usual) ** 6),)


CURVES = {
    "age beyond k waits of FIFO": {f"{k:g}": Late(late_backlog=k) for k in (3.0, 1.5, 0.75)},
    "patience of 4 h + 3 e + k F": {f"{k:g}": Hybrid(per_backlog=k) for k in (3.0, 2.0, 1.0)},
}
POINTS = {"default": DEFAULT, "fair": NAMED["fair"], "backfill": NAMED["backfill"], "fifo": NAMED["fifo"],
          "EASY": habits.Easy, "all run times known": habits.Knowing}  # fmt: skip


def measured(traces, chosen):
    """Mean completion and longest wait of a policy or a habit, both relative to the retrying queue."""
    completion, longest = [], []
    for traced, gpus, vram, naive in traces:
        if isinstance(chosen, Policy):
            segments = simulate(traced, gpus=gpus, vram=vram, policy=chosen)
        else:
            segments = habits.run(traced, chosen(), gpus=gpus, vram=vram)
        found = score(traced, segments)
        completion.append(found.completion_s / naive.completion_s)
        longest.append((found.longest_wait_s + 1) / (naive.longest_wait_s + 1))
    return geo(completion), geo(longest)


def draw(points, curves, target):
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "gpusched", "svg.fonttype": "none", "font.size": 10})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 4.0), layout="constrained")
    for (name, at), colour, mark in zip(curves.items(), ("#0072b2", "#d55e00"), "os", strict=True):
        axes.plot(*zip(points["default"], *at.values(), strict=True), color=colour, marker=mark, label=name)
        for k, one in at.items():
            axes.annotate(k, one, textcoords="offset points", xytext=(5, 3), fontsize=8)
    for name, one in {**points, "naive retry": (1.0, 1.0)}.items():
        axes.plot(*one, color="#000000" if name == "default" else "#777777", marker="D", linestyle="")
        axes.annotate(name, one, textcoords="offset points", xytext=(5, -11), fontsize=8)
    axes.set_xscale("log")
    axes.set_xlabel("mean completion time / naive retry")
    axes.set_ylabel("longest wait / naive retry")
    for which in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        which(matplotlib.ticker.FormatStrFormatter("%g"))
    axes.margins(x=0.12)
    axes.grid(which="both", alpha=0.25)
    axes.legend(frameon=False)
    figure.savefig(target, metadata={"Date": None})


def main():
    asked = argparse.ArgumentParser()
    asked.add_argument("--families", nargs="+", choices=families.FAMILIES, default=["openb", "phillyB", "lab", "lab2g"])
    asked.add_argument("--seeds", type=int, nargs="+", default=[101])
    options = asked.parse_args()
    traces = []
    for family in options.families:
        for load in fresh_traces.LOADS:
            for seed in options.seeds:
                traced, gpus, vram = fresh_traces.make(family, load, seed)
                naive = score(traced, habits.run(traced, habits.Retry(), gpus=gpus, vram=vram))
                traces.append((traced, gpus, vram, naive))
    points = {name: measured(traces, chosen) for name, chosen in POINTS.items()}
    curves = {name: {k: measured(traces, one) for k, one in row.items()} for name, row in CURVES.items()}
    for name, (completion, longest) in points.items():
        print(f"{name:32} {completion:.3f} {longest:.3f}")
    for name, row in curves.items():
        for k, (completion, longest) in row.items():
            print(f"{name:28} {k:4} {completion:.3f} {longest:.3f}")
    draw(points, curves, PICTURE)


if __name__ == "__main__":
    main()
