"""JupyterHub: one line in its configuration, and the process that it then starts as a service.

``configure`` runs inside the Hub, which must stay quick and safe to start: this module imports
nothing that schedules.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

Value = TypeVar("Value", list[Any], dict[str, Any])

SERVER_SCOPES = ("users:activity!user", "access:servers!server")
"""What the Hub gives to the token of a user's server unless told otherwise."""

ADMIN_SCOPE = "custom:gpusched:admin"
"""Whoever holds it runs the machine, as the Hub's own administrators do."""


def access_scope(service: str) -> str:
    return f"access:services!service={service}"


def configure(
    c: Any,
    *,
    port: int | None = None,
    name: str = "gpusched",
    state: str | None = None,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> None:
    """Add the GPU queue to a Hub: ``jupyter_gpusched.hosts.hub.configure(c)`` at the end of its configuration.

    Adds the service, the scope by which users and their servers may ask it, and its address to the
    servers' environment. Roles, services and variables that are there already stay.

    port         of this machine, for its own users. By default 876, which only root can listen on, so that no
                 user can take the place of a service that is being restarted; 8765 where the Hub is not root.
    name         of the service in the Hub.
    state        folder of the queue; by default /var/lib/jupyter-gpusched, without root that of the user.
    options      of the service, such as ``["--GpuSched.overuse=kill"]``.
    environment  more variables for the service, such as GPUSCHED_SIMULATE.
    """
    root = os.geteuid() == 0
    url = f"http://127.0.0.1:{port or (876 if root else 8765)}"
    folder = state or ("/var/lib/jupyter-gpusched" if root else None)
    own = {"PATH": os.environ.get("PATH", os.defpath), **({"GPUSCHED_HOME": folder} if folder else {})}
    _list(c, "JupyterHub", "services").append(
        {
            "name": name,
            "url": url,
            "command": [sys.executable, "-m", "jupyter_gpusched.hosts.hub", *options],
            "environment": own | dict(environment or {}),
            "cwd": "/",
        }
    )
    _dict(c, "JupyterHub", "custom_scopes").setdefault(
        ADMIN_SCOPE, {"description": "See and end everybody's GPU jobs, and take GPUs out of use."}
    )
    roles = _list(c, "JupyterHub", "load_roles")
    users = next((role for role in roles if role["name"] == "user"), None)
    if users is None:
        roles.append({"name": "user", "scopes": ["self", access_scope(name)]})
    else:
        users["scopes"] = [*users["scopes"], access_scope(name)]
    of_servers = _list(c, "Spawner", "server_token_scopes", SERVER_SCOPES)
    of_servers += [access_scope(name), ADMIN_SCOPE]  # a server's token gets what its user holds of them
    _dict(c, "Spawner", "environment").setdefault("GPUSCHED_SERVICE_URL", url)


def _list(c: Any, section: str, name: str, default: Sequence[Any] = ()) -> list[Any]:
    """The list that the configuration has under this name, to be added to."""
    return _kept(c, section, name, list(default))


def _dict(c: Any, section: str, name: str) -> dict[str, Any]:
    return _kept(c, section, name, {})


def _kept(c: Any, section: str, name: str, default: Value) -> Value:
    found = c[section].get(name)
    if found is None:
        found = default
    elif hasattr(found, "get_value"):  # traitlets' stand-in for what has only been added to
        found = found.get_value(default)
    if not isinstance(found, type(default)):
        raise TypeError(f"c.{section}.{name} is of a kind that cannot be added to: do by hand what configure() would")
    c[section][name] = found
    return found


if __name__ == "__main__":
    from jupyter_gpusched.hosts.hub_service import HubServe

    HubServe.launch_instance()
