"""Who asks a service of JupyterHub: the Hub says it of the token that comes with a request.

A token counts only with the scope of this service, and only while the Hub can be asked: what was
learnt is believed for a minute, and a Hub that does not answer lets nobody in. Jobs run as the
unix user who has the name of the Hub's user, so that whoever has no account here is turned away.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pwd
import re
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import anyio
import anyio.to_thread
from tornado.httputil import HTTPServerRequest
from tornado.web import HTTPError

from jupyter_gpusched.callers import Caller, OwnerOnly, group_names, in_words, overflow_uid
from jupyter_gpusched.core.model import NotAllowed, Unauthorized, Unavailable
from jupyter_gpusched.launch.owners import NoSuchOwner, unix_user
from jupyter_gpusched.readers import Readers

from .hub import ADMIN_SCOPE, access_scope
from .hub_strangers import Strangers

log = logging.getLogger(__name__)

BELIEVED_S = 60
"""So long the Hub's word on a token counts; a token that is revoked lives so long at most."""


_PATIENCE_S = 20.0
_MOST_KNOWN = 2000
_TOKEN = re.compile(r"(?:token|bearer)\s+([\x21-\x7e]{1,1024})", re.IGNORECASE)

Model = dict[str, Any]
AskHub = Callable[[str], Awaitable[Model | None]]
"""What the Hub says of a token: a user with scopes, or None for a token that it does not know."""


