"""Jobs and GPUs in plain words, for the notebook's text and for the terminal.

Takes views (plain JSON objects) and returns text without colours or codes. Missing values
are shown as ``n/a``, never as 0.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .core.quantities import show_mib, show_seconds

View = dict[str, Any]

FINAL = frozenset({"succeeded", "failed", "cancelled", "timeout", "lost"})
SIMULATED = "SIMULATED"
ENDED = {
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "was cancelled",
    "timeout": "ran out of time",
    "lost": "is lost",
}
"""How a job ended, after "the job"."""


OLD_S = 5.0
"""Figures of a card that are older are said to be."""


def one_line(text: str | None) -> str:
    """Text of a job or its owner on one line, without characters that a terminal would obey."""
    return " ".join("".join(c if c.isprintable() else " " for c in text or "").split())


def wants(view: View) -> str:
    """What it asks for: ``4.0G on 1 GPU``, ``2 whole GPUs``, ``no GPU``."""
    count = view["gpus_requested"]
    if not count:
        return "no GPU"
    plural = "s" if count > 1 else ""
    if view["vram_mib"] is None:
        return f"{count} whole GPU{plural}"
    each = "each of " if count > 1 else ""
    return f"{show_mib(view['vram_mib'])} on {each}{count} GPU{plural}"


def where(view: View) -> str:
    """The cards it has: ``GPU 0, GPU 2``."""
    return ", ".join(f"GPU {gpu['index']}" for gpu in view["gpus"])


def lasted(view: View, now: float) -> str | None:
    """How long it has run or ran, or has waited if it has not started."""
    if view["started_at"] is not None:
        verb = "ran" if view["phase"] in FINAL else "for"
        return f"{verb} {show_seconds((view['ended_at'] or now) - view['started_at'])}"
    if view["phase"] == "queued":
        return f"waiting for {show_seconds(now - view['submitted_at'])}"
    return None


def progress(view: View) -> str | None:
    """How far it is, as far as it says so: ``40 % · train: 4/10 · about 6s to go``."""
    known = view["progress"]
    if not known or view["phase"] in FINAL:
        return None
    left = known["remaining_s"]
    parts = [
        None if known["fraction"] is None else f"{int(100 * known['fraction'])} %",
        one_line(known["text"]),
        f"about {show_seconds(left)} to go" if left and left >= 1 else None,
    ]
    return " · ".join(part for part in parts if part)


def memory(view: View) -> str | None:
    """What it has of what it asked for: ``3.2G used, peak 3.5G``."""
    used, peak = view["used_vram_mib"], view["peak_vram_mib"]
    parts = [
        f"{show_mib(used)} used" if used is not None and view["phase"] not in FINAL else None,
        f"peak {show_mib(peak)}" if peak is not None else None,
    ]
    return ", ".join(part for part in parts if part) or None


def remaining(view: View, now: float) -> str | None:
    """What is left of its time limit."""
    limit, started = view["time_limit_s"], view["started_at"]
    if limit is None or started is None or view["phase"] in FINAL:
        return None
    return f"{show_seconds(started + limit - now)} left of {show_seconds(limit)}"


def ending(view: View) -> str | None:
    """How it ended: ``exit code 3: ...``, ``signal 9: ...``."""
    if view["phase"] not in FINAL or view["phase"] == "succeeded":
        return None
    code = f"exit code {view['exit_code']}" if view["exit_code"] is not None else None
    code = f"signal {view['signal']}" if view["signal"] is not None else code
    message = one_line(view["message"]) or view["reason"]
    if code and message and code in message:
        code = None
    return ": ".join(part for part in (code, message) if part) or None


def sentence(view: View) -> str | None:
    """Why it waits, what is wrong with it, or how it ended."""
    if view["phase"] == "queued":
        place = f" (number {view['position']} in the queue)" if view["position"] and view.get("in_line", True) else ""
        starts = expected(view)
        return f"{one_line(view['waiting']) or 'waiting'}{place}" + (f"; {starts}" if starts else "")
    if view["overuse_mib"] is not None:
        return one_line(view["advice"]) or None
    return ending(view)


def expected(view: View, now: float | None = None) -> str | None:
    """When it will probably start, in local time: ``starts at about 14:20 (13:50 to 15:10)``."""
    spread = view.get("estimated_start_range")
    if view["estimated_start"] is None or not spread:
        return None
    now = time.time() if now is None else now
    at, earliest, latest = (time_of_day(moment, now) for moment in (view["estimated_start"], *spread))
    return f"starts at about {at}" + (f" ({earliest} to {latest})" if earliest != latest else "")


def time_of_day(at: float, now: float) -> str:
    """A moment in local time, with its weekday or date where that is not today's."""
    moment, today = time.localtime(at), time.localtime(now)
    if moment[:3] == today[:3]:
        return time.strftime("%H:%M", moment)
    return time.strftime("%a %H:%M" if abs(at - now) < 6 * 86400 else "%Y-%m-%d %H:%M", moment)


