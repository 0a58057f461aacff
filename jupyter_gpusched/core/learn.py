"""How much VRAM a job is given that asks for ``auto``: what earlier runs of it were seen to use.

Pure: the runs come in, the amount and the sentence that explains it go out. Which runs are
the same work is the store's to find, by what they run or by their name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .ledger import exact
from .model import Attempt, BadRequest, Job, Phase
from .quantities import Mib, show_mib

RUNS = 5
"""So many of the latest successful runs are looked at."""

STEP_MIB, MARGIN_MIB = 256, 256


def learned_amount(runs: Sequence[Job], *, name: str, simulated: bool, largest: Mib | None) -> tuple[Mib, str]:
    """The amount for the next run of a job, and where it comes from.

    runs       ended runs of the same work, newest first.
    simulated  there use is the promise, so that a margin would only grow from run to run.
    largest    what some card can hold at all.
    Raises ``BadRequest`` where nothing can be learned yet.
    """
    good = [run for run in runs if run.phase is Phase.SUCCEEDED and run.attempts and _peak(run.attempts[-1])][:RUNS]
    newer = [run for run in runs if not good or run.submitted_at > good[0].submitted_at]
    fell_short = [need for run in newer for attempt in run.attempts if (need := _more_than(attempt)) is not None]
    if not good and not fell_short:
        raise BadRequest(
            f"vram: no earlier run of {name!r} has a measured peak, so `auto` has nothing to go by.",
            field="vram",
            hint="Give --vram once, for example --vram 8G; when that run has ended, `auto` knows.",
        )
    told, amounts = [], []
    needed = max(fell_short, default=0.0)
    if good:
        peak = max(_peak(run.attempts[-1]) or 0 for run in good)
        needed = max(needed, peak)
        amounts.append(peak if simulated else peak * 1.1 + MARGIN_MIB)
        runs_of = "the last run" if len(good) == 1 else f"the last {len(good)} runs"
        told.append(
            f"what {runs_of} of {name!r} had asked for, at most {show_mib(peak)}; simulated cards measure nothing"
            if simulated
            else f"the peak of {runs_of} of {name!r}, {show_mib(peak)}, with a tenth and {MARGIN_MIB}M on top"
        )
    if fell_short:
        amounts.append(max(fell_short))
        told.append(
            "more than what a later run ran out of memory with" if good else "more than an earlier run ran out with"
        )
    wanted = math.ceil(max(amounts) / STEP_MIB) * STEP_MIB
    held = wanted if largest is None or needed > largest else min(wanted, largest)
    return Mib(held), f"vram auto: {exact(Mib(held))}, from {' and '.join(told)}"


def _peak(attempt: Attempt) -> Mib | None:
    return attempt.peak_vram_mib


def _more_than(attempt: Attempt) -> float | None:
    """What an attempt that ran out of memory would have needed at least, as far as is known."""
    if attempt.reason != "cuda_oom" or not attempt.gpus:
        return None
    had = max(grant.promised for grant in attempt.gpus)
    asked = attempt.shortage.asked if attempt.shortage is not None else None
    wanted = 0.0 if asked is None else 1.1 * ((attempt.peak_vram_mib or 0) + asked)
    return max(1.25 * had, wanted)
