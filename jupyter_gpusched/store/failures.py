"""Turns what SQLite says into what a person can act on.

The only place where an error of the database becomes one of ours; every text names the file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from jupyter_gpusched.ports import DuplicateKey, StoreUnavailable, Unwritable

_REMEDIES = (
    ("locked", "is locked by another process", "End the program that holds it, or wait and try again."),
    ("busy", "is locked by another process", "End the program that holds it, or wait and try again."),
    ("full", "cannot grow: the disk is full", "Free some space and try again."),
    ("no space left", "cannot grow: the disk is full", "Free some space and try again."),
    ("readonly", "cannot be written", "Give yourself write permission on the file and its folder."),
    ("disk i/o", "cannot be read or written: the disk reports an error", "Check free space, quota and the disk."),
    ("unable to open", "cannot be opened", "Check that its folder exists and that you may write there."),
    ("malformed", "is damaged", "Move it away (a new one is made) or restore a copy of it."),
    ("not a database", "is not a database", "Move it away, or set GPUSCHED_HOME to another folder."),
)


def unavailable(path: Path, error: Exception) -> StoreUnavailable:
    text = str(error)
    for sign, what, remedy in _REMEDIES:
        if sign in text.lower():
            return StoreUnavailable(f"The job database {path} {what}.", hint=remedy)
    return StoreUnavailable(
        f"The job database {path} cannot be used: {text}.",
        hint="Check the file and its folder, or set GPUSCHED_HOME to another folder.",
    )


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Errors of SQLite inside come out as ``StoreUnavailable``, ``DuplicateKey`` or ``Unwritable``."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        if "job.idempotency_key" in str(error):
            raise DuplicateKey("This idempotency key has been used before.", field="idempotency_key") from error
        if "job.id" in str(error):
            raise DuplicateKey("A job with this id exists already.", field="id", hint="Submit it again.") from error
        raise unavailable(path, error) from error
    except (sqlite3.Error, OSError) as error:
        raise unavailable(path, error) from error
    except (UnicodeError, OverflowError, TypeError, msgspec.MsgspecError) as error:
        raise Unwritable(f"This cannot be written down: {str(error)!a}.", hint="Look for broken text.") from error
