"""What the widgets draw, as rows of plain words: cards, jobs, and arrays as one row each.

Pure: from views to values that the front end sets as text. The words are those of JupyterLab's
panel, as far as both say the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import describe
from .core.quantities import show_mib
from .sweeps import common_name

Row = dict[str, Any]

ENDED_SHOWN = 10
FAILED_NAMED = 5

FAILED = ("failed", "timeout", "lost")


@dataclass(frozen=True)
class ArrayNow:
    """An array as it stands. ``whole`` is the host's view of it, ``elements`` are those that are known here.

    failed  those of its elements that failed and can be named, maybe not all.
    """

    whole: Mapping[str, Any]
    elements: Sequence[describe.View] = ()
    failed: Sequence[describe.View] = field(default=())

    @property
    def id(self) -> str:
        return str(self.whole["id"])

    @property
    def failures(self) -> int:
        return sum(self.whole["phases"].get(phase, 0) for phase in FAILED)

    @property
    def ended(self) -> bool:
        return not set(self.whole["phases"]) - describe.FINAL


def array_of(array_id: str, views: Sequence[describe.View], whole: Mapping[str, Any] | None = None) -> ArrayNow:
    """An array of which these elements are known. ``whole`` is what its host says of it; without, they are all."""
    ordered = sorted(views, key=_place_in_array)
    failed = [view for view in ordered if view["phase"] in FAILED]
    if whole is not None:
        return ArrayNow(whole, ordered, failed)
    phases: dict[str, int] = {}
    for view in views:
        phases[view["phase"]] = phases.get(view["phase"], 0) + 1
    counted = {
        "id": array_id,
        "name": common_name([view["name"] for view in views]),
        "count": len(views),
        "phases": phases,
        "held": sum(bool(view["held"]) for view in views),
    }
    return ArrayNow(counted, ordered, failed)


def queue_rows(
    views: Sequence[describe.View], arrays: Mapping[str, ArrayNow], opened: Collection[str], now: float
) -> list[Row]:
    """What runs, what waits in its order, and what ended last; an array stands where the liveliest of it does.

    arrays  those that are shown as one row; below it the elements of those that are ``opened``.
    """
    rows: list[Row] = []
    told: set[str] = set()
    ended = 0
    for view in _in_order(views, arrays):
        array = arrays.get(view["array_id"] or "")
        if array is not None and array.id in told:
            continue
        over = view["phase"] in describe.FINAL if array is None else array.ended
        ended += over
        if over and ended > ENDED_SHOWN:
            continue
        if array is None:
            rows.append(job_row(view, now))
        else:
            told.add(array.id)
            rows += array_rows(array, array.id in opened, now)
    return rows


def array_rows(array: ArrayNow, opened: bool, now: float) -> list[Row]:
    """The row of an array, and below it its elements where it is open."""
    alike = len({view["name"] for view in array.elements}) == 1  # then its number and values tell them apart
    titles = [(alike and describe.element_of(view)) or describe.one_line(view["name"]) for view in array.elements]
    below = [job_row(view, now, title) for view, title in zip(array.elements, titles, strict=True) if opened]
    return [array_row(array, opened=opened), *below]


def _in_order(views: Sequence[describe.View], arrays: Mapping[str, ArrayNow]) -> list[describe.View]:
    def stage(view: describe.View) -> int:
        array = arrays.get(view["array_id"] or "")
        phases = {view["phase"]} if array is None else set(array.whole["phases"])
        live = phases - describe.FINAL
        return 2 if not live else 1 if live == {"queued"} else 0

    def rank(view: describe.View) -> tuple[int, float, float]:
        if stage(view) == 2:
            return 2, -(view["ended_at"] or 0), 0.0
        return stage(view), view["position"] or 0, view["submitted_at"]

    return sorted(views, key=rank)


def _place_in_array(view: describe.View) -> tuple[int, float, str]:
    return view["array_index"] or 0, view["submitted_at"], view["id"]


def job_row(view: describe.View, now: float, title: str | None = None, *, alone: bool = False) -> Row:
    """``title``: what it is called below its array. ``alone``: with its memory as a bar."""
    element = describe.element_of(view)
    facts = [
        "" if element == title else element,
        describe.wants(view),
        describe.where(view),
        describe.lasted(view, now),
        describe.remaining(view, now),
        "" if alone else describe.memory(view),
    ]
    progress = describe.progress(view)
    return {
        "key": view["id"],
        "kind": "job",
        "element": title is not None,
        "title": describe.one_line(view["name"]) if title is None else title,
        "phase": view["phase"],
        "held": bool(view["held"]),
        "facts": " · ".join(fact for fact in facts if fact),
        "why": describe.sentence(view) or "",
        "simulated": view["simulated"],
        "memory": _memory(view) if alone else None,
        "progress": progress and {"words": progress, "fraction": view["progress"]["fraction"]},
        "can_cancel": view["phase"] not in describe.FINAL,
        "cancelling": view["phase"] == "stopping",
        "can_repeat": view["phase"] in describe.FINAL,
    }


def _memory(view: describe.View) -> Row | None:
    """What it has on a card of what it was promised, as parts of the bar's length; None without a figure."""
    promised, peak = view["vram_mib"], view["peak_vram_mib"]
    used = None if view["phase"] in describe.FINAL else view["used_vram_mib"]
    shown = peak if used is None else used
    if not view["gpus_requested"] or shown is None:
        return None
    scale = max(promised or 0, shown, peak or 0, 1)
    told = [("promised", promised), ("used", used), ("peak", peak)]
    return {
        "words": " · ".join(f"{show_mib(amount)} {name}" for name, amount in told if amount is not None),
        "fill": shown / scale,
        "peak": None if peak is None else peak / scale,
        "over": promised is not None and shown > promised,
    }


