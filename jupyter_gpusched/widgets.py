"""Live views for every front end that knows ipywidgets: the cards, the queue, one job.

They are fed by ``live`` and show plain words and numbers; what a job or its owner wrote is
text in the front end, never HTML. In JupyterLab our own card and panel need no kernel and come first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from . import describe
from .core.model import GpuSchedError
from .core.quantities import show_mib
from .live import FEED, Round
from .session import host
from .terminal import render

_HERE = Path(__file__).parent
_ENDED_SHOWN = 10
_VIEW = "application/vnd.jupyter.widget-view+json"

Row = dict[str, Any]


class _Live(anywidget.AnyWidget):
    """What all views share: rows for the front end, a selected one, and what is wrong."""

    _esm = _HERE / "widgets.js"
    _css = _HERE / "widgets.css"

    heading = traitlets.Unicode().tag(sync=True)
    empty = traitlets.Unicode().tag(sync=True)
    rows = traitlets.List(traitlets.Dict()).tag(sync=True)
    trouble = traitlets.Unicode().tag(sync=True)
    selected = traitlets.Unicode(help="The id of the row that was clicked on; empty for none.").tag(sync=True)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._showing = threading.Lock()  # the feeding thread and a click in the front end may come together
        self.on_msg(self._asked)
        FEED.join(self)
        try:
            self.take(Round())  # the first view is full, and what is wrong is raised here and now
        except GpuSchedError:
            self.close()
            raise

    def take(self, answers: Round) -> None:
        raise NotImplementedError

    def lost(self, why: str) -> None:
        self.trouble = f"Reconnecting; this is what was known last. {why}"

    def close(self) -> None:
        """Stop showing; the last one to be closed ends the thread."""
        FEED.leave(self)
        super().close()

    def _asked(self, _widget: Any, content: Any, _buffers: Any) -> None:
        """What a view can ask for: the end of a job, or that it is run again."""
        asked = content if isinstance(content, dict) else {}
        try:
            if isinstance(asked.get("cancel"), str):
                host().cancel(asked["cancel"])
            elif isinstance(asked.get("resubmit"), str):
                self._ran_again(host().resubmit(asked["resubmit"]))
            self.take(Round())
        except GpuSchedError as error:
            self.trouble = error.message

    def _ran_again(self, new_id: str) -> None:
        """A job that this view shows was queued again under another id."""

    def _show(self, rows: list[Row], **traits: Any) -> None:
        """One message for all that changed, and none when nothing did."""
        with self._showing, self.hold_sync():
            self.set_trait("trouble", "")
            self.set_trait("rows", rows)
            for name, value in traits.items():
                self.set_trait(name, value)

    def _words(self) -> str:
        raise NotImplementedError

    def mime(self) -> dict[str, Any]:
        """The part of a display's bundle that stands for this view."""
        data, _ = self._repr_mimebundle_()
        return {_VIEW: data[_VIEW]}

    def _repr_mimebundle_(self, **options: Any) -> Any:
        data, metadata = super()._repr_mimebundle_(**options) or ({}, {})
        return data | {"text/plain": self._words()}, metadata


class GpuMonitor(_Live):
    """The cards, live: who has how much of each. ``gpus`` holds their views, ``selected`` a UUID."""

    gpus = traitlets.List(traitlets.Dict(), help="The views of the cards, as `gs.gpus()` gives them.")

    def __init__(self) -> None:
        super().__init__(heading="GPUs")

    def take(self, answers: Round) -> None:
        cause = None if answers.gpus else answers.gpu_cause
        self._show([_gpu_row(gpu) for gpu in answers.gpus], gpus=answers.gpus, empty=describe.no_gpus(cause))

    def _words(self) -> str:
        return describe.gpus_table(self.gpus) if self.gpus else self.empty


class JobQueue(_Live):
    """Your jobs, live: what runs, what waits and for what, what ended last. ``selected`` is a job's id."""

    jobs = traitlets.List(traitlets.Dict(), help="The views of your jobs, newest first.")

    def __init__(self) -> None:
        super().__init__(heading="Jobs", empty=describe.NO_JOBS)

    def take(self, answers: Round) -> None:
        self._show([_job_row(view) for view in _in_order(answers.jobs)], jobs=answers.jobs)

    def _words(self) -> str:
        return describe.jobs_table(self.jobs)


