"""Runs the demo and draws what it printed as ``docs/demo.svg``: ``python docs/draw_demo.py``."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

COLOURS = {
    "queued": "#e0af68",
    "starting": "#7aa2f7",
    "running": "#7aa2f7",
    "succeeded": "#9ece6a",
    "failed": "#f7768e",
}
LINE_HEIGHT, CHARACTER, MARGIN = 19, 8.0, 16


def story(printed: str) -> list[str]:
    """The demo's output without identifiers and starts, and the picture that a job drew left out."""
    lines = [line for line in printed.splitlines() if not line.startswith("    ") and " starting" not in line]
    kept: list[str] = []
    for line in lines:
        same_bar = "GPU 0" in line and kept and kept[-1].split("s ", 1)[-1] == line.split("s ", 1)[-1]
        if not same_bar and not re.match(r"  submitted|  image:", line):
            kept.append(line)
    end = next((n for n, line in enumerate(kept) if line.startswith("The same in a notebook")), len(kept))
    return kept[:end]


def coloured(line: str) -> str:
    text = html.escape(line)
    for phase, colour in COLOURS.items():
        text = re.sub(rf"\b{phase}\b", f'<tspan fill="{colour}">{phase}</tspan>', text, count=1)
    if "GPU 0 (" not in line:
        return text
    return re.sub(r"#+", lambda bar: f'<tspan fill="#7aa2f7">{bar[0]}</tspan>', text)


def draw(lines: list[str]) -> str:
    width = 2 * MARGIN + CHARACTER * max(map(len, lines))
    height = 2 * MARGIN + LINE_HEIGHT * len(lines)
    rows = "\n".join(
        f'<text x="{MARGIN}" y="{MARGIN + LINE_HEIGHT * (n + 0.75):.0f}" xml:space="preserve">{coloured(line)}</text>'
        for n, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" role="img">\n'
        "<title>jupyter gpusched demo: five jobs share one simulated 8 GB card</title>\n"
        "<style>text { font: 13px ui-monospace, Consolas, 'DejaVu Sans Mono', monospace; fill: #c0caf5 }</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="#1a1b26"/>\n{rows}\n</svg>\n'
    )


if __name__ == "__main__":
    command = [str(Path(sys.executable).parent / "jupyter-gpusched"), "demo"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = ["$ jupyter gpusched demo", *story(done.stdout)]
    Path(__file__).with_name("demo.svg").write_text(draw([line.rstrip() for line in lines]))
