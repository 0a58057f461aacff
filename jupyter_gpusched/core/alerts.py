"""What a person should look at now, derived from the state and from nothing else.

Each rule is a function of the state; ``settle`` compares what they say with the alerts that
stand and writes down what was raised and what has resolved by itself. An alert stands once per
episode. No rule changes anything; another kind of alert is one more rule in ``RULES``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace

from .advice import amount_for
from .idle import Key, Quiet, card_key, job_key, pid_key
from .messages import MachineChange
from .model import Foreign, Gpu, Job, Opener, Phase
from .operations import Alert
from .quantities import show_mib, show_seconds
from .state import State, Step

SETTLED_S = 5.0
"""So long memory must be without an owner: process lists and memory are not read at the same instant."""

Rule = Callable[[State, float], Iterator[Alert]]


def settle(state: State, now: float, *, fault: str | None = None) -> Step:
    """Raise and resolve. ``fault`` is what is wrong with the driver as a whole, in one sentence."""
    standing = state.operations.alerts
    found = {alert.id: alert for rule in RULES for alert in rule(state, now)}
    if fault is not None:
        found = {key: alert for key, alert in found.items() if alert.kind != "driver"}  # it says it for all cards
        found["driver"] = Alert("driver", "driver", fault, now, "error", hint=_DRIVER)
    if not state.gpus:  # nobody has looked at the cards yet, or no driver answers: what stood of them still stands
        found |= {alert.id: alert for alert in standing.values() if alert.gpu_uuid is not None}
    after = {key: replace(alert, since=standing[key].since if key in standing else alert.since)
             for key, alert in found.items()}  # fmt: skip
    if after == standing:
        return Step(state)
    operations = replace(state.operations, alerts=after)
    changes = [
        MachineChange(operations, kind, now, {"alert": asdict(alert)})
        for kind, alerts in (("alert_raised", _new(after, standing)), ("alert_resolved", _new(standing, after)))
        for alert in alerts
    ]
    return Step(replace(state, operations=operations), tuple(changes))


def _new(these: Mapping[str, Alert], those: Mapping[str, Alert]) -> list[Alert]:
    return [alert for key, alert in these.items() if key not in those]


_DRIVER = "`jupyter gpusched doctor` looks at it; running jobs go on, and nothing new starts on cards meanwhile."


# --- the rules --------------------------------------------------------------------------


def _ill_cards(state: State, now: float) -> Iterator[Alert]:
    for gpu in state.gpus.values():
        named = f"GPU {gpu.index} ({gpu.name})"
        since = gpu.health_since or now
        if gpu.health == "unknown":
            words = f"{named} cannot be read: {gpu.health_cause or 'the driver does not answer for it'}."
            yield Alert(f"driver:{gpu.uuid}", "driver", words, since, "warning", _DRIVER, gpu.uuid, gpu.index)
        elif gpu.uuid in state.operations.quarantines or gpu.health == "lost":
            words = f"{named} is {gpu.health}: {gpu.health_cause}."
            hint = f"See to it, then `jupyter gpusched release {gpu.index}` gives it jobs again."
            severity = "error" if gpu.health == "lost" else "warning"
            yield Alert(f"quarantined:{gpu.uuid}", "quarantined", words, since, severity, hint, gpu.uuid, gpu.index)


def _idle_jobs(state: State, _now: float) -> Iterator[Alert]:
    """A job that holds a card on which nothing runs, and one that has no process on a card that it holds."""
    for gpu, job in _held(state):
        span = _span(state.settings.idle_after_s)
        hint = f"`jupyter gpusched cancel {job.id}` frees the card, if the job does nothing."
        about = (hint, gpu.uuid, gpu.index, job.id, job.owner)
        if (unused := _long_quiet(state, job_key(gpu, job.id, "unused"))) is not None:
            words = f"Job {job.id} has held GPU {gpu.index} for more than {span} without a process on it."
            yield Alert(f"held_unused:{gpu.uuid}:{job.id}", "held_unused", words, unused.since, "warning", *about)
        elif (idle := _long_quiet(state, job_key(gpu, job.id, "idle"))) is not None:
            held = show_mib(gpu.used_by_job.get(job.id))
            words = f"Job {job.id} holds {held} of GPU {gpu.index}, on which nothing has run for more than {span}."
            yield Alert(f"idle_job:{gpu.uuid}:{job.id}", "idle_job", words, idle.since, "warning", *about)


def _idle_kernels(state: State, _now: float) -> Iterator[Alert]:
    """A process outside of the queue, mostly a notebook's kernel, that holds memory and runs nothing."""
    for gpu in state.gpus.values():
        for process in gpu.foreign:
            idle = _long_quiet(state, pid_key(gpu, process))
            if idle is not None:
                yield _idle_kernel(gpu, process, idle, _span(state.settings.idle_after_s))


