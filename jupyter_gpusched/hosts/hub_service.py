"""The host as a service that JupyterHub starts, watches and starts again: one queue for all its users.

Everything it needs to know comes in the environment that the Hub gives to its services. It stays until
the Hub stops it; running jobs go on then, and the next one finds them.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from functools import partial
from urllib.parse import urlsplit

import anyio
from traitlets import Int

from jupyter_gpusched.core.model import GpuSchedError
from jupyter_gpusched.desk import Desk
from jupyter_gpusched.launch.owners import unix_user
from jupyter_gpusched.places import PlaceError, state_folder
from jupyter_gpusched.service import Access, Host, HostLock, TcpAddress
from jupyter_gpusched.settings import GpuSched

from . import heap
from .hub_identity import ByHubToken, hub_asker
from .signals import until_ended
from .strict import StrictApp
from .system import own_user_only, refuse_unless_able

log = logging.getLogger(__name__)

PATIENCE_S = 15.0
"""So long a predecessor may take to leave before this one gives up."""


class HubServe(StrictApp):
    """Schedule the GPU jobs of a JupyterHub's users. Started by the Hub: see `jupyter_gpusched.hosts.hub`."""

    name = "jupyter-gpusched"
    description = __doc__
    classes = [GpuSched]  # noqa: RUF012  (traitlets' way)
    min_uid = Int(
        1000, min=1, help="Accounts below this uid are the machine's own: the Hub's users of their names get no jobs."
    ).tag(config=True)
    aliases = {"simulate": "GpuSched.simulate"}  # noqa: RUF012

    def start(self) -> None:
        super().start()
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO, stream=sys.stderr)
        service, tcp = _told_by_the_hub()
        try:
            config = self.settings()
            state, access = state_folder(), self._access(config, service, tcp)
            lock = HostLock(state, folder=access.folder)
            if not anyio.run(_acquired, lock):
                raise SystemExit(
                    f"jupyter gpusched: {state} has a host already: stop it, so that the service can start."
                )
            host = Host(state, config, kind="hub", access=access)
            anyio.run(self._serve, host)
        except (GpuSchedError, PlaceError, OSError) as error:
            hint = getattr(error, "hint", None)
            sys.stderr.write(f"jupyter gpusched: {error}\n" + (f"  {hint}\n" if hint else ""))
            raise SystemExit(2) from None

    def _access(self, config: GpuSched, service: str, tcp: TcpAddress) -> Access:
        """Callers by their tokens; their jobs as themselves, where this is root. Raises ``PlaceError``."""
        ask, holds = hub_asker(service)
        doorkeeper = ByHubToken(
            ask,
            holds,
            service=service,
            min_uid=self.min_uid,
            admins=config.admin_users,
            admin_groups=config.admin_groups,
        )
        if os.geteuid() != 0:
            return Access(doorkeeper, tcp)
        refuse_unless_able()
        os.umask(0o077)
        return Access(doorkeeper, tcp, owners=unix_user)

    async def _serve(self, host: Host) -> None:
        """Signals are received before anybody can know of this host, so that none ends it half way."""
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            await host.serve(partial(_until, signals))


async def _until(signals: AsyncIterator[signal.Signals], desk: Desk) -> None:
    heap.tend(desk)
    if (told := own_user_only()) is not None:
        log.warning("%s", told)
    await until_ended(signals, desk)


async def _acquired(lock: HostLock) -> bool:
    """A service that is being started again waits for its predecessor's end."""
    with anyio.move_on_after(PATIENCE_S):
        while not lock.acquire():  # noqa: ASYNC110  a lock of another process tells nobody
            await anyio.sleep(0.1)
        return True
    return False


def _told_by_the_hub() -> tuple[str, TcpAddress]:
    """The name of this service, and where it is to listen."""
    try:
        url = urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])
        name, prefix = os.environ["JUPYTERHUB_SERVICE_NAME"], os.environ["JUPYTERHUB_SERVICE_PREFIX"]
        host, port, _token = url.hostname, url.port, os.environ["JUPYTERHUB_API_TOKEN"]
    except (KeyError, ValueError):
        host = port = None
    if host is None or port is None:
        raise SystemExit(
            "jupyter gpusched: JupyterHub starts this, with JUPYTERHUB_SERVICE_URL and the like in its environment.\n"
            "  In jupyterhub_config.py: import jupyter_gpusched.hosts.hub; jupyter_gpusched.hosts.hub.configure(c)"
        )
    return name, TcpAddress(host, port, prefix.rstrip("/"))
