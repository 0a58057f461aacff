"""The address of a JupyterHub service: where it is, and the token that says who asks.

Both come from the environment that the Hub gives to a user's server and its kernels. The
token goes into one header and nowhere else: no message, no representation, no argument list.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from .core.model import BadRequest, NotAllowed

URL, TOKEN = "GPUSCHED_SERVICE_URL", "JUPYTERHUB_API_TOKEN"

_FIT_FOR_A_HEADER = re.compile(r"[\x21-\x7e]+")
_FIT_FOR_A_PATH = re.compile(r"[\x21-\x7e]*")


@dataclass(frozen=True, slots=True)
class HubAddress:
    """``path`` comes before every target, without a slash at its end."""

    host: str
    port: int
    encrypted: bool
    path: str
    token: str = field(repr=False)

    def __str__(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.encrypted else 'http'}://{name}:{self.port}{self.path}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"token {self.token}"}

    def connection(self, timeout_s: float) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self.encrypted else http.client.HTTPConnection
        return kind(self.host, self.port, timeout=timeout_s)


def hub_address(environ: Mapping[str, str]) -> HubAddress | None:
    """The service that the environment names, if it names one.

    Raises ``BadRequest`` for an address that is none, ``NotAllowed`` without a token: a host of one's own
    beside the service would promise the same cards twice.
    """
    given = environ.get(URL)
    if not given:
        return None
    try:
        parts = urlsplit(given)
        host, port = parts.hostname, parts.port
    except ValueError:  # a port that is no number, an unclosed bracket
        host = port = None
    plain = host and not (parts.username or parts.password or parts.query or parts.fragment)
    if not (host and plain and parts.scheme in ("http", "https") and _FIT_FOR_A_PATH.fullmatch(parts.path)):
        raise BadRequest(
            f"{URL} is not the address of a service.",
            field=URL,
            hint="It looks like http://127.0.0.1:8765/services/gpusched; the Hub's administrator sets it.",
        )
    token = environ.get(TOKEN, "")
    if not _FIT_FOR_A_HEADER.fullmatch(token):
        raise NotAllowed(
            f"{URL} is set, but there is no usable token in {TOKEN}.",
            field=TOKEN,
            hint="Servers that the Hub starts have one, jobs do not. Elsewhere ask the Hub for a token with the scope "
            f"access:services!service=gpusched and set {TOKEN}, or unset {URL} to use a host of your own.",
        )
    encrypted = parts.scheme == "https"
    return HubAddress(host, port or (443 if encrypted else 80), encrypted, parts.path.rstrip("/"), token)
