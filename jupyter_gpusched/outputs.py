"""A job's output lines folded into the outputs of a notebook cell.

Merges what belongs together (parts of one stream, updates of one display, cleared output) and
bounds what enters a notebook. Never loses the order, never looks inside a job's data.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Output = dict[str, Any]

MOST_LINES = 200
MOST_BYTES = 64 * 1024
MOST_RICH_OUTPUTS = 100

INERT = ("text/plain", "image/png", "image/jpeg", "image/gif")
"""What shows something and can do nothing in the page that shows it."""


def fold(lines: Iterable[Output]) -> list[Output]:
    """The nbformat outputs that these lines led to, oldest first.

    ``transient`` is kept on displays while folding and left out of what is returned.
    """
    folding = _Folding()
    for line in lines:
        folding.take(line)
    return [_without_transient(output) for output in folding.outputs]


class _Folding:
    def __init__(self) -> None:
        self.outputs: list[Output] = []
        self.clear_at_next: set[Any] = set()  # cells of a notebook, or None, the place of all other jobs

    def take(self, line: Output) -> None:
        kind, cell = line.get("output_type"), line.get("cell")
        if kind == "clear_output":
            if line.get("wait"):
                self.clear_at_next.add(cell)
            else:
                self._clear(cell)
        elif kind == "update_display_data":
            self._update(line)
        elif kind in ("stream", "display_data", "execute_result", "error"):
            if cell in self.clear_at_next:
                self._clear(cell)
            self._append(line)

    def _clear(self, cell: Any) -> None:
        """What one cell of a notebook showed goes, and nothing of the others."""
        self.outputs = [output for output in self.outputs if output.get("cell") != cell]
        self.clear_at_next.discard(cell)

    def _append(self, line: Output) -> None:
        last = self.outputs[-1] if self.outputs else None
        if (
            line["output_type"] == "stream"
            and last
            and last["output_type"] == "stream"
            and last["name"] == line["name"]
            and last.get("cell") == line.get("cell")
        ):
            last["text"].append(_text(line["text"]))
        elif line["output_type"] == "stream":
            self.outputs.append({**line, "text": [_text(line["text"])]})
        else:
            self.outputs.append(dict(line))

    def _update(self, line: Output) -> None:
        wanted = _display_id(line)
        for output in self.outputs:
            if wanted is not None and _display_id(output) == wanted:
                output["data"] = line.get("data", {})
                output["metadata"] = line.get("metadata", {})


def inert(output: Output) -> Output:
    """Without whatever could act in the page of who looks: of rich outputs the text and the pictures."""
    if "data" not in output:
        return output
    kept = {mime: data for mime, data in output["data"].items() if mime in INERT}
    return {**output, "data": kept or {"text/plain": "[an output of another user that is shown to its owner only]"}}


def _display_id(output: Output) -> Any:
    return (output.get("transient") or {}).get("display_id")


def _without_transient(output: Output) -> Output:
    kept = {name: value for name, value in output.items() if name != "transient"}
    if kept["output_type"] == "stream":
        kept["text"] = "".join(kept["text"])
    return kept


def _text(text: Any) -> str:
    """nbformat allows a list of lines."""
    return text if isinstance(text, str) else "".join(text)


def bounded(outputs: list[Output], *, how_to_get_the_rest: str, counted: bool = True) -> list[Output]:
    """The newest outputs within the bounds of a notebook, with one line saying what is left out.

    counted  False where the outputs are not all there were: then nobody knows how much is missing.
    Each stream keeps its last 200 lines or 64 KiB, whichever is less; of rich outputs the last 100 stay.
    """
    budget = {"stdout": _Budget(), "stderr": _Budget()}
    rich_left = MOST_RICH_OUTPUTS
    kept: list[Output] = []
    for output in reversed(outputs):
        if output["output_type"] == "stream":
            tail = budget.setdefault(output["name"], _Budget()).tail(output["text"])
            if tail:
                kept.append({**output, "text": tail})
        elif rich_left:
            kept.append(output)
            rich_left -= 1
    kept.reverse()
    left_out = sum(budget_.left_out for budget_ in budget.values())
    rich = sum(output["output_type"] != "stream" for output in outputs) - (MOST_RICH_OUTPUTS - rich_left)
    if left_out or rich:
        note = _note(left_out, rich, how_to_get_the_rest, counted=counted)
        kept.insert(0, {"output_type": "stream", "name": "stderr", "text": note})
    return kept


def _note(characters: int, rich: int, how: str, *, counted: bool) -> str:
    parts = [f"{characters:,} characters"] if characters else []
    parts += [f"{rich} displays"] if rich else []
    what = f": {' and '.join(parts)}" if counted else ""
    return f"[earlier output left out here{what}; {how}]\n"


class _Budget:
    """What one stream may still show, counted from its end."""

    def __init__(self) -> None:
        self.lines = MOST_LINES
        self.bytes = MOST_BYTES
        self.left_out = 0

    def tail(self, text: str) -> str:
        tail = self._last_lines(self._last_bytes(text))
        self.bytes -= len(tail.encode(errors="replace"))
        self.lines -= tail.count("\n")
        if len(tail) < len(text):
            self.lines = self.bytes = 0
        self.left_out += len(text) - len(tail)
        return tail

    def _last_bytes(self, text: str) -> str:
        if self.bytes <= 0:
            return ""
        return text[-self.bytes :].encode(errors="replace")[-self.bytes :].decode(errors="ignore")

    def _last_lines(self, text: str) -> str:
        if self.lines <= 0:
            return ""
        end = len(text) - 1 if text.endswith("\n") else len(text)
        for _ in range(self.lines):
            end = text.rfind("\n", 0, end)
            if end < 0:
                return text
        return text[end + 1 :]
