"""The policy on traces that nobody tuned it to: `python tests/bench/fresh_traces.py [--seeds 101 102] [--write]`.

Made up from a seed, so that there are always new ones. `lab` and `lab2g` have the shape of the recorded
families; the others are kinds of use that are not among those: a course before its deadline, short trials
among long runs with heavy tails, many wide jobs, models that are either small or fill a card, and names
that tell nothing. Each at three loads, the same jobs arriving faster. Beside the retrying queue and EASY
of `habits.py`, and of shortest first with run times that nobody can know, which shows how much there is
to gain at all; `--write` puts the table into docs/explanation/scheduling.md.
"""

import argparse
import math
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import habits
from policy_table import geo

from jupyter_gpusched.core.metrics import score
from jupyter_gpusched.core.model import Job, Kind, Request
from jupyter_gpusched.core.policies import NAMED, Policy, Priority
from jupyter_gpusched.core.quantities import Mib
from jupyter_gpusched.core.simulate import simulate
from jupyter_gpusched.core.trace import Traced

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "scheduling.md"
BEGIN, END = "<!-- fresh: made by tests/bench/fresh_traces.py -->", "<!-- end of fresh -->"
LOADS = (0.70, 0.95, 1.20)
JOBS = 1000
DAY_S = 86400.0
GIB = 1024


@dataclass(frozen=True)
class Wanted:
    """A job before it has a time of arrival; ``gap`` is the wait since the one before, in any unit."""

    user: str
    name: str
    gap: float
    duration_s: float
    gpus: int
    vram: int
    priority: Priority = Priority.NORMAL


Family = Callable[[random.Random], Iterator[Wanted]]


def lab(dice: random.Random, *, most: int = 80, wide: tuple[float, ...] = (0.90, 0.06, 0.03, 0.01)) -> Iterator[Wanted]:
    """Day and night, few users with much, sweeps of 6 to 40, experiments with a stable memory and run time."""
    users = [f"u{n:02d}" for n in range(14)]
    weights = [1 / (n + 1) for n in range(14)]
    kinds = {
        user: [(f"{user}-exp{n}", _vram(dice, most), dice.choices([1, 2, 4, 8][: len(wide)], wide)[0],
                dice.lognormvariate(7.0, 1.3)) for n in range(4)]
        for user in users
    }  # fmt: skip
    while True:
        user = dice.choices(users, weights)[0]
        name, vram, gpus, typical = dice.choice(kinds[user])
        for element in range(dice.randint(6, 40) if dice.random() < 0.15 else 1):
            crashes = dice.random() < 0.10
            lasts = dice.uniform(3, 60) if crashes else typical * dice.lognormvariate(0.0, 0.35)
            priority = _priority(dice)
            yield Wanted(user, name, 0.002 if element else dice.expovariate(1.0), lasts, gpus, vram, priority)


def lab2g(dice: random.Random) -> Iterator[Wanted]:
    return lab(dice, most=24, wide=(0.93, 0.07))


def course(dice: random.Random) -> Iterator[Wanted]:
    """Forty students with the same small assignment, ever more towards the deadline, and three who do research."""
    for number in range(1_000_000):
        if dice.random() < 0.08:
            user = f"phd{dice.randrange(3)}"
            lasts, vram, gpus = dice.lognormvariate(10.0, 0.6), dice.choice([24, 40, 80]) * GIB, dice.choice([1, 1, 2])
            yield Wanted(user, f"{user}-main", dice.expovariate(1.0), lasts, gpus, vram)
        else:
            user = f"student{dice.randrange(40):02d}"
            lasts = dice.uniform(5, 40) if dice.random() < 0.25 else dice.lognormvariate(6.2, 0.7)
            yield Wanted(
                user, "assignment", dice.expovariate(1.0 + 3.0 * number / JOBS), lasts, 1, dice.choice([4, 6, 8]) * GIB
            )