def explained(view: View) -> str:
    """Why it waits or how it ended, and what became of each attempt; one sentence a line."""
    first = sentence(view) or ("it succeeded" if view["phase"] == "succeeded" else f"it is {view['phase']}")
    same = len(view["attempts"]) == 1 and view["phase"] in FINAL  # the job's own sentence says how it ended
    told = []
    for attempt in view["attempts"]:
        said = (attempt.get("placement"), None if same else attempt["message"])
        told += [f"attempt {attempt['number']}: {one_line(words)}" for words in said if words]
    queued = [one_line(sentence) for sentence in view.get("explanation") or []]
    advice = one_line(view["advice"])
    return "\n".join([first, *queued, *told, *([advice] if advice and advice != first else [])])


def held_before(view: View, attempt: View, timeline: Sequence[View], most: int = 5) -> str:
    """Who held what on a card before an attempt ran out of memory: the last few changes, a line each."""
    lines = []
    for gpu in attempt["gpus"]:
        rows = [row for row in timeline if row["gpu_uuid"] == gpu["uuid"]][-most:]
        if rows:
            lines.append(f"GPU {gpu['index']} before attempt {attempt['number']} ran out of memory:")
        ended = attempt["ended_at"] or (rows[-1]["at"] if rows else 0.0)
        for row in rows:
            ago = f"-{show_seconds(ended - row['at'])}"
            held = [_held(holder, view["id"]) for holder in row["holders"]]
            lines.append(f"  {ago:<7}" + ", ".join([f"{show_mib(row['free_mib'])} free", *held]))
    return "".join(f"{line}\n" for line in lines)


def _held(holder: View, own: str) -> str:
    """One holder: ``this job 2.0G of 4.0G``, ``bob 1.0G of 8.0G``, ``outside the queue (eve) 3.0G``."""
    user = one_line(holder["user"]) or "unknown user"
    who = f"outside the queue ({user})" if holder["kind"] == "foreign" else user
    if holder["job_id"] is not None:
        who = "this job" if holder["job_id"] == own else f"job {holder['job_id']}"
    promised = "" if holder["promised_mib"] is None else f" of {show_mib(holder['promised_mib'])}"
    return f"{who} {show_mib(holder['vram_mib'])}{promised}"


def headline(view: View) -> str:
    parts = [f"Job {view['id']}", view["phase"], name_of(view), wants(view)]
    if view["gpus"] and view["phase"] not in FINAL:
        parts.append(where(view))
    parts += [SIMULATED] if view["simulated"] else []
    return " · ".join(part for part in parts if part)


def details(view: View, now: float | None = None) -> str:
    """Everything about one job, a fact a line."""
    now = time.time() if now is None else now
    facts = {
        "id": view["id"],
        "name": name_of(view),
        "user": one_line(view["user"]),
        "array": view["array_id"],
        "sweep": ", ".join(f"{name}={value}" for name, value in (view["sweep"] or {}).items()) or None,
        "kind": view["kind"],
        "phase": view["phase"],
        "why": sentence(view),
        "asks for": wants(view),
        "on": ", ".join(f"GPU {gpu['index']} {gpu['name']} {gpu['uuid']}" for gpu in view["gpus"]) or None,
        "CPUs": view["cpus"],
        "memory": None if view["memory_mib"] is None else show_mib(view["memory_mib"]),
        "priority": view["priority"],
        "submitted": _clock(view["submitted_at"]),
        "started": _clock(view["started_at"]),
        "ended": _clock(view["ended_at"]),
        "time": ", ".join(part for part in (lasted(view, now), remaining(view, now)) if part) or None,
        "progress": progress(view),
        "VRAM used": None if view["used_vram_mib"] is None else show_mib(view["used_vram_mib"]),
        "VRAM peak": None if view["peak_vram_mib"] is None else show_mib(view["peak_vram_mib"]),
        "after": ", ".join(view["after"]) or None,
        "attempts": len(view["attempts"]) or None,
        "notebook": view["notebook"],
        "tags": ", ".join(view["tags"]) or None,
        "cap": {"cooperative": "cooperative: frameworks are asked, not forced, to stay within it"}.get(
            view["cap"] or ""
        ),
        "advice": None if view["overuse_mib"] is not None else one_line(view["advice"]) or None,  # it stands above
        "cards": SIMULATED if view["simulated"] else None,
    }
    return "\n".join(f"{name + ':':<11}{value}" for name, value in facts.items() if value is not None)


