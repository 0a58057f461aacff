"""Whether this machine's cards can be used, asked once and without a host; for ``doctor``.

No answer of the driver, nor none at all, may raise or block beyond a deadline.
"""

from __future__ import annotations

import threading

from .causes import NO_CARD, driver_cause
from .driver import DriverError, connect, disconnect

DEADLINE_S = 5.0


def probe(*, deadline_s: float = DEADLINE_S) -> str | None:
    """One sentence why the cards cannot be used; None when they can. Answers within the deadline."""
    answers: list[str | None] = []
    # A stuck driver call cannot be interrupted: a thread that nobody waits for is the way to leave it behind.
    asking = threading.Thread(target=lambda: answers.append(_ask()), name="gpusched-nvml-probe", daemon=True)
    asking.start()
    asking.join(deadline_s)
    return answers[0] if answers else f"The NVIDIA driver did not answer within {deadline_s:.0f} seconds."


def _ask() -> str | None:
    try:
        count = connect()
    except DriverError as error:
        return driver_cause(error.trouble)
    disconnect()
    return None if count else driver_cause(NO_CARD)
