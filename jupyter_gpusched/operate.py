"""GET alerts, and what an administrator does with the machine: quarantine and return cards, drain and resume.

On a host for one user its owner is the administrator. Who did it and why is in the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, TypeVar

import msgspec

from . import wire
from .core.messages import Drained, Quarantined, Resumed, Returned
from .core.model import BadRequest, Gpu, NotAllowed, WrongPhase
from .core.operations import Drain
from .desk import Handler

LONGEST_CAUSE = 500

_Request = TypeVar("_Request", bound=msgspec.Struct)


class AlertsHandler(Handler):
    """GET alerts: what a person should look at now."""

    def get(self) -> None:
        self.answer(wire.AlertList(items=self.views().alerts(), next_cursor=None))


class OfAdministrators(Handler):
    """Calls that are an administrator's alone. ``may``: what each method does, to go with "may"."""

    may: ClassVar[Mapping[str, str]] = {}

    def admit(self) -> None:
        super().admit()
        if not self.caller.admin:
            what = self.may.get(self.request.method or "", "run this machine")
            raise NotAllowed(
                f"Only administrators may {what}.",
                hint=f"Administrators here: {self.desk.doorkeeper.administrators()}.",
            )

    async def asked(self, kind: type[_Request]) -> _Request:
        try:
            return msgspec.convert(await self.body(), kind)
        except msgspec.ValidationError as error:
            raise BadRequest(
                f"This cannot be understood: {error}.", hint="See openapi.json for what it takes."
            ) from None


class QuarantineHandler(OfAdministrators):
    """POST admin/quarantine: no jobs for a card; with ``release`` it gets jobs again. Answers with the card."""

    may: ClassVar[Mapping[str, str]] = {"POST": "take a GPU out of use or give it jobs again"}

    async def post(self) -> None:
        asked = await self.asked(wire.QuarantineRequest)
        gpu, by = find_gpu(self.desk.engine.state.gpus.values(), asked.gpu, field="gpu"), self.caller.user
        if asked.release:
            self._check_release(gpu)
            event = Returned(gpu.uuid, by, cause_of(asked.cause, "no cause was given"))
            await self.desk.engine.operate(event)
        else:
            await self.desk.engine.operate(Quarantined(gpu.uuid, by, cause_of(asked.cause, "taken out of use")))
        self.answer(next(view for view in self.views().gpus() if view.uuid == gpu.uuid))

    def _check_release(self, gpu: Gpu) -> None:
        if gpu.uuid not in self.desk.engine.state.operations.quarantines:
            raise WrongPhase(
                f"GPU {gpu.index} is not quarantined.", field="gpu", hint="`jupyter gpusched gpus` shows it."
            )
        if gpu.health == "lost":
            raise WrongPhase(
                f"GPU {gpu.index} is still lost: {gpu.health_cause}.",
                field="gpu",
                hint="It can be released once the driver can read it again.",
            )


class DrainHandler(OfAdministrators):
    """POST admin/drain: nothing new starts; what runs goes on, and submissions are taken and wait."""

    may: ClassVar[Mapping[str, str]] = {"POST": "drain this machine"}

    async def post(self) -> None:
        asked = await self.asked(wire.CauseRequest)
        await self.desk.engine.operate(Drained(self.caller.user, cause_of(asked.cause, "no cause was given")))
        self.answer(wire.DrainState(drained=drained(self.desk.engine.state.operations.drain)))


class ResumeHandler(OfAdministrators):
    """POST admin/resume: the end of a drain."""

    may: ClassVar[Mapping[str, str]] = {"POST": "end a drain"}

    async def post(self) -> None:
        asked = await self.asked(wire.CauseRequest)
        await self.desk.engine.operate(Resumed(self.caller.user, cause_of(asked.cause, "no cause was given")))
        self.answer(wire.DrainState(drained=drained(self.desk.engine.state.operations.drain)))


def drained(drain: Drain | None) -> wire.Drained | None:
    return None if drain is None else wire.Drained(since=drain.since, by=drain.by, cause=drain.cause)


def cause_of(text: str | None, otherwise: str) -> str:
    """One line, since it is part of sentences."""
    words = " ".join((text or "").split()).rstrip(".")
    if len(words) > LONGEST_CAUSE:
        raise BadRequest(
            f"cause: it has more than {LONGEST_CAUSE} characters.", field="cause", hint="Say it in a sentence."
        )
    return words or otherwise


def find_gpu(known: Iterable[Gpu], named: str | int, *, field: str) -> Gpu:
    """The card of this index or UUID. Raises ``BadRequest`` naming those that there are."""
    gpus = sorted(known, key=lambda gpu: (gpu.index, gpu.uuid))
    found = [gpu for gpu in gpus if str(named) in (gpu.uuid, str(gpu.index))]
    if len(found) == 1:
        return found[0]
    if found:  # a card and its MIG instances have one index
        listed = ", ".join(gpu.uuid for gpu in found)
        raise BadRequest(f"{field}: {named} names several devices.", field=field, hint=f"Use one of {listed}.")
    listed = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus) or "none"
    raise BadRequest(f"{field}: there is no GPU {named!r}.", field=field, hint=f"There are: {listed}.")
