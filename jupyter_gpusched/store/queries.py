"""Reads ``queries.sql``: every statement of the store by name.

A query begins with a line ``-- name: description``. Nothing here knows what a query means.
"""

from __future__ import annotations

import re
from pathlib import Path

_HEADING = re.compile(r"^-- (\w+): .+$", re.MULTILINE)


def parse(text: str) -> dict[str, str]:
    """Names and statements of a text of named queries."""
    _, *parts = _HEADING.split(text)
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


SQL = parse(Path(__file__).with_name("queries.sql").read_text())