def array_row(array: ArrayNow, *, opened: bool) -> Row:
    """All of an array in one row: how its elements stand, and which of them failed."""
    whole = array.whole
    phases, count = whole["phases"], whole["count"]
    done = sum(phases.get(phase, 0) for phase in describe.FINAL)
    return {
        "key": array.id,
        "kind": "array",
        "element": False,
        "title": describe.one_line(whole["name"]),
        "count": f"{count} job" + ("s" if count != 1 else ""),
        "opened": opened,
        "facts": describe.standing(phases, whole["held"]),
        "why": _failed_words(array),
        "progress": {"words": f"{done} of {count} done", "fraction": done / count} if 0 < done < count else None,
        "held": whole["held"] > 0,
        "can_cancel": done < count,
        "cancelling": False,
        "can_repeat": done == count and phases.get("succeeded", 0) < count,
    }


def _failed_words(array: ArrayNow) -> str:
    """``failed: #3 (exit code 1: ...), #7 and 12 more``; only why the first did, which is mostly why all did."""
    named = array.failed[:FAILED_NAMED]
    if not named:
        return ""
    first, *others = named
    why = describe.ending(first)
    words = [_number(first) + (f" ({why})" if why else ""), *map(_number, others)]
    more = array.failures - len(named)
    return f"failed: {', '.join(words)}" + (f" and {more} more" if more > 0 else "")


def _number(view: describe.View) -> str:
    return describe.element_of(view) or str(view["id"])


# --- cards ------------------------------------------------------------------------------


def gpu_row(gpu: describe.View, now: float, *, drained: bool = False) -> Row:
    health = gpu["health"]
    why_kept = _why_kept(gpu, drained=drained)
    available = gpu["available_mib"] if why_kept is None or gpu["available_mib"] is None else 0
    kept = [describe.reserved(one, now) for one in gpu.get("reservations") or ()]
    return {
        "key": gpu["uuid"],
        "kind": "gpu",
        "title": f"GPU {gpu['index']} {describe.one_line(gpu['name'])}",
        "readings": _readings(gpu),
        "facts": f"{show_mib(gpu['used_mib'])} of {show_mib(gpu['total_mib'])} used · "
        f"{show_mib(gpu['promised_mib'])} promised · {show_mib(available)} available",
        "why": "" if health["status"] == "ok" else describe.gpu_state(gpu),
        "notes": [words[:1].upper() + words[1:] for words in kept],
        "simulated": gpu["simulated"],
        "parts": _parts(gpu, now, drained=drained),
    }