def trials(dice: random.Random) -> Iterator[Wanted]:
    """Three quarters are trials of minutes, the rest trainings whose lengths have a heavy tail; most give no limit."""
    while True:
        user = f"u{int(dice.paretovariate(0.8)) % 18:02d}"
        if dice.random() < 0.75:
            yield Wanted(
                user, f"{user}-try", dice.expovariate(1.0), dice.uniform(20, 600), 1, _vram(dice, 80), _priority(dice)
            )
        else:
            lasts = min(5 * DAY_S, 1200 * dice.paretovariate(0.9))
            yield Wanted(user, f"{user}-train{dice.randrange(3)}", dice.expovariate(1.0), lasts,
                         dice.choices([1, 2, 4], [0.8, 0.15, 0.05])[0], _vram(dice, 80), _priority(dice))  # fmt: skip


def wide(dice: random.Random) -> Iterator[Wanted]:
    """A group that trains across cards: more than a third ask for two, four or all of them."""
    return lab(dice, wide=(0.62, 0.18, 0.14, 0.06))


def models(dice: random.Random) -> Iterator[Wanted]:
    """Either small things or models that fill a card: what packs worst."""
    for wanted in lab(dice):
        vram = dice.choice([70, 75, 80]) * GIB if dice.random() < 0.35 else dice.choice([4, 8, 12]) * GIB
        yield replace(wanted, vram=vram)


def nameless(dice: random.Random) -> Iterator[Wanted]:
    """Every job has a name of its own and a length of its own: nothing to learn from but its owner."""
    for number, wanted in enumerate(lab(dice)):
        yield replace(wanted, name=f"run{number}", duration_s=dice.lognormvariate(6.5, 1.6))


FAMILIES: dict[str, tuple[Family, int, int]] = {
    family.__name__: (family, 2 if family is lab2g else 8, (24 if family is lab2g else 80) * GIB)
    for family in (lab, lab2g, course, trials, wide, models, nameless)
}


def _vram(dice: random.Random, most: int) -> int:
    sizes = [size for size in (2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80) if size <= most]
    return dice.choices(sizes, [1 / (1 + size / most) for size in sizes])[0] * GIB


def _priority(dice: random.Random) -> Priority:
    return dice.choices([Priority.LOW, Priority.NORMAL, Priority.HIGH], [0.12, 0.85, 0.03])[0]


def make(family: str, load: float, seed: int, *, jobs: int = JOBS) -> tuple[list[Traced], int, int]:
    """A trace of a family, and the number and memory of the cards it is for. The same for the same arguments."""
    source, gpus, vram = FAMILIES[family]
    dice = random.Random(f"{family} {seed}")
    wanted = [one for _, one in zip(range(jobs), source(dice), strict=False)]
    work = sum(one.duration_s * one.gpus * one.vram for one in wanted)
    unit = work / (gpus * vram * load) / sum(one.gap for one in wanted)
    at, traced = 0.0, []
    for number, one in enumerate(wanted):
        at += one.gap * unit * (0.4 if math.sin(2 * math.pi * at / DAY_S) > 0 else 1.6)
        limit = None
        if dice.random() > 0.35:
            limit = min(DAY_S, max(600.0, math.ceil(one.duration_s * 2.5 * dice.lognormvariate(0, 0.6) / 600) * 600.0))
        request, gives_way = Request(gpus=one.gpus, vram=Mib(one.vram)), dice.random() < 0.8
        job = Job(
            f"j{number:04d}", one.user, Kind.COMMAND, one.name, request, one.priority, at, at,
            preemptible=gives_way and one.priority is not Priority.HIGH, time_limit_s=limit, grace_s=0.0,
        )  # fmt: skip
        traced.append(Traced(job, max(1.0, round(one.duration_s, 1)), 0.3))
    return traced, gpus, vram


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
        page = PAGE.read_text()
        start, end = page.split(BEGIN)[0], page.split(END)[1]
        PAGE.write_text(f"{start}{BEGIN}\n{text}\n{END}{end}")


if __name__ == "__main__":
    main()
