"""What a terminal would show of a job's raw output: text in, text out.

Applies carriage returns, backspaces, erasing and cursor moves, so that a finished progress
bar is one line, and leaves out colours and other codes. Linear in the length of the text;
never interprets anything as HTML.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""
      (?P<text>[^\x00-\x08\x0a-\x1f\x7f\x9b]+)        # printable, and tab
    | (?P<newline>\n)
    | \x1b\[ (?P<args>[0-?]*) [ -/]* (?P<csi>[@-~])   # cursor moves, erasing, colours
    | \x1b[\]PX^_] [^\x07\x1b]* (?:\x07|\x1b\\)?      # titles, links and other strings
    | \x1b [ -/]* [0-~]?
    | (?P<control>[\x00-\x1f\x7f\x9b])
    """,
    re.VERBOSE,
)
_NEEDS_A_TERMINAL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x9b]")
_WIDEST_MOVE = 1000  # a move further right than any terminal is wide only costs memory


class _Screen:
    """Endless lines and a cursor; cells are code points."""

    def __init__(self) -> None:
        self.lines: list[list[str]] = [[]]
        self.rewritten: set[int] = set()
        self.row = 0
        self.column = 0

    def write(self, text: str) -> None:
        line = self.lines[self.row]
        if self.column > len(line):
            line.extend(" " * (self.column - len(line)))
        line[self.column : self.column + len(text)] = text
        self.column += len(text)

    def newline(self) -> None:
        self.row += 1
        self.column = 0
        if self.row == len(self.lines):
            self.lines.append([])

    def control(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\b":
            self.column = max(0, self.column - 1)
        elif character in "\x0b\x0c":
            self.newline()
        self.rewritten.add(self.row)

    def move(self, code: str, args: str) -> None:
        """One CSI sequence; those that change neither text nor cursor are left out."""
        if code == "m":
            return
        first = args.partition(";")[0]
        count = int(first) if first.isdigit() else 0
        step = min(max(1, count), _WIDEST_MOVE)
        if code in "AF":
            self.row = max(0, self.row - step)
        elif code in "BE":
            self.row = min(len(self.lines) - 1, self.row + step)
        elif code == "C":
            self.column = min(self.column + step, max(self.column, _WIDEST_MOVE))
        elif code == "D":
            self.column = max(0, self.column - step)
        elif code in "G`":
            self.column = step - 1
        elif code == "K":
            self.erase(count)
        elif code == "J" and count == 0:
            self.erase(0)
            del self.lines[self.row + 1 :]
        if code in "EF":
            self.column = 0
        if code in "ABCDEFGJK`":
            self.rewritten.add(self.row)

    def erase(self, part: int) -> None:
        line = self.lines[self.row]
        if part == 0:
            del line[self.column :]
        elif part == 1:
            line[: self.column + 1] = " " * min(self.column + 1, len(line))
        elif part == 2:
            line.clear()

    def text(self) -> str:
        shown = (
            "".join(line).rstrip(" ") if n in self.rewritten else "".join(line) for n, line in enumerate(self.lines)
        )
        return "\n".join(shown)


def render(text: str) -> str:
    """The text as a terminal shows it in the end, without colours; plain text comes back as it is."""
    text = text.replace("\r\n", "\n")
    if not _NEEDS_A_TERMINAL.search(text):
        return text
    screen = _Screen()
    for token in _TOKEN.finditer(text):
        if token["text"]:
            screen.write(token["text"])
        elif token["newline"]:
            screen.newline()
        elif token["csi"]:
            screen.move(token["csi"], token["args"])
        elif token["control"]:
            screen.control(token["control"])
    return screen.text()
