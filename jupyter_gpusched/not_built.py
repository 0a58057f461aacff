"""Names of the Python API that the contract promises and this version cannot honour yet.

Each is refused with what to use instead, so that code written for a later version fails at
once and in words.
"""

from __future__ import annotations

from typing import Any, NoReturn

from .core.model import NotAvailable


def refuse(what: str) -> NoReturn:
    raise NotAvailable(
        f"{what} is not available yet.", hint="Use %%gpujob on a cell, or gs.submit([...]) for a command."
    )


def map(*args: Any, **spec: Any) -> NoReturn:  # noqa: A001, ARG001 - the contract's name; refused whatever is asked
    """Not available yet: one job for each item."""
    refuse("gs.map")


class Executor:
    """Not available yet: a ``concurrent.futures.Executor`` whose calls are jobs."""

    def __init__(self, *args: Any, **spec: Any) -> None:  # noqa: ARG002 - refused whatever is asked
        refuse("gs.Executor")
