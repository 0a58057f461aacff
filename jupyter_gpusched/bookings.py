"""GET and POST reservations, DELETE reservations/ID: cards kept for somebody in a window of time.

Everybody sees them; administrators make and end them. Times are read in the zone that is named,
and one that the change of clocks makes doubtful is refused.
"""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from zoneinfo import ZoneInfo

import msgspec

from . import wire
from .callers import OwnerOnly
from .core.ledger import devices
from .core.messages import Reserved, Unreserved
from .core.model import BadRequest, Gpu, NotAllowed
from .core.operations import Reservation
from .core.quantities import parse_seconds, show_seconds
from .desk import Handler
from .drafts import new_id
from .localtime import day_of, moment, names_day, zone_of
from .operate import cause_of, find_gpu
from .refusals import UnknownReservation

LONGEST_S = 31 * 86400.0
FARTHEST_S = 366 * 86400.0
MOST = 256


class _Bookings(Handler):
    def admit(self) -> None:
        super().admit()
        if self.request.method != "GET" and not self.caller.admin:
            raise NotAllowed(
                "Only administrators reserve GPUs here.",
                hint=f"Administrators here: {self.desk.doorkeeper.administrators()}. "
                "`jupyter gpusched reservations` shows what is reserved.",
            )


class ReservationsHandler(_Bookings):
    """GET reservations; POST books one and answers with it. It is on disk then."""

    def get(self) -> None:
        self.answer(wire.ReservationList(items=self.views().reservations(), next_cursor=None))

    async def post(self) -> None:
        try:
            asked = msgspec.convert(await self.body(), wire.ReservationRequest)
        except msgspec.ValidationError as error:
            hint = 'For example {"gpus": 2, "from": "2026-12-04 13:00", "to": "17:00", "zone": "Europe/Berlin"}.'
            raise BadRequest(f"This cannot be understood: {error}.", hint=hint) from None
        await self._check_user(asked.user)
        wanted = self._wanted(asked)
        await self.desk.engine.operate(Reserved(wanted))
        self.answer(next(one for one in self.views().reservations() if one.id == wanted.id), HTTPStatus.CREATED)

    def _wanted(self, asked: wire.ReservationRequest) -> Reservation:
        engine, zone = self.desk.engine, zone_of(asked.zone)
        if len(engine.state.operations.reservations) >= MOST:
            raise BadRequest(f"There are {MOST} reservations already.", hint="End some: `jupyter gpusched unreserve`.")
        start, end = _window(asked, zone, engine.clock())
        named = () if isinstance(asked.gpus, int) else tuple(self._find(one).uuid for one in asked.gpus)
        cards = asked.gpus if isinstance(asked.gpus, int) else len(named)
        known = len(devices(engine.state.gpus.values()))
        if not 0 < cards <= known or len(set(named)) < len(named):
            raise BadRequest(
                f"gpus: {cards} of {known} GPUs cannot be reserved.",
                field="gpus",
                hint="Give a number of GPUs, or a list of their numbers or UUIDs, each once.",
            )
        return Reservation(
            id=new_id(),
            user=self._holder(asked),
            cards=cards,
            gpus=named,
            start=start,
            end=end,
            by=self.caller.user,
            zone=asked.zone,
            cause=cause_of(asked.cause, "") or None,
        )

    def _holder(self, asked: wire.ReservationRequest) -> str | None:
        """Whose jobs may use the cards. Where all jobs are one user's, nobody's: else it would keep nothing free."""
        if asked.interactive and asked.user is not None:
            raise BadRequest("user and interactive exclude each other.", field="user", hint="Leave out one of them.")
        if asked.user is not None:
            return asked.user
        return None if asked.interactive or isinstance(self.desk.doorkeeper, OwnerOnly) else self.caller.user

    async def _check_user(self, user: str | None) -> None:
        """One who can have no jobs here would only keep the cards from those who can."""
        if user is not None and not await self.desk.doorkeeper.knows(user):
            raise BadRequest(
                f"user: {user!r} is no user of this host.",
                field="user",
                hint="Write the name exactly, or leave it out; --interactive (in JSON: interactive) keeps the cards "
                "for work outside the queue.",
            )

    def _find(self, named: str | int) -> Gpu:
        return find_gpu(self.desk.engine.state.gpus.values(), named, field="gpus")


class ReservationHandler(_Bookings):
    """DELETE reservations/ID: the cards are open to all at once."""

    async def delete(self, reservation_id: str) -> None:
        if reservation_id not in self.desk.engine.state.operations.reservations:
            raise UnknownReservation(reservation_id)
        await self.desk.engine.operate(Unreserved(reservation_id, self.caller.user))
        self.set_status(HTTPStatus.NO_CONTENT)
        self.finish()


def _window(asked: wire.ReservationRequest, zone: ZoneInfo, now: float) -> tuple[float, float]:
    """The moments between which it holds. A time without a day is of today, as an end of the day of the start."""
    start = now if asked.from_ is None else moment(asked.from_, zone, today=day_of(now, zone), field="from")
    if (asked.to is None) == (asked.length is None):
        raise BadRequest(
            "Say until when: either `to` or `for`.", field="to", hint='For example "to": "17:00", or "for": "4h".'
        )
    if asked.length is not None:
        try:
            end = start + parse_seconds(asked.length)
        except ValueError as error:
            raise BadRequest(f"for: {error}.", field="for") from None
    else:
        end = moment(asked.to or "", zone, today=day_of(start, zone), field="to")
    if end <= start or end <= now:
        raise _over(asked, zone, start, end)
    if end - start > LONGEST_S or start - now > FARTHEST_S:
        raise BadRequest(
            f"A reservation lasts at most {show_seconds(LONGEST_S)} and begins within a year.",
            field="to",
            hint="Make a shorter one.",
        )
    return start, end


def _over(asked: wire.ReservationRequest, zone: ZoneInfo, start: float, end: float) -> BadRequest:
    """Which of the two moments is at fault: with a length, only the start can be."""
    begins, ends = (datetime.fromtimestamp(at, zone).strftime("%Y-%m-%d %H:%M") for at in (start, end))
    if asked.length is not None:
        field, said = "from", f"{begins} is in the past, and with {asked.length} from then it is over since {ends}"
    else:
        field, said = "to", f"{ends} is " + ("before it begins" if end <= start else "in the past")
    written = asked.from_ if field == "from" else asked.to
    example = "2026-12-05 02:00"
    hint = "Give a later time." if names_day(written or "") else f"Give the day too if it is another: {example}."
    return BadRequest(f"{field}: {said}.", field=field, hint=hint)
