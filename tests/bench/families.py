"""Kinds of use of a server as generators of jobs, from which `fresh_traces.py` makes traces that nobody tuned to.

`openb`, `phillyB`, `lab` and `lab2g` have the shape of the recorded families: how jobs arrive, how long they run, how
wide they are, what their names tell, who gives way; nothing in them is copied. The others are kinds of use that are
not among those: a course before its deadline, short trials among long runs, many wide jobs, models that are either
small or fill a card, and names that tell nothing. In all of them what has low priority gives way and nothing else
does, as in the recorded ones. Times of arrival are in a unit of the family's own; only their ratios matter.
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from jupyter_gpusched.core.policies import Priority

GIB = 1024
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


@dataclass(frozen=True)
class Wanted:
    """A job that somebody wants to run; ``at`` is in the family's own unit of time, ``vram`` in MiB of each card."""

    user: str
    name: str
    at: float
    duration_s: float
    gpus: int
    vram: int
    priority: Priority = Priority.NORMAL


@dataclass(frozen=True)
class Family:
    """Who makes the jobs, how many of them are a trace, and the cards that they are for."""

    source: Callable[[random.Random], Iterator[Wanted]]
    jobs: int = 1000
    gpus: int = 8
    vram: int = 80 * GIB


# --- recorded shapes ----------------------------------------------------------------------------------------------

_FRACTIONS = {80: 0.55, 64.75: 0.14, 25.5: 0.08, 37.5: 0.06, 29.5: 0.04, 18.5: 0.04, 36.75: 0.03, 44: 0.03, 17.5: 0.01,
              12.75: 0.01, 47.25: 0.005, 52: 0.005}  # fmt: skip
"""Parts of a card of 80 GiB that jobs of openb ask for; more than half take all of it."""


def openb(dice: random.Random) -> Iterator[Wanted]:
    """A service's pool: some seventy templates, most for one whole card, whose run times vary by a factor of ten."""
    templates = []
    for number in range(70):
        low = dice.random() < 0.5
        templates.append(Wanted(
            f"u{int(16 * dice.random() ** 1.5):02d}", f"tpl{number:02d}", 0.0,
            dice.lognormvariate(5.9 if low else 6.7, 1.1), 1, _fraction(dice), Priority.LOW if low else Priority.NORMAL,
        ))  # fmt: skip
    weights = [1 / (number + 1) for number in range(70)]
    at, before = 0.0, templates[0]
    while True:
        at += dice.lognormvariate(0.0, 1.2)
        if dice.random() > 0.2:
            before = dice.choices(templates, weights)[0]
        lasts = min(12 * HOUR_S, max(15.0, before.duration_s * dice.lognormvariate(0.0, 1.35)))
        wide = dice.choices([1, 2, 4, 8], [0.983, 0.004, 0.003, 0.010])[0]
        name = before.name if wide == 1 else f"{before.user}-gang{wide}"
        priority = before.priority if dice.random() < 0.9 else Priority.NORMAL
        yield replace(
            before, at=at, name=name, duration_s=lasts, gpus=wide, priority=_some_urgent(dice, priority, 0.02)
        )


def phillyB(dice: random.Random) -> Iterator[Wanted]:  # noqa: N802  the name of the recorded family
    """A cluster of research: bursts and long pauses; half of what takes one card fails at once, half takes hours."""
    weights = [1 / (number + 1) for number in range(16)]
    at, left = 0.0, 0
    while True:
        if left <= 0:
            at += dice.lognormvariate(0.0, 1.4)
            left = int(dice.lognormvariate(2.9, 1.0))
        user = f"u{dice.choices(range(16), weights)[0]:02d}"
        gpus = dice.choices([1, 2, 4, 8], [0.70, 0.08, 0.18, 0.04])[0]
        middle, spread = {1: (10.1, 0.9), 2: (9.6, 1.2), 4: (9.0, 1.6), 8: (6.8, 2.0)}[gpus]
        if gpus == 1 and dice.random() < 0.53:
            middle, spread = 2.9, 0.3
        typical = dice.lognormvariate(middle, spread)
        for _ in range(min(40, int(dice.expovariate(1 / 4)) + 1)):
            at += dice.expovariate(1.0) * 0.0001
            left -= 1
            lasts = min(DAY_S, max(5.0, typical * dice.lognormvariate(0.0, 0.4)))
            priority = dice.choices([Priority.LOW, Priority.NORMAL, Priority.HIGH], [0.41, 0.565, 0.025])[0]
            yield Wanted(user, f"{user}-g{gpus}-{dice.randrange(3)}", at, lasts, gpus, _fraction(dice), priority)


