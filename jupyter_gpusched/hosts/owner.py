"""Who may act in a server that JupyterHub lets its owner share.

Jobs run under the owner's name, so that whoever else is let in sees and does nothing here.
"""

from __future__ import annotations

import os
from http import HTTPStatus

from jupyter_server.base.handlers import JupyterHandler
from tornado import web


def refuse_others(handler: JupyterHandler) -> None:
    """Raises 403 for everybody but the owner of this server."""
    owner = os.environ.get("JUPYTERHUB_USER")
    if owner and getattr(handler.current_user, "username", None) != owner:
        raise web.HTTPError(HTTPStatus.FORBIDDEN, "This server's GPU queue belongs to its owner.")
