"""A policy of somebody's own, under watch: what it raises or answers wrongly must not end the host.

From its first fault on the default policy answers in its place, and what went wrong is kept for whoever asks.
That is the one thing here that changes; a policy itself is a value.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TypeVar

from .policies import NAMED, Bound, Columns, Earlier, Order, Policy, Waiting

Answer = TypeVar("Answer")

_NOT_BELOW: Order = (-math.inf,)


class Guarded(Policy):
    """``own`` as long as it does well, with its settings.

    name       as the administrator calls it.
    on_fault   is given the first fault, once.
    """

    def __init__(self, own: Policy, name: str, on_fault: Callable[[Exception], None] = lambda _: None) -> None:
        super().__init__(**{field.name: getattr(own, field.name) for field in fields(Policy)})
        put = object.__setattr__  # the base is frozen
        put(self, "own", own)
        put(self, "name", name)
        put(self, "_on_fault", on_fault)
        put(self, "_fault", None)
        put(self, "_instead", NAMED["default"])

    own: Policy
    name: str
    _on_fault: Callable[[Exception], None]
    _fault: str | None
    _instead: Policy

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def fault(self) -> str | None:
        return self._fault

    def order(self, job: Waiting) -> Order:
        return self._ask(lambda policy: _right_order(policy.order(job)))

    def orders(self, jobs: Columns) -> list[Order]:
        return self._ask(lambda policy: [_right_order(order) for order in policy.orders(jobs)])

    def bounds(self) -> Bound | None:
        bound = self._ask(lambda policy: policy.bounds())
        if bound is None:
            return None

        def watched(jobs: Earlier, passed_s: float, share: float) -> Order:
            """Orders that another policy gave say nothing of this one's."""
            before = self._fault
            order = self._ask(lambda _: _right_order(bound(jobs, passed_s, share)), instead=lambda: _NOT_BELOW)
            return order if before is None and self._fault is None else _NOT_BELOW

        return watched

    def patience_s(self, job: Waiting, claim_after_s: float) -> float:
        return self._ask(lambda policy: _right_patience(policy.patience_s(job, claim_after_s)))

    def least_patience_s(self, claim_after_s: float) -> float:
        return self._ask(lambda policy: _right_patience(policy.least_patience_s(claim_after_s)))

    def _ask(self, ask: Callable[[Policy], Answer], *, instead: Callable[[], Answer] | None = None) -> Answer:
        if self._fault is None:
            try:
                return ask(self.own)
            except Exception as error:  # noqa: BLE001  somebody else's code, which may fail in any way
                object.__setattr__(self, "_fault", f"{type(error).__name__}: {error}{_where(error)}")
                self._on_fault(error)
        return ask(self._instead) if instead is None else instead()


def _right_order(order: Order) -> Order:
    if not isinstance(order, tuple) or not all(
        isinstance(part, (int, float)) and not math.isnan(part) for part in order
    ):
        raise TypeError(f"order() gave {order!r}, which is no tuple of numbers")
    return order


def _right_patience(seconds: float) -> float:
    if not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise TypeError(f"a patience of {seconds!r} is no number of seconds from 0 on")
    return seconds


def _where(error: Exception) -> str:
    """The line of theirs at which it happened."""
    theirs = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    return f" ({Path(theirs[-1].filename).name}:{theirs[-1].lineno})" if theirs else ""
