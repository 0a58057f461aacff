"""Tells the Jupyter server that it is in use while its owner has unfinished jobs, whoever hosts them.

What stops idle servers (JupyterHub's culler, the server's own shutdown) looks at ``last_activity``,
which knows of kernels and requests only. Stops telling when the last job has ended, so that the
server can be stopped again. A service that hosts for many needs none of this: its jobs do not depend on
any server.
"""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from datetime import datetime, timezone

from tornado.ioloop import PeriodicCallback

from .upstream import HostLost, Upstream, answer

SOURCE = "jupyter_gpusched"


class ActivityReport:
    """Asks the host once per interval. ``times`` are the server's own, by who reports.

    Uses the server's event loop. A host that is being replaced changes nothing: its jobs go on.
    """

    def __init__(self, host: Upstream, times: MutableMapping[str, datetime], *, interval_s: float) -> None:
        self._host = host
        self._times = times
        self._live = False
        self._timer = PeriodicCallback(self._report, interval_s * 1000)

    def start(self) -> None:
        self._timer.start()

    def stop(self) -> None:
        self._timer.stop()

    async def _report(self) -> None:
        try:
            # Asking must not keep an idle daemon alive, which would keep this server from hosting.
            async with answer(self._host, "health", looks_on=True) as body:
                self._live = bool(json.loads(await body.read()).get("live_jobs"))
        except (HostLost, ValueError):
            pass
        if self._live:
            self._times[SOURCE] = datetime.now(timezone.utc)
