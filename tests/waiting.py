"""Waiting for events in tests: never for luck, always with a deadline and a reason."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest

DEADLINE_S = 30.0


def wait_for(what: Callable[[], Any], why: str, *, deadline_s: float = DEADLINE_S) -> Any:
    """Wait until ``what()`` is true and return it; fails with ``why`` after the deadline."""
    end = time.monotonic() + deadline_s
    while True:
        value = what()
        if value:
            return value
        if time.monotonic() > end:
            pytest.fail(f"waited {deadline_s:.0f} s in vain: {why}")
        time.sleep(0.01)


def within(seconds: float) -> float:
    """A bound that users see, in seconds; where many want to run at once, everything takes so many times as long."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
