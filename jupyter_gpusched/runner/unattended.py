"""Nobody is there to answer: what would ask a person fails at once and says why."""

from __future__ import annotations

import builtins
import sys
from typing import Any

NO_STDIN = "a background job cannot read input"


def refuse_input() -> None:
    """Better than waiting while a card is held."""
    import getpass
    import pdb

    def refuse(*_: object, **__: object) -> Any:
        raise EOFError(NO_STDIN)

    builtins.input = refuse
    getpass.getpass = refuse
    sys.breakpointhook = refuse
    pdb.set_trace = refuse
