"""What a host does for the machine beside scheduling: it prunes the journal, and tries quarantined cards.

Both go on in the background, in small steps, and hold up nothing. What came of a try is told to the
engine as an event; nothing is decided here.
"""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Awaitable, Sequence

import anyio

from .core.messages import Returned
from .core.model import Gpu, Unavailable
from .core.operations import Quarantine
from .engine import Engine

log = logging.getLogger(__name__)

CHECK = "the check"
"""Who returns a card that passed."""

DAY_S = 86400.0
STEP = 500
"""Events that one transaction deletes: some milliseconds, so that the queue never waits for it."""

_FIRST_PRUNE_S = 5.0  # a host that has just started has more urgent things to do
_PRUNE_EVERY_S = 3600.0
_PRUNE_PAUSE_S = 0.05
_OUTPUT_SHOWN = 300


async def keep_pruning(engine: Engine, *, days: float, most: int, every_s: float = _PRUNE_EVERY_S) -> None:
    """Delete events that are older, or more, than are wanted; for ever."""
    await anyio.sleep(min(_FIRST_PRUNE_S, every_s))
    while True:
        try:
            while await engine.prune(before=engine.clock() - days * DAY_S, most=most, limit=STEP):  # noqa: ASYNC110
                await anyio.sleep(_PRUNE_PAUSE_S)
        except Unavailable as error:
            log.info("the journal was not pruned: %s", error)
        await anyio.sleep(every_s)


async def keep_checking(engine: Engine, command: Sequence[str], *, every_s: float, timeout_s: float) -> None:
    """Run the check on each card that the scheduler itself quarantined and that can be read; for ever."""
    said: dict[str, str] = {}
    while True:
        await anyio.sleep(every_s)
        for gpu, order in _to_check(engine):
            failure = await _try_card([*command, gpu.uuid], gpu, timeout_s)
            if failure is None:
                await _unless_busy(engine.operate(Returned(gpu.uuid, CHECK, "the configured check passed")))
                log.warning("GPU %d passed the check and gets jobs again (%s)", gpu.index, order.cause)
            elif said.get(gpu.uuid) != failure:  # one line per cause, not one per try
                log.warning("GPU %d stays quarantined: %s", gpu.index, failure)
                said[gpu.uuid] = failure


def _to_check(engine: Engine) -> list[tuple[Gpu, Quarantine]]:
    """What a person quarantined, a person returns."""
    state = engine.state
    return [
        (state.gpus[uuid], order)
        for uuid, order in state.operations.quarantines.items()
        if order.kind != "hand" and uuid in state.gpus and state.gpus[uuid].health == "quarantined"
    ]


async def _try_card(words: list[str], gpu: Gpu, timeout_s: float) -> str | None:
    """None when the check passed, else what it said."""
    env = os.environ | {"CUDA_VISIBLE_DEVICES": gpu.uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    try:
        with anyio.fail_after(timeout_s):
            done = await anyio.run_process(words, check=False, stderr=subprocess.STDOUT, env=env)
    except TimeoutError:
        return f"the check did not end within {timeout_s:.0f}s"
    except OSError as error:
        return f"the check cannot be run: {error}"
    if done.returncode == 0:
        return None
    last = done.stdout.decode(errors="replace").strip().rpartition("\n")[2]
    return f"the check ended with {done.returncode}" + (f": {last[:_OUTPUT_SHOWN]}" if last else "")


async def _unless_busy(wish: Awaitable[None]) -> None:
    try:
        await wish
    except Unavailable as error:  # it is tried again at the next round
        log.info("a card could not be returned: %s", error)
