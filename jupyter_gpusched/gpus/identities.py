"""What the cards of this machine are called, kept on disk so that a lost one still has its name.

A card that fell off the bus before the host started tells nothing about itself; without this
file it would be a card without UUID and size. Never consulted for cards that can be read.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Identity:
    """What does not change while a card is in the machine; amounts in MiB."""

    uuid: str
    index: int
    name: str
    total: int
    reserved: int = 0
    parent: str | None = None


def remember(path: Path | None, identities: Iterable[Identity]) -> None:
    """Written only when cards change. A disk that is full costs no more than the names of lost cards."""
    if path is None:
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps([asdict(identity) for identity in identities]))
        temporary.replace(path)
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error)


def recall(path: Path | None) -> list[Identity]:
    if path is None:
        return []
    try:
        return [Identity(**entry) for entry in json.loads(path.read_text())]
    except (OSError, ValueError, TypeError):
        return []
