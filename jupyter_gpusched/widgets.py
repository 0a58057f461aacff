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
from .core.model import GpuSchedError, UnknownJob
from .live import FEED, Round
from .session import host
from .terminal import render
from .widgetrows import Row, array_rows, gpu_row, job_row, queue_rows

_HERE = Path(__file__).parent
_VIEW = "application/vnd.jupyter.widget-view+json"


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
        """What a view can ask for: the end of a job or an array, its release, or that it is run again."""
        asked = content if isinstance(content, dict) else {}
        try:
            if isinstance(asked.get("cancel"), str):
                host().cancel(asked["cancel"])
            elif isinstance(asked.get("release"), str):
                host().release_job(asked["release"])
            elif isinstance(asked.get("resubmit"), str):
                answer = host().resubmit_any(asked["resubmit"])
                self._ran_again(asked["resubmit"], answer.get("array_id") or answer["id"])
            self.take(Round())
        except GpuSchedError as error:
            self.trouble = error.message

    def _ran_again(self, old_id: str, new_id: str) -> None:
        """What this view shows was queued again under another id."""

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
    """The cards, live: who has how much of each. ``gpus`` holds their views, ``selected`` a UUID.

    ``gpus`` stays in the kernel (``observe`` and ``dlink`` see it): every second all of it would go
    to a front end that draws from ``rows``. ``selected`` is there too, for ``jslink``.
    """

    gpus = traitlets.List(traitlets.Dict(), help="The views of the cards, as `gs.gpus()` gives them.")

    def __init__(self) -> None:
        super().__init__(heading="GPUs")

    def take(self, answers: Round) -> None:
        cause = None if answers.gpus else answers.gpu_cause
        now = time.time()
        rows = [gpu_row(gpu, now, drained=answers.drained) for gpu in answers.gpus]
        self._show(rows, gpus=answers.gpus, empty=describe.no_gpus(cause))

    def _words(self) -> str:
        return describe.gpus_table(self.gpus) if self.gpus else self.empty


class _WithArrays(_Live):
    """Views in which an array is one row, below which its elements are shown while it is open."""

    opened = traitlets.List(traitlets.Unicode(), help="The ids of the arrays that are open.").tag(sync=True)

    @traitlets.observe("opened")
    def _open(self, _change: Any) -> None:
        if self.rows:  # else the first ones are still to come
            self._asked(self, None, None)


class JobQueue(_WithArrays):
    """Your jobs, live: what runs, what waits and for what, what ended last. ``selected`` is the id of one row.

    ``jobs`` stays in the kernel, as ``gpus`` does of a ``GpuMonitor``: there may be thousands.
    """

    jobs = traitlets.List(traitlets.Dict(), help="The views of your jobs, newest first.")

    def __init__(self) -> None:
        super().__init__(heading="Jobs", empty=describe.NO_JOBS)

    def take(self, answers: Round) -> None:
        arrays = answers.arrays(self.opened)
        self._show(queue_rows(answers.jobs, arrays, self.opened, time.time()), jobs=answers.jobs)

    def _words(self) -> str:
        return describe.jobs_table(self.jobs)


class JobWidget(_Live):
    """One job, live, with the end of its text; it leaves the feed when the job has ended.

    look  gives the view of a job, tail the last bytes of its log.
    """

    text = traitlets.Unicode(help="The end of its output, with the codes of a terminal for colours.").tag(sync=True)

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
            self._show(
                [job_row(view, time.time(), alone=True)], text=render(raw.decode("utf-8", "replace"), painted=True)
            )
            if view["phase"] in describe.FINAL:
                FEED.leave(self)

    def _ran_again(self, _old_id: str, new_id: str) -> None:
        """From now on the new job is the one that is shown."""
        with self._which:
            self._job_id = new_id
            FEED.join(self)

    def _words(self) -> str:
        row = self.rows[0]
        return f"Job {row['key']} · {row['phase']} · {row['title']}"


class ArrayWidget(_WithArrays):
    """One array with its elements, live; it leaves the feed when the last of them has ended."""

    def __init__(self, array_id: str) -> None:
        self._array_id = array_id
        self._which = threading.Lock()
        super().__init__(opened=[array_id])

    def take(self, answers: Round) -> None:
        array_id = self._array_id
        opened = array_id in self.opened
        array = answers.array(array_id, opened)
        if array is None:
            raise UnknownJob(array_id)
        with self._which:
            if array_id != self._array_id:
                return
            self._show(array_rows(array, opened, time.time()))
            if array.ended:
                FEED.leave(self)

    def _ran_again(self, old_id: str, new_id: str) -> None:
        """What failed of it is an array of its own, which is shown from now on; an element run again is in none."""
        if old_id != self._array_id:
            return
        with self._which:
            self._array_id = new_id
            FEED.join(self)
        self.opened = [new_id]

    def _words(self) -> str:
        row = self.rows[0]
        return f"Array {row['key']} · {row['title']} · {row['count']}: {row['facts']}"
