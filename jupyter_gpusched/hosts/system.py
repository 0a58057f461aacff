"""The service of a machine with unix users and no Hub: ``jupyter gpusched serve --system``.

One socket for everybody, callers known by the kernel, jobs run as their owner. Without root it
works for its own user alone, and says so.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from jupyter_gpusched.callers import ByPeer, OwnerOnly
from jupyter_gpusched.find_host import SYSTEM_SOCKET, SYSTEM_STATE
from jupyter_gpusched.launch.acting import can_act
from jupyter_gpusched.launch.orders import SUPERVISOR
from jupyter_gpusched.launch.owners import unix_user
from jupyter_gpusched.launch.spawn import as_user
from jupyter_gpusched.places import PlaceError, state_folder
from jupyter_gpusched.service import Access
from jupyter_gpusched.settings import GpuSched

STATE = Path(SYSTEM_STATE)
_NOBODY = 65534
_TRIAL_S = 20.0


def system_state(environ: Mapping[str, str] = os.environ) -> Path:
    """``$GPUSCHED_HOME``, else the folder of system services."""
    return state_folder(dict(environ)) if environ.get("GPUSCHED_HOME") else STATE


def system_access(config: GpuSched, socket: str) -> Access:
    """For whom the service works. Raises ``PlaceError`` where jobs could not be run as their owners."""
    place = Path(socket or SYSTEM_SOCKET)
    if os.geteuid() != 0:
        return Access(OwnerOnly(), socket=place if socket else None)
    refuse_unless_able()
    os.umask(0o077)  # the database and its like are nobody's business; folders say themselves who may pass
    doorkeeper = ByPeer(admins=config.admin_users, admin_groups=config.admin_groups)
    return Access(doorkeeper, owners=unix_user, socket=place)


def refuse_unless_able() -> None:
    """Raises ``PlaceError`` where jobs could not be run as their owners."""
    for why in (can_act(), no_setpriv(), unreadable()):
        if why is not None:
            raise PlaceError(why)


def own_user_only() -> str | None:
    """What a person is told who has started the service without root; None where it serves everybody."""
    if os.geteuid() == 0:
        return None
    try:
        who = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        who = f"uid {os.geteuid()}"
    return f"without root this service works for {who} alone; others are turned away"


def no_setpriv() -> str | None:
    missing = [program for program in ("setpriv", "prlimit") if shutil.which(program) is None]
    return f"{', '.join(missing)}: missing, by which jobs become their owner's; install util-linux" if missing else None


def unreadable() -> str | None:
    """Why other users cannot execute this Python with our code; None when they can.

    By way of a shell, since the first program after the change of user is still found with root's rights.
    """
    shell = ["/bin/sh", "-c", 'exec "$@"', "sh"]
    python = [sys.executable, "-I", "-S", "-c", f"open({SUPERVISOR!r}).close()"]
    trial = [*as_user(_NOBODY, _NOBODY, ()), *shell, *python]
    try:
        done = subprocess.run(
            trial, cwd="/", env={}, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRIAL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nothing can be run as another user: {error}"
    if done.returncode == 0:
        return None
    last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    return (
        f"other users cannot run {sys.executable} with jupyter_gpusched ({last}); "
        "install both where everybody can read them, for example by `/usr/bin/python3 -m venv /opt/jupyter-gpusched`"
    )
