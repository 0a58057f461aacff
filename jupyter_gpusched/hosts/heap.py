"""The garbage collector of a process that is a host and nothing else.

A whole collection looks at every object: with ten thousand jobs in the queue all others wait a
tenth of a second for it, again and again while the queue grows. Jobs and what the core makes of
them refer to each other in no circle, so that it finds nothing among them: they go as they are
let go of. In a Jupyter server the collector is not ours, and stays as it is.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence

from jupyter_gpusched.core.state import State
from jupyter_gpusched.desk import Desk
from jupyter_gpusched.ports import Recorded

THRESHOLDS = (10_000, 20, 20)
"""New objects before the youngest are looked at, and how often that happens before older ones are as well."""

MANY = 200
"""Changes at once after which what there is by now is looked at no more."""


def tend(desk: Desk) -> None:
    """From the time at which the host has taken up its queue."""
    gc.set_threshold(*THRESHOLDS)
    gc.freeze()
    desk.engine.observers.append(_observe)


def _observe(recorded: Sequence[Recorded], state: State, *, sampled: bool) -> None:  # noqa: ARG001
    if len(recorded) > MANY:
        gc.freeze()