class JobWidget(_Live):
    """One job, live, with the end of its text; it leaves the feed when the job has ended.

    look  gives the view of a job, tail the last bytes of its log.
    """

    text = traitlets.Unicode().tag(sync=True)

    def __init__(self, job_id: str, look: Callable[[str], describe.View], tail: Callable[[str], bytes]) -> None:
        self._job_id = job_id
        self._look = look
        self._tail = tail
        self._which = threading.Lock()  # which job is shown may change while an answer about it is under way
        super().__init__()

    def take(self, answers: Round) -> None:  # noqa: ARG002  it asks for its own job alone
        job_id = self._job_id
        view = self._look(job_id)
        raw = self._tail(job_id) if view["attempts"] else b""
        with self._which:
            if job_id != self._job_id:
                return
            self._show([_job_row(view)], text=render(raw.decode("utf-8", "replace")))
            if view["phase"] in describe.FINAL:
                FEED.leave(self)

    def _ran_again(self, new_id: str) -> None:
        """From now on the new job is the one that is shown."""
        with self._which:
            self._job_id = new_id
            FEED.join(self)

    def _words(self) -> str:
        row = self.rows[0]
        return f"Job {row['key']} · {row['phase']} · {row['title']}"


def _in_order(views: list[describe.View]) -> list[describe.View]:
    """What runs, what waits in its order, and what ended last."""
    ended = [view for view in views if view["phase"] in describe.FINAL]
    live = [view for view in views if view["phase"] not in describe.FINAL]
    ended.sort(key=lambda view: view["ended_at"] or 0, reverse=True)
    live.sort(key=lambda view: (view["phase"] == "queued", view["position"] or 0, view["submitted_at"]))
    return live + ended[:_ENDED_SHOWN]


def _job_row(view: describe.View) -> Row:
    now = time.time()
    facts = [
        describe.wants(view),
        describe.where(view),
        describe.lasted(view, now),
        describe.remaining(view, now),
        describe.memory(view),
    ]
    progress = describe.progress(view)
    return {
        "key": view["id"],
        "title": describe.one_line(view["name"]),
        "phase": view["phase"],
        "facts": " · ".join(fact for fact in facts if fact),
        "why": describe.sentence(view) or "",
        "simulated": view["simulated"],
        "progress": progress and {"words": progress, "fraction": view["progress"]["fraction"]},
        "can_cancel": view["phase"] not in describe.FINAL,
        "cancelling": view["phase"] == "stopping",
    }


def _gpu_row(gpu: describe.View) -> Row:
    health = gpu["health"]
    return {
        "key": gpu["uuid"],
        "title": f"GPU {gpu['index']} {describe.one_line(gpu['name'])}",
        "readings": _readings(gpu),
        "facts": f"{show_mib(gpu['used_mib'])} of {show_mib(gpu['total_mib'])} used · "
        f"{show_mib(gpu['promised_mib'])} promised · {show_mib(gpu['available_mib'])} available",
        "why": "" if health["status"] == "ok" else describe.gpu_state(gpu),
        "simulated": gpu["simulated"],
        "parts": _parts(gpu),
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
    "free": "free",
}
"""The parts of a card's bar, in the order in which they are drawn."""


def _parts(gpu: describe.View) -> list[Row]:
    """How a card's memory is divided, in MiB, and who holds it; what has no share is left out."""
    shares: dict[str, int] = dict.fromkeys(_KINDS, 0)
    whose: dict[str, list[str]] = {kind: [] for kind in _KINDS}
    for holder in gpu["holders"]:
        kind, amount = _kind_of(holder), _amount_of(holder)
        shares[kind] += amount
        whose[kind].append(f"{holder['job_id'] or describe.one_line(holder['user']) or 'unknown'} {show_mib(amount)}")
    shares["foreign"] = max(shares["foreign"], gpu["foreign_mib"] or 0)
    shares["free"] = max(0, gpu["total_mib"] - sum(shares.values()))
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


def _kind_of(holder: Row) -> str:
    if holder["kind"] == "foreign":
        return "foreign"
    if holder["state"] == "releasing":
        return "releasing"
    if holder["kind"] == "lease":
        return "lease"
    return "own" if holder["job_id"] else "others"


def _amount_of(holder: Row) -> int:
    used = holder["vram_mib"] or 0
    return int(used if holder["state"] == "releasing" else max(used, holder["promised_mib"] or 0))