def lab(
    dice: random.Random,
    *,
    people: int = 14,
    most: int = 80,
    wide: tuple[float, ...] = (0.88, 0.07, 0.04, 0.01),
    sweeping: float = 0.2,
) -> Iterator[Wanted]:
    """By day more than at night, few users with much; sweeps of 6 to 40 on one card each give way to single runs."""
    users = [f"u{number:02d}" for number in range(people)]
    weights = [1 / (number + 1) for number in range(people)]
    kinds = {
        user: [(f"{user}-exp{n}", _gib(dice, most), dice.choices([1, 2, 4, 8][: len(wide)], wide)[0],
                dice.lognormvariate(6.9, 1.1)) for n in range(3)]
        for user in users
    }  # fmt: skip
    hours = 0.0
    while True:
        user = dice.choices(users, weights)[0]
        name, vram, gpus, typical = dice.choice(kinds[user])
        hours += dice.expovariate(4.0) / (1.0 if 9 <= hours % 24 < 21 else 0.12)
        sweeps = gpus == 1 and dice.random() < sweeping
        priority = Priority.LOW if sweeps else _some_urgent(dice, Priority.NORMAL, 0.08)
        for _ in range(dice.randint(6, 40) if sweeps else 1):
            crashes = dice.random() < 0.10
            lasts = dice.uniform(3, 60) if crashes else min(DAY_S, typical * dice.lognormvariate(0.0, 0.4))
            yield Wanted(user, name, hours, lasts, gpus, vram, priority)


def lab2g(dice: random.Random) -> Iterator[Wanted]:
    """The same on a workstation with two small cards."""
    return lab(dice, people=6, most=24, wide=(0.85, 0.15))


# --- others -------------------------------------------------------------------------------------------------------


def course(dice: random.Random) -> Iterator[Wanted]:
    """Forty students with the same small assignment, ever more towards the deadline, and three whose research waits."""
    at = 0.0
    for number in range(1_000_000):
        at += dice.expovariate(1.0 + 3.0 * number / 1000)
        if dice.random() < 0.12:
            user = f"phd{dice.randrange(3)}"
            lasts, vram = dice.lognormvariate(8.0, 0.6), dice.choice([24, 40, 80]) * GIB
            yield Wanted(user, f"{user}-main", at, lasts, dice.choice([1, 1, 1, 2]), vram, Priority.LOW)
        else:
            lasts = dice.uniform(5, 40) if dice.random() < 0.25 else dice.lognormvariate(6.2, 0.7)
            user, vram = f"student{dice.randrange(40):02d}", dice.choice([4, 6, 8]) * GIB
            yield Wanted(user, "assignment", at, lasts, 1, vram, _some_urgent(dice, Priority.NORMAL, 0.02))


def trials(dice: random.Random) -> Iterator[Wanted]:
    """Three quarters are trials of minutes, the rest trainings whose lengths have a heavy tail, up to six hours."""
    at = 0.0
    while True:
        at += dice.expovariate(1.0)
        user = f"u{int(dice.paretovariate(0.8)) % 18:02d}"
        if dice.random() < 0.75:
            lasts, priority = dice.uniform(20, 600), _some_urgent(dice, Priority.NORMAL, 0.04)
            yield Wanted(user, f"{user}-try", at, lasts, 1, _gib(dice, 80), priority)
        else:
            name, lasts = f"{user}-train{dice.randrange(3)}", min(6 * HOUR_S, 1200 * dice.paretovariate(1.1))
            priority = Priority.LOW if dice.random() < 0.4 else Priority.NORMAL
            gpus = dice.choices([1, 2, 4], [0.8, 0.15, 0.05])[0]
            yield Wanted(user, name, at, lasts, gpus, _gib(dice, 80), priority)


def wide(dice: random.Random) -> Iterator[Wanted]:
    """A group that trains across cards: a third of its experiments take two, four or all of them, and few are swept."""
    return lab(dice, wide=(0.62, 0.18, 0.14, 0.06), sweeping=0.06)


def models(dice: random.Random) -> Iterator[Wanted]:
    """Either small things or models that fill a card: what packs worst."""
    sizes: dict[str, int] = {}
    for wanted in lab(dice):
        if wanted.name not in sizes:
            sizes[wanted.name] = (dice.choice([72, 76, 80]) if dice.random() < 0.35 else dice.choice([4, 8, 12])) * GIB
        yield replace(wanted, vram=sizes[wanted.name])


def nameless(dice: random.Random) -> Iterator[Wanted]:
    """Every job has a name of its own and a length of its own: nothing to learn from but its owner."""
    for number, wanted in enumerate(lab(dice)):
        yield replace(wanted, name=f"run{number}", duration_s=min(6 * HOUR_S, dice.lognormvariate(6.5, 1.5)))


FAMILIES = {
    "openb": Family(openb),
    "phillyB": Family(phillyB),
    "lab": Family(lab),
    "lab2g": Family(lab2g, jobs=600, gpus=2, vram=24 * GIB),
    "course": Family(course),
    "trials": Family(trials),
    "wide": Family(wide),
    "models": Family(models),
    "nameless": Family(nameless),
}


def _fraction(dice: random.Random) -> int:
    return math.floor(dice.choices(list(_FRACTIONS), list(_FRACTIONS.values()))[0] * GIB)


def _gib(dice: random.Random, most: int) -> int:
    sizes = [size for size in (2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80) if size <= most]
    return dice.choices(sizes, [1 / (1 + size / most) for size in sizes])[0] * GIB


def _some_urgent(dice: random.Random, priority: Priority, part: float) -> Priority:
    return Priority.HIGH if dice.random() < part else priority
