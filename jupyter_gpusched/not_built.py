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


class GpuMonitor:
    """Not available yet: a live view of the cards. ``%gpus`` shows them once."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ARG002 - refused whatever is asked
        refuse("gs.GpuMonitor")


class JobQueue:
    """Not available yet: a live view of the queue. ``%gpujobs`` shows it once."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ARG002 - refused whatever is asked
        refuse("gs.JobQueue")
