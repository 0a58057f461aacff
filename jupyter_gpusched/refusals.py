"""What the host refuses beside the core's own errors, and which HTTP status each error becomes."""

from __future__ import annotations

from http import HTTPStatus

from . import wire
from .core.model import (
    BadRequest,
    GpuSchedError,
    IllegalTransition,
    NotAllowed,
    Unauthorized,
    Unavailable,
    UnknownJob,
    WrongPhase,
)
from .pace import Pace
from .ports import DuplicateKey


class Conflict(GpuSchedError):
    """The client's idea of this host is wrong (other simulation, other API)."""

    code = "simulation_mismatch"


class MethodNotAllowed(GpuSchedError):
    code = "method_not_allowed"


class UnknownReservation(GpuSchedError):
    code = "unknown_reservation"

    def __init__(self, reservation_id: str) -> None:
        super().__init__(
            f"There is no reservation {reservation_id!r}.",
            field="id",
            hint="`jupyter gpusched reservations` lists them; one that is over has ended by itself.",
        )


class TooLarge(GpuSchedError):
    code = "too_large"


class TooManyRequests(GpuSchedError):
    """``after_s``: seconds after which the next one is admitted."""

    code = "too_many_requests"

    def __init__(self, user: str, pace: Pace, after_s: float) -> None:
        super().__init__(
            f"{user} asks too much: {pace.burst} requests at once and {pace.per_s:g} a second are answered.",
            hint="Ask again in a moment (`Retry-After` says when). Submit many jobs as one batch or array; "
            "follow `events` instead of asking again and again.",
        )
        self.after_s = after_s


class TooMuchAtOnce(TooManyRequests):
    """Large requests of a user, or of others, are still being taken in."""

    def __init__(self) -> None:
        GpuSchedError.__init__(
            self,
            "Other large requests are being taken in: this one has to wait.",
            hint="Ask again in a moment, send one large request after the other, and save large data to a file "
            "that the job reads.",
        )
        self.after_s = 5.0


class GivesWay(Conflict):
    """As above, and this host ends: the next one can be as the client asks."""

    code = wire.GIVES_WAY


STATUS: dict[type[GpuSchedError], HTTPStatus] = {
    BadRequest: HTTPStatus.UNPROCESSABLE_ENTITY,
    DuplicateKey: HTTPStatus.CONFLICT,
    UnknownJob: HTTPStatus.NOT_FOUND,
    UnknownReservation: HTTPStatus.NOT_FOUND,
    Unauthorized: HTTPStatus.UNAUTHORIZED,
    NotAllowed: HTTPStatus.FORBIDDEN,
    Conflict: HTTPStatus.CONFLICT,
    IllegalTransition: HTTPStatus.CONFLICT,
    WrongPhase: HTTPStatus.CONFLICT,
    MethodNotAllowed: HTTPStatus.METHOD_NOT_ALLOWED,
    TooManyRequests: HTTPStatus.TOO_MANY_REQUESTS,
    TooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""The only place where an error becomes an HTTP status."""
