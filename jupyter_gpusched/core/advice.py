"""What a job's owner is told about the VRAM it asked for, from what it was seen to use.

Words only, about one job; the figures are those of the job's record. Simulated cards measure
nothing, so nothing is said there.
"""

from __future__ import annotations

import math

from .model import Attempt, Job, Outcome, Phase
from .quantities import Mib, show_mib

STEP_MIB = 512
LEAST_RUN_S = 60.0
"""A shorter run may not have come to what needs the memory."""

OVERRUN_MIB = 256
"""So much more than it had asked for is worth one however the run ended: contexts and frameworks are not exact."""

WORTH_SAYING_MIB, WORTH_SAYING_SHARE = 1024, 0.25
"""So much less, in MiB and as a share of what was asked for, is worth a sentence."""


def amount_for(peak: float) -> Mib:
    """What to ask for next time: a tenth more than the peak, in steps of half a GiB."""
    return Mib(math.ceil(peak * 1.1 / STEP_MIB) * STEP_MIB)


def advice(job: Job, *, simulated: bool) -> str | None:
    """One sentence, or None when there is nothing to say."""
    if job.overuse is not None and job.overuse.told and not job.phase.final:
        over = job.overuse
        above = show_mib(over.used - over.promised)
        return (
            f"uses {show_mib(over.used)} on GPU {over.gpu}, {above} more than the {show_mib(over.promised)} "
            f"it asked for: ask for {show_mib(amount_for(over.used))} next time"
        )
    if simulated or not job.phase.final or not job.attempts:
        return job.learned
    last = job.attempts[-1]
    return _of_overrun(job, last) or (_of_finished(job, last) if job.phase is Phase.SUCCEEDED else None) or job.learned


def _of_overrun(job: Job, last: Attempt) -> str | None:
    """However it ended, and however soon: it took clearly more than it had asked for."""
    if job.request.whole_cards or not last.gpus or last.peak_vram_mib is None:
        return None
    if last.reason == "vram_exceeded":  # whose message says the same
        return None
    asked, peak = max(grant.promised for grant in last.gpus), last.peak_vram_mib
    return None if peak - asked <= OVERRUN_MIB else _next_time(f"asked {show_mib(asked)}", peak)


def _next_time(had: str, peak: float) -> str:
    return f"{had}, peak {show_mib(peak)}: ask for {show_mib(amount_for(peak))} next time"


def _of_finished(job: Job, last: Attempt) -> str | None:
    peak = last.peak_vram_mib
    if peak is None or last.outcome is not Outcome.SUCCEEDED or not last.gpus:
        return None
    if last.started_at is None or last.ended_at is None or last.ended_at - last.started_at < LEAST_RUN_S:
        return None
    asked = max(grant.promised for grant in last.gpus)
    had = f"{'had a whole card of' if job.request.whole_cards else 'asked'} {show_mib(asked)}"
    if peak == 0:
        return f"{had} and never used the GPU: with --gpus 0 it would not wait for one"
    if peak <= asked and asked - amount_for(peak) < max(WORTH_SAYING_MIB, asked * WORTH_SAYING_SHARE):
        return None
    return _next_time(had, peak)