class ByHubToken:
    """The callers of a Hub's service.

    ask      asks the Hub; whatever it raises is taken for its silence.
    holds    whether scopes that were given cover one that is needed, by the Hub's own rules.
    admins   names and groups of administrators, beside those whom the Hub names.
    min_uid  accounts below it are the machine's, whatever users the Hub has of their names.
    """

    def __init__(
        self,
        ask: AskHub,
        holds: Callable[[str, Model], bool],
        *,
        service: str = "gpusched",
        min_uid: int = 1000,
        admins: Iterable[str] = (),
        admin_groups: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._ask = ask
        self._holds = holds
        self._scope = access_scope(service)
        self._min_uid = min_uid
        self._admins = frozenset(admins)
        self._admin_groups = frozenset(admin_groups)
        self._by_socket = OwnerOnly()
        self._known: dict[bytes, tuple[float, Caller]] = {}  # by the digest of a token: until when, and who
        self._strangers = Strangers(clock)
        self._again = Readers(anyio.CapacityLimiter(_MOST_KNOWN), 1)  # of one token once at a time

    async def caller(self, request: HTTPServerRequest) -> Caller:
        """Whoever starts the service reaches it on its own unix socket too, which nobody else can enter."""
        if request.connection.stream.socket.family == socket.AF_UNIX:  # type: ignore[union-attr]
            return await self._by_socket.caller(request)
        token = _TOKEN.fullmatch(request.headers.get("Authorization", ""))
        if token is None:
            raise Unauthorized(
                "This request says not whose it is.", hint="Send `Authorization: token ...` with a token of the Hub."
            )
        digest = hashlib.sha256(token[1].encode()).digest()
        if (known := self._known_by(digest)) is not None:
            return known
        if digest in self._known:  # good a minute ago: whatever strangers do, it does not wait for them
            async with self._again.turn(digest.hex()):
                return self._known_by(digest) or await self._asked(digest, token[1])
        self._strangers.check(digest)
        async with self._strangers.turn(request):
            self._strangers.check(digest)
            return self._known_by(digest) or await self._asked(digest, token[1])

    def _known_by(self, digest: bytes) -> Caller | None:
        until, known = self._known.get(digest, (0.0, None))
        return known if self._clock() < until else None

    async def _asked(self, digest: bytes, token: str) -> Caller:
        asked_at = self._clock()
        model = await self._model(token)
        try:
            caller = await anyio.to_thread.run_sync(self._admitted, model)
        except (Unauthorized, NotAllowed) as error:
            self._known.pop(digest, None)
            self._strangers.remember(digest, error)
            raise
        self._remember(digest, asked_at + BELIEVED_S, caller)
        return caller

    async def knows(self, user: str) -> bool:
        """Whether jobs of a Hub's user of this name could run here; the Hub is not asked."""

        def could_have_jobs() -> bool:
            try:
                self._account(user)
            except NotAllowed:
                return False
            return True

        return await anyio.to_thread.run_sync(could_have_jobs)

    def administrators(self) -> str:
        configured = in_words(self._admins, self._admin_groups)
        return f"{configured}, and the Hub's own" if configured else "the Hub's own"

    def _remember(self, digest: bytes, until: float, caller: Caller) -> None:
        if len(self._known) >= _MOST_KNOWN:
            now = self._clock()
            self._known = {one: known for one, known in self._known.items() if known[0] > now}
        if len(self._known) < _MOST_KNOWN:
            self._known[digest] = until, caller

    async def _model(self, token: str) -> Model | None:
        try:
            with anyio.fail_after(_PATIENCE_S):
                return await self._ask(token)
        except (OSError, TimeoutError, HTTPError) as error:
            log.warning("the Hub could not be asked about a token: %s", type(error).__name__)
            raise Unavailable(
                "The Hub does not answer, so that nobody can be let in.", hint="Jobs go on. Try again in a moment."
            ) from error

    def _admitted(self, model: Model | None) -> Caller:
        """Looks in the user database, which may be slow: not for the event loop."""
        if model is None:
            raise Unauthorized(
                "The Hub does not know this token.", hint="Restart your server from the Hub's control panel, or log in."
            )
        if model.get("kind") != "user" or not isinstance(model.get("name"), str):
            raise NotAllowed("Only users have jobs, services have none.", hint="Use a token of a user.")
        if not self._holds(self._scope, model):
            raise NotAllowed(
                f"This token lacks the scope {self._scope}.",
                hint="The Hub's administrator adds it to the role `user` and to c.Spawner.server_token_scopes, as "
                "jupyter_gpusched.hosts.hub.configure(c) does; then restart your server from the Hub's control panel.",
            )
        entry = self._account(model["name"])
        groups = (*group_names(entry), *(group for group in model.get("groups", ()) if isinstance(group, str)))
        of_the_hub = bool(model.get("admin")) or self._holds(ADMIN_SCOPE, model)
        configured = model["name"] in self._admins or not self._admin_groups.isdisjoint(groups)
        unique = tuple(dict.fromkeys(groups))
        return Caller(model["name"], entry.pw_uid, entry.pw_dir, unique, admin=of_the_hub or configured)

    def _account(self, name: str) -> pwd.struct_passwd:
        try:
            owner = unix_user(name)
        except NoSuchOwner as error:
            raise NotAllowed(
                f"Jobs run as their owner, but {error}.", hint="The administrator of this machine adds the account."
            ) from None
        if owner.uid == overflow_uid() and owner.uid != os.geteuid():
            raise NotAllowed(
                f"{name!r} stands for everybody who has no number here (uid {owner.uid}), so that no jobs run as it.",
                hint="Use the Hub under a name of your own.",
            )
        if owner.uid < self._min_uid and (owner.uid == 0 or owner.uid != os.geteuid()):
            raise NotAllowed(
                f"{name!r} is an account of the system (uid {owner.uid}), as which no jobs run.",
                hint="Use the Hub under a name of your own.",
            )
        if os.geteuid() not in (0, owner.uid):
            raise NotAllowed(
                f"This service runs without root, as {_name_of(os.geteuid())}, and can run jobs of that user only.",
                hint="The Hub's administrator starts it as root to serve everybody.",
            )
        return pwd.getpwnam(name)


def _name_of(uid: int) -> str:
    try:
        return repr(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return f"uid {uid}"


def hub_asker(service: str) -> tuple[AskHub, Callable[[str, Model], bool]]:
    """The Hub that started this process, by the variables that it set, and its own idea of scopes."""
    from jupyterhub.services.auth import HubAuth

    auth = HubAuth(cache_max_age=BELIEVED_S, access_scopes={access_scope(service)})

    async def ask(token: str) -> Model | None:
        model: Model | None = await auth.user_for_token(token, sync=False)
        return model

    def holds(scope: str, model: Model) -> bool:
        return bool(auth.check_scopes({scope}, model))

    return ask, holds
