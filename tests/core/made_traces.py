"""Made-up traces of a few shapes for the tests of the simulator."""

from __future__ import annotations

import random

from jupyter_gpusched.core.trace import Traced, read_trace

HEAD = "job_id,user,name,submit_s,duration_s,gpus,vram_mib,priority,preemptible,est_s,sm_pct\n"


def traced(text: str) -> list[Traced]:
    return read_trace(text.splitlines(keepends=True))


def lab(jobs: int = 160, *, seed: int = 1, load: float = 1.0) -> list[Traced]:
    """A made-up lab: sweeps of few users, run times by name, some urgent and some preemptible work."""
    dice, lines, at = random.Random(seed), [], 0.0
    typical = {}
    for number in range(jobs):
        if dice.random() < 0.3:
            at += dice.expovariate(load / 400.0)
        user = f"u{min(int(dice.paretovariate(1.0)), 6)}"
        name = f"{user}-{dice.randrange(3)}"
        seconds, vram = typical.setdefault(name, (dice.lognormvariate(6.5, 1.2), dice.choice([2, 6, 10, 20]) * 1024))
        lasts = max(1.0, seconds * dice.lognormvariate(0, 0.3))
        priority = dice.choices([0, 1, 2], [0.2, 0.75, 0.05])[0]
        estimate = "" if dice.random() < 0.4 else f"{60 * round(lasts * 2.5 / 60 + 1)}"
        gpus = dice.choices([1, 2], [0.9, 0.1])[0]
        asks = f"{gpus},{vram},{priority},{int(priority == 0)},{estimate}"
        lines.append(f"j{number:04d},{user},{name},{at:.1f},{lasts:.1f},{asks},60\n")
    return traced(HEAD + "".join(lines))


def wide(jobs: int = 160, *, seed: int = 1, load: float = 1.0) -> list[Traced]:
    """Half of them want both cards nearly whole, and all urgent ones; small and long preemptible ones in between."""
    dice, lines, at = random.Random(seed), [], 0.0
    for number in range(jobs):
        at += dice.expovariate(load / 900.0)
        gpus = dice.choice([1, 2])
        lasts = dice.choice([30.0, 600.0, 3000.0]) * dice.lognormvariate(0, 0.5)
        priority = dice.choices([0, 1, 2], [0.45, 0.45, 0.1])[0] if gpus == 1 else dice.choice([1, 1, 2])
        vram = dice.choice([18, 22]) * 1024 if gpus == 2 else dice.choice([1, 4, 12]) * 1024
        asks = f"{gpus},{vram},{priority},{int(priority == 0)},"
        lines.append(f"j{number:04d},u{dice.randrange(4)},n{gpus},{at:.1f},{lasts:.1f},{asks},90\n")
    return traced(HEAD + "".join(lines))


def strangers(jobs: int = 160, *, seed: int = 1, load: float = 1.0) -> list[Traced]:
    """Bursts of jobs of which no name says anything, whose owners estimate badly or not at all, by many users."""
    dice, lines, at = random.Random(seed), [], 0.0
    for number in range(jobs):
        if number % 12 == 0:
            at += dice.expovariate(load / 4000.0)
        lasts = min(20_000.0, 40.0 * dice.paretovariate(0.7))
        estimate = "" if dice.random() < 0.7 else f"{60 * round(lasts * dice.uniform(0.3, 8) / 60 + 1)}"
        asks = f"1,{dice.choice([3, 7, 11, 23]) * 1024},{dice.choice([0, 1, 1, 1])},0,{estimate}"
        lines.append(f"j{number:04d},u{dice.randrange(12)},n{number},{at:.1f},{lasts:.1f},{asks},30\n")
    return traced(HEAD + "".join(lines))


SHAPES = {"lab": lab, "wide": wide, "strangers": strangers}