_IN_ORDER = ("running", "starting", "stopping", "queued", "succeeded", "failed", "timeout", "lost", "cancelled")


def standing(phases: Mapping[str, int], held: int = 0) -> str:
    """How many jobs are in which phase: ``1 running · 2 queued · 1 held``; those that are held are not also queued."""
    left = {**phases, "queued": phases.get("queued", 0) - held}
    known = [*_IN_ORDER, *sorted(set(left) - set(_IN_ORDER))]
    told = [f"{left[phase]} {phase}" for phase in known if left.get(phase)]
    return " · ".join([*told, *([f"{held} held"] if held else [])])


def jobs_counted(count: int) -> str:
    """``1 job``, ``2 jobs``."""
    return f"{count} job{'' if count == 1 else 's'}"


def element_of(view: View) -> str:
    """Which element of its array a job is, and the values that it was given there: ``#2, lr=0.1``."""
    number = view["array_index"]
    values = (view["sweep"] or {}).items()
    told = [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in values]
    return one_line(", ".join([*([] if number is None else [f"#{number}"]), *told]))


def name_of(view: View, most: int | None = None) -> str:
    """Its name, of at most so many characters; of an element of an array with its number."""
    name, number = one_line(view["name"]), view["array_index"]
    shown = name if most is None or len(name) <= most else f"{name[: most - 1]}…"
    return shown + ("" if number is None else f"[{number}]")


def _clock(at: float | None) -> str | None:
    return None if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def job_rows(views: Sequence[View], now: float | None = None) -> list[list[str]]:
    """A table of jobs: heading first."""
    now = time.time() if now is None else now
    heading = ["ID", "PHASE", "NAME", "VRAM", "GPUS", "ON", "TIME", "WHY"]
    rows = [heading, *(_job_row(view, now) for view in views)]
    if len({view["user"] for view in views}) < 2:
        return rows
    users = ["USER", *(one_line(view["user"]) for view in views)]
    return [[row[0], user, *row[1:]] for row, user in zip(rows, users, strict=True)]


def _job_row(view: View, now: float) -> list[str]:
    whole = "whole" if view["gpus_requested"] else "-"
    return [
        view["id"],
        view["phase"],
        name_of(view, most=40),
        whole if view["vram_mib"] is None else show_mib(view["vram_mib"]),
        str(view["gpus_requested"]),
        ",".join(str(gpu["index"]) for gpu in view["gpus"]) or "-",
        (lasted(view, now) or "-").rpartition(" ")[2],
        sentence(view) or "",
    ]


def gpu_rows(gpus: Sequence[View]) -> list[list[str]]:
    """A table of GPUs: heading first."""
    rows = [["GPU", "NAME", "USED", "TOTAL", "PROMISED", "AVAILABLE", "UTIL", "JOBS", "STATE"]]
    return rows + [_gpu_row(gpu) for gpu in gpus]


def _gpu_row(gpu: View) -> list[str]:
    used, total = gpu["used_mib"], gpu["total_mib"]
    load = gpu["utilization_pct"]
    return [
        str(gpu["index"]),
        one_line(gpu["name"]),
        f"{show_mib(used)} {bar(used, total)}",
        show_mib(total),
        show_mib(gpu["promised_mib"]),
        show_mib(gpu["available_mib"]),
        "n/a" if load is None else f"{load:.0f}%",
        ",".join(holder["job_id"] for holder in gpu["holders"] if holder["job_id"]) or "-",
        gpu_state(gpu),
    ]


def gpu_state(gpu: View) -> str:
    health = gpu["health"]
    cause = f" ({one_line(health['cause'])})" if health["cause"] else ""
    return f"{health['status']}{cause}" + (f" {SIMULATED}" if gpu["simulated"] else "")


