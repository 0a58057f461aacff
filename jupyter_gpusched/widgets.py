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
        """The one thing a view can ask for: the end of a job."""
        job_id = content.get("cancel") if isinstance(content, dict) else None
        if isinstance(job_id, str):
            try:
                host().cancel(job_id)
                self.take(Round())
            except GpuSchedError as error:
                self.trouble = error.message

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

    look  gives the job's view, tail the last bytes of its log.
    """

    text = traitlets.Unicode().tag(sync=True)

    def __init__(self, look: Callable[[], describe.View], tail: Callable[[], bytes]) -> None:
        self._look = look
        self._tail = tail
        super().__init__()

    def take(self, answers: Round) -> None:  # noqa: ARG002  it asks for its own job alone
        view = self._look()
        self._show([_job_row(view)], text=render(self._tail().decode("utf-8", "replace")) if view["attempts"] else "")
        if view["phase"] in describe.FINAL:
            FEED.leave(self)

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
    facts = [describe.wants(view), describe.where(view), describe.lasted(view, time.time())]
    return {
        "key": view["id"],
        "title": describe.one_line(view["name"]),
        "phase": view["phase"],
        "facts": " · ".join(fact for fact in facts if fact),
        "why": describe.sentence(view) or "",
        "simulated": view["simulated"],
        "can_cancel": view["phase"] not in describe.FINAL,
        "cancelling": view["phase"] == "stopping",
    }


def _gpu_row(gpu: describe.View) -> Row:
    health = gpu["health"]
    return {
        "key": gpu["uuid"],
        "title": f"GPU {gpu['index']} {describe.one_line(gpu['name'])}",
        "facts": f"{show_mib(gpu['used_mib'])} of {show_mib(gpu['total_mib'])} used · "
        f"{show_mib(gpu['promised_mib'])} promised · {show_mib(gpu['available_mib'])} available",
        "why": "" if health["status"] == "ok" else describe.gpu_state(gpu),
        "simulated": gpu["simulated"],
        "parts": _parts(gpu),
    }


def _parts(gpu: describe.View) -> list[Row]:
    """How a card's memory is divided, in MiB; what has no share is left out."""
    shares = {"your jobs": 0, "others' jobs": 0, "outside the queue": 0, "being freed": 0}
    for holder in gpu["holders"]:
        shares[_share_of(holder)] += _amount_of(holder)
    shares["outside the queue"] = max(shares["outside the queue"], gpu["foreign_mib"] or 0)
    shares["free"] = max(0, gpu["total_mib"] - sum(shares.values()))
    return [{"name": name, "mib": mib, "words": f"{name} {show_mib(mib)}"} for name, mib in shares.items() if mib]


def _share_of(holder: Row) -> str:
    if holder["kind"] == "foreign":
        return "outside the queue"
    if holder["state"] == "releasing":
        return "being freed"
    return "your jobs" if holder["job_id"] else "others' jobs"


def _amount_of(holder: Row) -> int:
    used = holder["vram_mib"] or 0
    return int(used if holder["state"] == "releasing" else max(used, holder["promised_mib"] or 0))
