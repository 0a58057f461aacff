"""What a notebook shows of a job, of the queue and of the cards: MIME bundles.

The bundle is a snapshot that can be read without a kernel and says how to re-attach; our
JupyterLab renderer takes its JSON part. Every text in the HTML is escaped: nothing that a job
or its owner wrote is ever interpreted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from typing import Any

from . import describe
from .core.quantities import show_mib

MIME = "application/vnd.gpusched.job+json"

Bundle = dict[str, Any]

_BOX = "border:1px solid rgba(128,128,128,.45);border-radius:6px;padding:8px 12px;max-width:56em;line-height:1.5"
_MARK = "border:1px solid;border-radius:4px;padding:0 5px;font-size:85%"
_FAINT = "opacity:.75;font-size:90%"
_CELL = "text-align:left;padding:2px 10px;vertical-align:top"
_COLOURS = {
    "queued": "#b7791f",
    "starting": "#3182ce",
    "running": "#3182ce",
    "stopping": "#b7791f",
    "succeeded": "#2f9e5b",
    "failed": "#d64545",
    "timeout": "#d64545",
    "lost": "#d64545",
    "cancelled": "#808080",
}


def job_bundle(view: describe.View, *, stale: bool = False) -> Bundle:
    """The card of one job. ``stale``: the host could not be asked, this is the last known state."""
    return {
        MIME: {"id": view["id"], "view": view, "stale": stale},
        "text/html": _job_html(view, stale),
        "text/plain": job_text(view, stale=stale),
    }


def job_text(view: describe.View, *, stale: bool = False) -> str:
    """One or two lines with the id, the phase and why."""
    known = " (last known; the host does not answer)" if stale else ""
    why = describe.sentence(view)
    follow = (
        f"%gpulogs {view['id']} -f"
        if view["phase"] not in describe.FINAL
        else f'jupyter_gpusched.job("{view["id"]}").show()'
    )
    return f"{describe.headline(view)}{known}\n  {why + '; ' if why else ''}{follow} shows its output"


def _job_html(view: describe.View, stale: bool) -> str:
    lines = [_head(view), _facts(view)]
    advice = describe.one_line(view["advice"])
    lines += [f"<div>{escape(words)}</div>" for words in dict.fromkeys((describe.sentence(view), advice)) if words]
    lines.append(_re_attach(view["id"], stale))
    return f'<div class="gpusched-job" style="{_BOX}">{"".join(lines)}</div>'


def _head(view: describe.View) -> str:
    colour = _COLOURS.get(view["phase"], "#808080")
    mark = _simulated_mark() if view["simulated"] else ""
    return (
        f"<div><b>{escape(describe.one_line(view['name']))}</b> "
        f"<code>{escape(view['id'])}</code> "
        f'<span style="{_MARK};color:{colour}">{escape(view["phase"])}</span>{mark}</div>'
    )


def _simulated_mark() -> str:
    return f' <span style="{_MARK};color:#8f5bd6">{describe.SIMULATED}</span>'


def _facts(view: describe.View) -> str:
    cards = ", ".join(f"GPU {gpu['index']} ({gpu['name']})" for gpu in view["gpus"])
    peak = view["peak_vram_mib"]
    facts = [
        view["kind"],
        describe.wants(view),
        cards,
        describe.lasted(view, time.time()) or "",
        f"peak {show_mib(peak)}" if peak is not None else "",
    ]
    return f"<div>{escape(' · '.join(fact for fact in facts if fact))}</div>"


def _re_attach(job_id: str, stale: bool) -> str:
    known = "Last known state; the host did not answer. " if stale else "State when this was shown. "
    shown = escape(job_id)
    return (
        f'<div style="{_FAINT}">{known}Follow: <code>%gpulogs {shown} -f</code> · '
        f"outputs: <code>jupyter_gpusched.job(&quot;{shown}&quot;).show()</code></div>"
    )


class JobTable(list[dict[str, Any]]):
    """The views of jobs, newest first, shown as a table."""

    def __repr__(self) -> str:
        return describe.jobs_table(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002 - IPython's signature
        printer.text(repr(self))

    def _repr_html_(self) -> str:
        return _html_table(describe.job_rows(self)) if self else f"<p>{escape(describe.NO_JOBS)}</p>"


class GpuTable(list[dict[str, Any]]):
    """The views of GPUs, shown as a table with bars; ``cause`` says why there is none."""

    def __init__(self, gpus: Sequence[describe.View], cause: str | None = None) -> None:
        super().__init__(gpus)
        self.cause = cause

    def __repr__(self) -> str:
        return describe.gpus_table(self, self.cause)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002 - IPython's signature
        printer.text(repr(self))

    def _repr_html_(self) -> str:
        if not self:
            return f"<p>{escape(describe.no_gpus(self.cause))}</p>"
        notes = "".join(f"<div>{escape(note)}</div>" for note in describe.gpu_notes(self).splitlines())
        return "".join(map(_gpu_html, self)) + notes


def _html_table(rows: list[list[str]]) -> str:
    head, *body = rows
    heading = "".join(f'<th style="{_CELL}">{escape(cell)}</th>' for cell in head)
    lines = ("".join(f'<td style="{_CELL}">{escape(cell)}</td>' for cell in row) for row in body)
    return f"<table><tr>{heading}</tr>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def _gpu_html(gpu: describe.View) -> str:
    """One card: its use as a bar, with the promise to jobs as a line over it."""
    total = max(gpu["total_mib"], 1)
    used = 100 * min(gpu["used_mib"] or 0, total) / total
    promised = 100 * min(gpu["promised_mib"], total) / total
    row = dict(zip(("index", "name", "used", "total", "promised", "available", "load", "jobs", "state"),
                   describe.gpu_rows([gpu])[1], strict=True))  # fmt: skip
    words = (
        f"{show_mib(gpu['used_mib'])} of {row['total']} used, {row['promised']} promised, "
        f"{row['available']} available · load {row['load']} · jobs {row['jobs']} · {row['state']}"
    )
    return (
        f'<div style="{_BOX};margin-bottom:4px"><b>GPU {escape(row["index"])}</b> {escape(row["name"])}'
        f'<div style="height:8px;border-radius:4px;background:rgba(128,128,128,.25);position:relative">'
        f'<div style="height:8px;border-radius:4px;width:{used:.1f}%;background:#3182ce"></div>'
        f'<div style="position:absolute;top:0;left:0;height:2px;width:{promised:.1f}%;background:#b7791f"></div></div>'
        f'<div style="{_FAINT}">{escape(words)}</div></div>'
    )
