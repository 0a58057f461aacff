"""What a terminal would show of a job's raw output: text in, text out.

Applies carriage returns, backspaces, erasing and cursor moves, so that a finished progress
bar is one line; keeps colours where they are wanted, and leaves out other codes. Linear in the
length of the text; never interprets anything as HTML.
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
_PAINTS = re.compile(r"[0-9;:]{0,64}")
_ENDS = {22: "12", 23: "3", 24: "4", 27: "7"}
"""Which marks (bold, faint, italic, underlined, inverse) end with a code."""
_WIDEST_MOVE = 1000  # a move further right than any terminal is wide only costs memory


class _Screen:
    """Endless lines and a cursor; cells are code points, before each the codes that paint it if that is wanted."""

    def __init__(self, *, painted: bool) -> None:
        self.painted = painted
        self.inks: dict[str, str] = {}
        self.paint = ""
        self.lines: list[list[str]] = [[]]
        self.rewritten: set[int] = set()
        self.row = 0
        self.column = 0

    def write(self, text: str) -> None:
        line = self.lines[self.row]
        if self.column > len(line):
            line.extend(" " * (self.column - len(line)))
        line[self.column : self.column + len(text)] = [self.paint + one for one in text] if self.paint else text
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
            self.dip(args)
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

    def dip(self, args: str) -> None:
        """Paint what is written from now on."""
        if self.painted and _PAINTS.fullmatch(args):
            _mix(self.inks, [int(number or 0) for number in re.split("[;:]", args)])
            self.paint = f"\x1b[{';'.join(self.inks.values())}m" if self.inks else ""

    def erase(self, part: int) -> None:
        line = self.lines[self.row]
        if part == 0:
            del line[self.column :]
        elif part == 1:
            line[: self.column + 1] = " " * min(self.column + 1, len(line))
        elif part == 2:
            line.clear()

    def text(self) -> str:
        whole = _joined if self.painted else "".join
        shown = (whole(line).rstrip(" ") if n in self.rewritten else whole(line) for n, line in enumerate(self.lines))
        return "\n".join(shown)


def _mix(inks: dict[str, str], numbers: list[int]) -> None:
    """What is in force after these codes: one each for the colour before, the one behind, and every mark."""
    while numbers:
        code = numbers.pop(0)
        place = "behind" if 40 <= code < 50 or 100 <= code < 108 else "before"
        if code == 0:
            inks.clear()
        elif code in (1, 2, 3, 4, 7):
            inks[str(code)] = str(code)
        elif code in _ENDS:
            for mark in _ENDS[code]:
                inks.pop(mark, None)
        elif code in (38, 48):
            wide = numbers[: 2 if numbers[:1] == [5] else 4]
            del numbers[: len(wide)]
            inks[place] = ";".join(map(str, [code, *wide]))
        elif code in (39, 49):
            inks.pop(place, None)
        elif 30 <= code < 48 or 90 <= code < 108:
            inks[place] = str(code)


def _joined(line: list[str]) -> str:
    """A line with its codes where they change; it ends as it began, unpainted."""
    parts, paint = [], ""
    for cell in line:
        if cell[:-1] != paint:
            parts.append(("\x1b[0m" if paint else "") + cell[:-1])
            paint = cell[:-1]
        parts.append(cell[-1])
    return "".join(parts) + ("\x1b[0m" if paint else "")


def render(text: str, *, painted: bool = False) -> str:
    """The text as a terminal shows it in the end; plain text comes back as it is.

    painted  keep the codes for colours and the like, a complete set before each run of characters.
    """
    text = text.replace("\r\n", "\n")
    if not _NEEDS_A_TERMINAL.search(text):
        return text
    screen = _Screen(painted=painted)
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
