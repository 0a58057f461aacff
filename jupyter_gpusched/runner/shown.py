"""What rich outputs look like where there is no front end: in a journal, in a file, as plain text."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Any

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def portable(data: dict[str, Any]) -> dict[str, Any]:
    """A MIME bundle as JSON can hold it; a widget without its front end is left to its other forms."""
    kept = {mime: value for mime, value in data.items() if mime != WIDGET_VIEW or "text/plain" not in data}
    return {
        mime: base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else value
        for mime, value in kept.items()
    }


def plain(data: dict[str, Any]) -> str:
    """What stands for it in the log."""
    text = data.get("text/plain")
    return f"{text}\n" if isinstance(text, str) else ""


def without_colours(traceback: Iterable[str]) -> str:
    return _ESCAPES.sub("", "\n".join(traceback)) + "\n"