def _readings(gpu: describe.View) -> str:
    """Load, temperature and power, where the card tells."""
    figures = (("utilization_pct", "%"), ("temperature_c", "°C"), ("power_w", "W"))
    return "  ".join(f"{gpu[name]:.0f} {unit}" for name, unit in figures if gpu[name] is not None)


_KINDS = {
    "own": "your jobs",
    "others": "others' jobs",
    "lease": "leases",
    "foreign": "outside the queue",
    "releasing": "being freed",
    "kept": "kept back",
    "free": "free",
}
"""The parts of a card's bar, in the order in which they are drawn."""


def _parts(gpu: describe.View, now: float, *, drained: bool) -> list[Row]:
    """How a card's memory is divided, in MiB, and who holds it; what has no share is left out.

    Free is what a job of this user could be given now; what nobody holds and is not free is kept back.
    """
    shares: dict[str, int] = dict.fromkeys(_KINDS, 0)
    whose: dict[str, list[str]] = {kind: [] for kind in _KINDS}
    for holder in gpu["holders"]:
        kind, amount = _kind_of(holder), _amount_of(holder)
        shares[kind] += amount
        whose[kind].append(f"{_holder(holder)} {show_mib(amount)}{_since(holder, now)}")
    shares["foreign"] = max(shares["foreign"], gpu["foreign_mib"] or 0)
    left = max(0, gpu["total_mib"] - sum(shares.values()))
    why = _why_kept(gpu, drained=drained)
    shares["free"] = min(left, gpu["available_mib"]) if why is None else 0
    shares["kept"] = left - shares["free"]
    whose["kept"].append(why or "for the driver and as headroom")
    return [
        {
            "kind": kind,
            "name": name,
            "mib": shares[kind],
            "words": f"{name} {show_mib(shares[kind])}" + (f" ({', '.join(whose[kind])})" if whose[kind] else ""),
        }
        for kind, name in _KINDS.items()
        if shares[kind]
    ]


def _why_kept(gpu: describe.View, *, drained: bool) -> str | None:
    """Why nothing of this card is free for a job of this user; None where some of it may be."""
    if gpu["health"]["status"] != "ok":
        return "this card gets no jobs"
    if drained:
        return "nothing new starts on this machine"
    if any(one["active"] and not one["mine"] for one in gpu.get("reservations") or ()):
        return "reserved"
    return "what is in use is not known" if gpu["available_mib"] is None else None


def _holder(holder: Row) -> str:
    """Whose it is: ``abcd1234``, ``abcd1234 of bob``, ``pid 42 of bob``."""
    process = "" if holder["pid"] is None or holder["job_id"] else f"pid {holder['pid']}"
    user = "" if holder["mine"] else describe.one_line(holder["user"])
    named = [word for word in (holder["job_id"] or process, user) if word]
    return " of ".join(named) or "unknown"


def _since(holder: Row, now: float) -> str:
    return "" if holder["since"] is None else f" since {describe.time_of_day(holder['since'], now)}"


def _kind_of(holder: Row) -> str:
    if holder["kind"] == "foreign":
        return "foreign"
    if holder["state"] == "releasing":
        return "releasing"
    if holder["kind"] == "lease":
        return "lease"
    return "own" if holder["mine"] else "others"


def _amount_of(holder: Row) -> int:
    used = holder["vram_mib"] or 0
    return int(used if holder["state"] == "releasing" else max(used, holder["promised_mib"] or 0))
