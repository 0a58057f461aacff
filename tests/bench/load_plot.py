"""Mean completion time against load, for the named policies and today's habits: `python tests/bench/load_plot.py`.

Draws docs/images/completion-by-load.svg and prints the points. A point is the geometric mean over fresh traces
(`fresh_traces.py`) of the mean completion time in units of the mean run time: 1 would be no wait at all.
"""

import argparse
from pathlib import Path

import families
import fresh_traces
import habits
import matplotlib
from policy_table import geo

from jupyter_gpusched.core.metrics import score
from jupyter_gpusched.core.policies import NAMED
from jupyter_gpusched.core.simulate import simulate

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "completion-by-load.svg"
LOADS = (0.5, 0.7, 0.85, 0.95, 1.05, 1.2)
HABITS = {"naive retry": habits.Retry, "EASY backfill": habits.Easy}
# Tints that people with any kind of colour vision tell apart (Okabe and Ito), and marks for those who print.
LOOKS = {
    "default": ("#0072b2", "o"), "fair": ("#009e73", "s"), "backfill": ("#e69f00", "^"), "fifo": ("#d55e00", "v"),
    "naive retry": ("#777777", "x"), "EASY backfill": ("#cc79a7", "d"),
}  # fmt: skip


def points(families, seeds):
    """For each policy and habit the value at each load."""
    found = {name: [] for name in LOOKS}
    for load in LOADS:
        ratios = {name: [] for name in LOOKS}
        for family in families:
            for seed in seeds:
                traced, gpus, vram = fresh_traces.make(family, load, seed)
                runs_s = sum(one.duration_s for one in traced) / len(traced)
                for name, into in ratios.items():
                    if name in NAMED:
                        segments = simulate(traced, gpus=gpus, vram=vram, policy=NAMED[name])
                    else:
                        segments = habits.run(traced, HABITS[name](), gpus=gpus, vram=vram)
                    into.append(score(traced, segments).completion_s / runs_s)
        for name, values in ratios.items():
            found[name].append(geo(values))
    return found


def draw(found, target):
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "gpusched", "svg.fonttype": "none", "font.size": 10})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 4.0), layout="constrained")
    for name, values in found.items():
        colour, mark = LOOKS[name]
        axes.plot(LOADS, values, color=colour, marker=mark, label=name, linestyle="--" if name in HABITS else "-")
    axes.set_yscale("log")
    axes.set_xlabel("load: GPU memory and time asked for / there is")
    axes.set_ylabel("mean completion time / mean run time")
    axes.yaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
    axes.yaxis.set_minor_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
    axes.grid(which="both", alpha=0.25)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(target, metadata={"Date": None})


def main():
    asked = argparse.ArgumentParser()
    asked.add_argument("--families", nargs="+", choices=families.FAMILIES, default=["openb", "lab"])
    asked.add_argument("--seeds", type=int, nargs="+", default=[101])
    options = asked.parse_args()
    found = points(options.families, options.seeds)
    print("load      " + "  ".join(f"{load:6g}" for load in LOADS))
    for name, values in found.items():
        print(f"{name:14}" + "  ".join(f"{value:6.2f}" for value in values))
    draw(found, PICTURE)


if __name__ == "__main__":
    main()
