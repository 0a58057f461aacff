"""How the journal calls what happens to a job, and what it keeps of it beside the job itself."""

from __future__ import annotations

from collections.abc import Mapping

from .machine import JobEvent
from .messages import (
    Amended,
    CancelRequested,
    Claimed,
    DependencyFailed,
    Evicted,
    Exited,
    GpuLost,
    HoldRequested,
    LaunchFailed,
    LetIn,
    MainEnded,
    Overrun,
    Placed,
    ReleaseRequested,
    Started,
    Unblocked,
    Vanished,
    Voided,
)
from .model import Job

KINDS: Mapping[type[JobEvent], str] = {
    Placed: "placed",
    Claimed: "claimed",
    Evicted: "evicted",
    Started: "started",
    MainEnded: "main_ended",
    Exited: "exited",
    LaunchFailed: "launch_failed",
    Voided: "voided",
    Vanished: "vanished",
    GpuLost: "gpu_lost",
    Overrun: "overrun_ended",
    CancelRequested: "cancel_requested",
    HoldRequested: "held",
    ReleaseRequested: "hold_released",
    Unblocked: "unblocked",
    DependencyFailed: "dependency_failed",
    LetIn: "let_in",
    Amended: "amended",
}


def detail_of(event: JobEvent, job: Job) -> dict[str, object]:
    """What the journal says of an event beside the job that it led to."""
    match event:
        case Placed(_, grants, _):
            return {"gpus": [grant.gpu for grant in grants]}
        case Claimed(_, claim, rests_until):
            told_of: dict[str, object] = {"gpus": None if claim is None else list(claim.gpus)}
            return told_of if rests_until is None else {**told_of, "rests_until": rests_until}
        case Exited(_, attempt, record, _):
            told: dict[str, object] = {"code": record.code, "signal": record.signal, "reason": job.attempts[-1].reason}
            if record.survivors:
                told["survivors"] = list(record.survivors)
            if record.stragglers:
                told["stragglers_killed"] = record.stragglers
            return {"attempt": attempt, **told}
        case LaunchFailed(_, attempt, reason, _):
            return {"attempt": attempt, "reason": reason}
        case CancelRequested(_, by, _) | Amended(_, by, _) | ReleaseRequested(_, by):
            return {"by": by}
        case HoldRequested(_, by, cause):
            return {"by": by, "cause": cause}
        case DependencyFailed(_, parent, _):
            return {"parent": parent}
        case Unblocked() | LetIn():
            return {}
        case GpuLost(_, attempt, what) | Overrun(_, attempt, what):
            return {"attempt": attempt, "what": what}
        case Evicted(_, attempt, by, _):
            return {"attempt": attempt, "for": by}
        case _:
            return {"attempt": event.attempt}
