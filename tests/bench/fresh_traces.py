"""The policy on traces that nobody tuned it to: `python tests/bench/fresh_traces.py [--seeds 101 102] [--write]`.

Made up from a seed by the generators of `families.py`, so that there are always new ones. Each at three loads, the
same jobs arriving faster. Beside the retrying queue and EASY of `habits.py`, and shortest first with run times that
nobody can know, which shows how much there is to gain at all; `--write` puts the table into
docs/explanation/scheduling.md.
"""

import argparse
import math
import random
import sys
from itertools import islice
from pathlib import Path

import habits
import page
from families import DAY_S, FAMILIES
from policy_table import geo

from jupyter_gpusched.core.metrics import score
from jupyter_gpusched.core.model import Job, Kind, Request
from jupyter_gpusched.core.policies import NAMED, Policy, Priority
from jupyter_gpusched.core.quantities import Mib
from jupyter_gpusched.core.simulate import simulate
from jupyter_gpusched.core.trace import Traced

LOADS = (0.70, 0.95, 1.20)


def make(family: str, load: float, seed: int, *, jobs: int | None = None) -> tuple[list[Traced], int, int]:
    """A trace of a family, and the number and memory of the cards it is for. The same for the same arguments.

    Between the first submission and the last, jobs ask for ``load`` times as much memory and time as there is.
    """
    kind = FAMILIES[family]
    dice = random.Random(f"{family} {seed}")
    wanted = list(islice(kind.source(dice), jobs or kind.jobs))
    work = sum(one.duration_s * one.gpus * one.vram for one in wanted)
    first, last = wanted[0].at, wanted[-1].at
    unit = work / (kind.gpus * kind.vram * load) / (last - first)
    traced = []
    for number, one in enumerate(wanted):
        at, limit = (one.at - first) * unit, None
        if dice.random() > 0.35:
            limit = min(DAY_S, max(600.0, math.ceil(one.duration_s * 2.5 * dice.lognormvariate(0, 0.6) / 600) * 600.0))
        request, gives_way = Request(gpus=one.gpus, vram=Mib(one.vram)), one.priority is Priority.LOW
        job = Job(
            f"j{number:04d}", one.user, Kind.COMMAND, one.name, request, one.priority, at, at,
            preemptible=gives_way, time_limit_s=limit, grace_s=0.0,
        )  # fmt: skip
        traced.append(Traced(job, max(1.0, round(one.duration_s, 1)), 0.3))
    return traced, kind.gpus, kind.vram


MUSTS = {"completion / naive": 0.85, "completion / EASY": 0.60, "slowdown / naive": 0.50, "longest wait / naive": 0.82}


KNOWING = "if all run times were known"


def ratios(family: str, load: float, seed: int, policy: Policy) -> dict[str, float]:
    traced, gpus, vram = make(family, load, seed)
    ours = score(traced, simulate(traced, gpus=gpus, vram=vram, policy=policy))
    naive = score(traced, habits.run(traced, habits.Retry(), gpus=gpus, vram=vram))
    easy = score(traced, habits.run(traced, habits.Easy(), gpus=gpus, vram=vram))
    knowing = score(traced, habits.run(traced, habits.Knowing(), gpus=gpus, vram=vram))
    return {
        "completion / naive": ours.completion_s / naive.completion_s,
        "completion / EASY": ours.completion_s / easy.completion_s,
        "slowdown / naive": ours.slowdown / naive.slowdown,
        "longest wait / naive": (ours.longest_wait_s + 1) / (naive.longest_wait_s + 1),
        **{
            f"{KNOWING}: {name}": value
            for name, value in {
                "completion / naive": knowing.completion_s / naive.completion_s,
                "completion / EASY": knowing.completion_s / easy.completion_s,
                "slowdown / naive": knowing.slowdown / naive.slowdown,
            }.items()
        },
    }


def main():
    asked = argparse.ArgumentParser()
    asked.add_argument("--seeds", type=int, nargs="+", default=[101, 102])
    asked.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    asked.add_argument("--policy", choices=NAMED, default="default")
    asked.add_argument("--write", action="store_true", help="into docs/explanation/scheduling.md")
    options = asked.parse_args()
    found = {}
    for family in options.families:
        for load in LOADS:
            for seed in options.seeds:
                found[family, load, seed] = one = ratios(family, load, seed, NAMED[options.policy])
                print(family, load, seed, *(f"{value:.3f}" for value in one.values()), file=sys.stderr, flush=True)
    columns = list(next(iter(found.values())))
    head = " | ".join(f"{name} (must {MUSTS[name]:g})" if name in MUSTS else name for name in columns)
    lines = [f"{len(found)} fresh traces, seeds {', '.join(map(str, options.seeds))}; geometric means.", "",
             f"| family | {head} |", "| --- |" + " --- |" * len(columns)]  # fmt: skip
    for title, chosen in [*((family, [family]) for family in options.families), ("**all**", options.families)]:
        means = [geo(one[name] for key, one in found.items() if key[0] in chosen) for name in columns]
        lines.append(f"| {title} | " + " | ".join(f"{value:.3g}" for value in means) + " |")
    text = "\n".join(lines)
    print(text)
    if options.write:
        page.put(text, "fresh", Path(__file__).name)


if __name__ == "__main__":
    main()