def _idle_kernel(gpu: Gpu, process: Foreign, idle: Quiet, span: str) -> Alert:
    what = "A notebook kernel" if process.kernel else "A process outside of the queue"
    whose = "" if process.user is None else f" of {process.user}"
    holds = f"(pid {process.pid}) holds {show_mib(process.vram)} of GPU {gpu.index}"
    rest = f"{holds}, on which nothing has run for more than {span}."
    own = None if process.notebook is None else f"The kernel of {process.notebook} {rest}"
    return Alert(
        f"idle_kernel:{gpu.uuid}:{process.pid}",
        "idle_kernel",
        f"{what}{whose} {rest}",
        idle.since,
        "warning",
        hint="Restart or shut down the kernel to give the memory back."
        if process.kernel
        else "End it if nobody needs it.",
        gpu_uuid=gpu.uuid,
        gpu_index=gpu.index,
        user=process.user,
        own_message=own,
    )


def _unattributed(state: State, _now: float) -> Iterator[Alert]:
    for gpu in state.gpus.values():
        quiet = state.watch.get(card_key(gpu))
        if quiet is not None and quiet.known_s >= SETTLED_S and gpu.unattributed is not None:
            words = f"GPU {gpu.index} has {show_mib(gpu.unattributed)} in use that no process admits to"
            hint = "End what still has the device open; if there is nothing, reset the card or reboot."
            about = ("warning", hint, gpu.uuid, gpu.index)
            programs = f"{words}{opened(gpu, programs=True)}." if gpu.opened_by else None
            words = f"{words}{opened(gpu)}."
            yield Alert(f"unattributed:{gpu.uuid}:", "unattributed", words, quiet.since, *about, own_message=programs)


def _overuse(state: State, _now: float) -> Iterator[Alert]:
    """A job that uses more than it was promised, while it does."""
    for job_id in sorted(state.busy):
        job = state.jobs[job_id]
        over = job.overuse
        if over is None or not over.told:
            continue
        used, promised = show_mib(over.used), show_mib(over.promised)
        words = f"Job {job.id} uses {used} of GPU {over.gpu}, where it had asked for {promised}."
        hint = f"Ask for {show_mib(amount_for(over.used))} next time; nobody else is given what it took."
        uuid = next((grant.gpu for grant in job.attempts[-1].gpus if grant.index == over.gpu), None)
        about = (hint, uuid, over.gpu, job.id, job.owner)
        yield Alert(f"overuse:{uuid}:{job.id}", "overuse", words, over.since, "warning", *about)


def _drained(state: State, _now: float) -> Iterator[Alert]:
    """Who waits for a start should see that somebody has stopped all starts, and why."""
    drain = state.operations.drain
    if drain is not None:
        words = f"Nothing new starts here: {drain.by} has drained this machine: {drain.cause}."
        hint = "What runs goes on; `jupyter gpusched resume` ends this."
        yield Alert("drained", "drained", words, drain.since, "warning", hint)


def _ends_with_server(state: State, now: float) -> Iterator[Alert]:
    """Users should know before their jobs run that nothing keeps them when the server stops."""
    why = state.settings.ends_with_server
    if why is not None:
        yield Alert("ends_with_server", "ends_with_server", f"Jobs end when this server does: {why}.", now, "warning",
                    "`jupyter gpusched doctor` says how to let them go on.")  # fmt: skip


def _policy_failed(state: State, now: float) -> Iterator[Alert]:
    """Who wrote a policy should know that it does not decide any more; jobs are placed none the less."""
    if (words := policy_failed(state)) is not None:
        yield Alert("policy", "policy", words, now, "warning", "Mend it and start this host again.")


def policy_failed(state: State) -> str | None:
    fault = state.settings.policy.fault
    return None if fault is None else f"The policy of this machine failed, and `default` decides instead: {fault}."


def opened(gpu: Gpu, *, programs: bool = False) -> str:
    """Which processes have the card's device file open, to stand behind what nobody admits to.

    programs  with what they run, which is no business of other users.
    """
    if not gpu.opened_by:
        return ""
    listed = ", ".join(_opener(opener, programs=programs) for opener in gpu.opened_by[:4])
    more = f" and {len(gpu.opened_by) - 4} more" if len(gpu.opened_by) > 4 else ""
    return f"; {gpu.device_file} is open in {listed}{more}"


def _opener(process: Opener, *, programs: bool) -> str:
    told = [process.program if programs else "", f"of {process.user}" if process.user else ""]
    about = " ".join(word for word in told if word)
    return f"pid {process.pid} ({about})" if about else f"pid {process.pid}"


RULES: tuple[Rule, ...] = (
    _ill_cards, _idle_jobs, _idle_kernels, _unattributed, _overuse, _drained, _ends_with_server, _policy_failed,
)  # fmt: skip
"""All rules. Each looks at cards and busy jobs only, since they are asked after every event."""


# --- small parts ------------------------------------------------------------------------


def _span(seconds: float) -> str:
    return show_seconds(seconds) if seconds % 60 else f"{seconds / 60:.0f} minutes"


def _held(state: State) -> Iterator[tuple[Gpu, Job]]:
    for job_id in sorted(state.busy):
        job = state.jobs[job_id]
        for grant in job.grants:
            if job.phase is Phase.RUNNING and grant.attempt == job.attempt and grant.gpu in state.gpus:
                yield state.gpus[grant.gpu], job


def _long_quiet(state: State, key: Key) -> Quiet | None:
    quiet = state.watch.get(key)
    return quiet if quiet is not None and quiet.known_s >= state.settings.idle_after_s else None
