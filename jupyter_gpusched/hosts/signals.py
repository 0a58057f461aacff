"""What signals mean to a host in a process of its own: SIGHUP reads the limits again, the others end it."""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncIterator

from jupyter_gpusched.core.model import GpuSchedError
from jupyter_gpusched.desk import Desk
from jupyter_gpusched.oversight import reload_limits

log = logging.getLogger(__name__)


async def until_ended(signals: AsyncIterator[signal.Signals], desk: Desk) -> None:
    async for one in signals:
        if one is not signal.SIGHUP:
            return
        try:
            await reload_limits(desk, by="SIGHUP")
            log.info("the limits were read again")
        except GpuSchedError as error:
            log.error("the limits were not changed: %s", error)
