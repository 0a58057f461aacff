"""Reservations from the terminal: ``reserve``, ``reservations``, ``unreserve``.

Times are told in the zone of this machine unless another is named; what is doubtful there the
host refuses with both choices.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .core.model import BadRequest
from .describe import one_line, reserved, staying, table, time_of_day
from .localtime import own_zone

if TYPE_CHECKING:
    from .client import Client

View = dict[str, Any]


def reserve(client: Client, asked: argparse.Namespace) -> int:
    zone = asked.zone or own_zone()
    if zone is None:
        raise BadRequest(
            "This machine does not say by name which time zone it is in.",
            field="zone",
            hint="Name it: --zone Europe/Berlin.",
        )
    if asked.gpu and asked.count is not None:
        raise BadRequest("Give a number of GPUs or --gpu, not both.", field="gpus")
    if (asked.end is None) == (asked.length is None):
        raise BadRequest(
            "Say until when: either --to or --for.", field="to", hint="For example --to 17:00, or --for 4h."
        )
    wanted = {
        "gpus": asked.gpu or (1 if asked.count is None else asked.count),
        "zone": zone,
        "from": asked.start,
        "to": asked.end,
        "for": asked.length,
        "user": asked.user,
        "interactive": asked.interactive or None,
        "cause": asked.cause,
    }
    made = client.reserve({name: value for name, value in wanted.items() if value is not None})
    if asked.json:
        print(json.dumps(made, ensure_ascii=False))
        return 0
    print(f"{cards_of(made)}: {reserved(made, time.time())}")
    print(made["id"])
    return 0


def reservations(client: Client, asked: argparse.Namespace) -> int:
    items = client.reservations()
    if asked.json:
        print(json.dumps(items, ensure_ascii=False))
    else:
        print(reservations_table(items) if items else "Nothing is reserved. `jupyter gpusched reserve` does it.")
    return 0


def unreserve(client: Client, asked: argparse.Namespace) -> int:
    for reservation_id in asked.ids:
        client.unreserve(reservation_id)
        print(f"{reservation_id} has ended")
    return 0


def reservations_table(items: Sequence[View], now: float | None = None) -> str:
    rows = [["ID", "GPUS", "FOR", "FROM", "TO", "WHY"]]
    now = time.time() if now is None else now
    for one in items:
        start, end = (time_of_day(at, now) for at in (one["start"], one["end"]))
        why = [one_line(one["cause"]), staying(one) if one["reaching_in"] else ""]
        begun = "now" if one["active"] else start
        rows.append([one["id"], cards_of(one), holder_of(one), begun, end, "; ".join(filter(None, why)) or "-"])
    return table(rows)


def cards_of(one: View) -> str:
    numbers = ", ".join(str(gpu["index"]) for gpu in one["gpus"])
    missing = one["count"] - len(one["gpus"])
    lacking = f" ({missing} more cannot be seen)" if missing else ""
    return f"GPU{'s' if len(one['gpus']) > 1 else ''} {numbers or 'none'}{lacking}"


def holder_of(one: View) -> str:
    return one_line(one["user"]) or "work outside the queue"
