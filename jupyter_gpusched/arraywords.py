"""An array as a whole in plain words, for the terminal and the notebook's text.

Takes views (plain JSON objects) and returns text. Which elements are meant is told by their
numbers, as ``ID[0-9,12]`` names them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from .describe import FINAL, View, one_line, sentence, standing

_NUMBERS_SHOWN = 8


def array_details(array: View) -> str:
    """An array as a whole, a fact a line."""
    held = f" ({array['held']} held)" if array["held"] else ""
    phases = ", ".join(f"{count} {phase}" for phase, count in array["phases"].items())
    submitted = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(array["submitted_at"]))
    facts = {
        "array": array["id"],
        "name": one_line(array["name"]),
        "user": one_line(array["user"]),
        "kind": array["kind"],
        "jobs": f"{array['count']}: {phases}{held}",
        "at a time": array["throttle"],
        "submitted": submitted,
        "elements": f"`jupyter gpusched ls --array {array['id']}`",
    }
    return "\n".join(f"{name + ':':<11}{value}" for name, value in facts.items() if value is not None)


def array_explained(array: View, views: Sequence[View]) -> str:
    """Why its elements wait and how they ended: a line for each reason, with the numbers of whom it holds for."""
    lines = [f"{array['id']}: {standing(array['phases'], array['held'])}"]
    groups: dict[tuple[str, str], list[View]] = {}
    for view in sorted(views, key=lambda view: (view["array_index"] or 0, view["submitted_at"])):
        if reason := _reason(view):
            groups.setdefault((view["phase"], reason), []).append(view)
    for (phase, reason), those in sorted(groups.items(), key=lambda group: group[0][0] in FINAL):
        numbers = numbered(view["array_index"] for view in those)
        lines.append(f"{len(those)} {phase}{f' ({numbers})' if numbers else ''}: {_told(reason, those)}")
    return "\n".join(lines)


def _reason(view: View) -> str | None:
    """Without its own id, place and words, which differ from element to element."""
    if view["phase"] in FINAL and view["exit_code"]:
        return f"exit code {view['exit_code']}"
    if view["phase"] != "queued":
        return one_line(sentence(view)) or None
    if held := view["held"]:
        cause = f": {one_line(held['cause'])}" if held["cause"] else ""
        return f"held by {one_line(held['by'])}{cause}; `jupyter gpusched release {view['array_id']}` lets it go on"
    return one_line(view["waiting"]) or "waiting"


def _told(reason: str, those: Sequence[View]) -> str:
    """With what the first one said at its end."""
    words = one_line(sentence(those[0])).removeprefix(f"{reason}: ") if those[0]["phase"] in FINAL else reason
    if words == reason:
        return reason
    return f"{reason}: {words}" if len(those) == 1 else f"{reason}; the first says: {words}"


def numbered(indices: Iterable[int | None]) -> str:
    """Numbers of elements in order, as short as they can be named: ``[0-9,12]``; empty where they have none."""
    runs: list[list[int]] = []
    for number in indices:
        if number is None:
            continue
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    parts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    more = [f"and {len(parts) - _NUMBERS_SHOWN} more"] if len(parts) > _NUMBERS_SHOWN + 1 else []
    shown = ",".join(parts[:_NUMBERS_SHOWN] if more else parts)
    return (f"[{shown}]" + (f" {more[0]}" if more else "")) if parts else ""