def gpu_notes(gpus: Sequence[View], now: float | None = None) -> str:
    """What the table has no room for: figures that are old, who holds how much since when; one a line."""
    now = time.time() if now is None else now
    return "\n".join(note for gpu in gpus for note in _gpu_notes(gpu, now))


def _gpu_notes(gpu: View, now: float) -> list[str]:
    notes = []
    if gpu["used_mib"] is not None and now - gpu["sampled_at"] > OLD_S:
        notes.append(f"GPU {gpu['index']}: these figures are {show_seconds(now - gpu['sampled_at'])} old")
    held = [_holder(holder, now) for holder in gpu["holders"] if holder["kind"] != "foreign"]
    outside = [_outsider(holder, now) for holder in gpu["holders"] if holder["kind"] == "foreign"]
    if gpu.get("unattributed_mib"):
        outside.append(f"{show_mib(gpu['unattributed_mib'])} that no process admits to")
    kept = [f"GPU {gpu['index']}: {reserved(one, now)}" for one in gpu.get("reservations") or []]
    notes += [f"GPU {gpu['index']}: {words}" for words in held]
    return [*notes, *(f"GPU {gpu['index']}: outside the queue: {words}" for words in outside), *kept]


def reserved(one: View, now: float) -> str:
    """For whom a card is kept, when and why: ``reserved for ann 13:00 to 17:00 (demo)``, in local time."""
    whom = one_line(one["user"]) or "work outside the queue"
    start, end = (time_of_day(at, now) for at in (one["start"], one["end"]))
    when = f"until {end}" if one["active"] else f"{start} to {end}"
    cause = f" ({one_line(one['cause'])})" if one["cause"] else ""
    return f"reserved for {whom} {when}{cause}" + (f"; {staying(one)}" if one["reaching_in"] else "")


def staying(one: View) -> str:
    """What may be on a reserved card none the less."""
    jobs = one["reaching_in"]
    return f"{jobs} other job{'s' if jobs > 1 else ''} may still run there"


def _holder(holder: View, now: float) -> str:
    """A job's share, of others' jobs without id and name: ``10.0G promised to bob, for 3m10s``."""
    freed = holder["state"] == "releasing"
    amount = (
        f"{show_mib(holder['vram_mib'])} being freed by" if freed else f"{show_mib(holder['promised_mib'])} promised to"
    )
    name = f" ({one_line(holder['name'])})" if holder["name"] else ""
    job = f"job {holder['job_id']}{name}" if holder["job_id"] else None
    user = None if holder["mine"] else one_line(holder["user"]) or "somebody"
    since = f", for {show_seconds(now - holder['since'])}" if holder["since"] is not None else ""
    return f"{amount} {' of '.join(part for part in (job, user) if part)}{since}"


def _outsider(holder: View, now: float) -> str:
    """A process that is none of ours: ``12.0G, process 812 of ada, for 3m10s (train.ipynb)``."""
    whose = f" of {one_line(holder['user'])}" if holder["user"] else ""
    since = f", for {show_seconds(now - holder['since'])}" if holder["since"] is not None else ""
    notebook = f" ({one_line(holder['notebook'])})" if holder["notebook"] else ""
    return f"{show_mib(holder['vram_mib'])}, process {holder['pid']}{whose}{since}{notebook}"


def alerts_list(alerts: Sequence[View]) -> str:
    """One alert a line, with what to do about it below."""
    lines = []
    for alert in alerts:
        lines.append(f"{alert['severity']}: {one_line(alert['message'])}")
        if alert["hint"]:
            lines.append(f"  -> {one_line(alert['hint'])}")
    return "\n".join(lines)


def bar(used: float | None, total: float, width: int = 10) -> str:
    filled = 0 if used is None else min(width, round(width * used / max(total, 1)))
    return "[" + "#" * filled + "." * (width - filled) + "]"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns padded with blanks; the last one as long as it likes."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines)


NO_JOBS = "You have no jobs here. `%%gpujob --vram 4G` on a cell, or `jupyter gpusched submit`, queues one."


def jobs_table(views: Sequence[View], now: float | None = None) -> str:
    return table(job_rows(views, now)) if views else NO_JOBS


def gpus_table(gpus: Sequence[View], cause: str | None = None, now: float | None = None) -> str:
    if not gpus:
        return no_gpus(cause)
    notes = gpu_notes(gpus, now)
    return table(gpu_rows(gpus)) + (f"\n{notes}" if notes else "")


def no_gpus(cause: str | None) -> str:
    return f"No GPU can be used here: {cause or 'none was found'}"
