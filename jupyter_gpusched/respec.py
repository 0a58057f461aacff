"""From a job back to the submission that leads to it: for resubmission, changes and whoever asks what was submitted.

The counterpart of ``submission``, which reads what is written here.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .core.model import Job, Work
from .wire import TERMS, JobSpec


def spec_of(job: Job, work: Work) -> JobSpec:
    """The submission that leads to this job again, without its captured values."""
    request = job.request
    return JobSpec(
        kind=job.kind,
        name=job.name,
        vram="auto" if job.learned is not None else _amount(request.vram),
        gpus=request.gpus,
        cpus=request.cpus,
        memory=_amount(request.memory),
        exclusive=request.exclusive,
        gpu_model=request.gpu_model,
        preferred_gpus=list(request.preferred_gpus),
        priority=job.priority,
        time_limit=None if job.time_limit_s is None else _span(job.time_limit_s),
        retries=job.retries,
        on_oom=None if job.on_oom == "fail" else job.on_oom,
        cap=job.cap,
        preemptible=job.preemptible,
        signal=None if job.notice is None else f"{job.notice.signal}@{_span(job.notice.before_s)}",
        after=list(job.after.jobs) if job.after is not None else [],
        after_when=job.after.when if job.after is not None and job.after.when != "succeeded" else None,
        grace=_span(job.grace_s),
        inputs=list(work.inputs),
        outputs=list(work.outputs),
        env=work.env,
        cwd=work.cwd,
        python=work.python,
        tags=list(job.tags),
        argv=work.shell if work.shell is not None else list(work.argv) or None,
        path=work.path,
        args=list(work.args),
        parameters=work.parameters or None,
        source=work.source,
        notebook=job.notebook,
        sweep=dict(job.sweep) or None,
        item=work.item,
    )


def _amount(mib: int | None) -> str | None:
    return None if mib is None else f"{mib}M"


def _span(seconds: float) -> str:
    """Never in the form 1e+06, which no reader of spans takes."""
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"


def terms_of(job: Job) -> dict[str, Any]:
    """What a waiting job was submitted with that may still be changed."""
    spec = msgspec.to_builtins(spec_of(job, Work(job.kind, cwd="/")))
    spec["vram"] = _amount(job.request.vram)  # what was learned has been worked out
    return {field: value for field, value in spec.items() if field in TERMS and value is not None}
