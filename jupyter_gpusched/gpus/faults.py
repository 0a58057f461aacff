"""What a card reports about itself that needs a person: memory errors, and the recovery its driver asks for.

Runs in the sampler's process only. Asked seldom, since these values change seldom and can be slow.
What a card does not tell is unknown, not well and not ill: it is no fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Ask = Callable[..., Any]
"""A value of one card by the name of its call; None where the card does not tell it."""

EVERY_S = 5.0

_RECOVERY_ACTION = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, also where the bindings have no name for it
_ACTIONS = {
    1: "a reset of the card",
    2: "a reboot of the machine",
    3: "peer traffic to be drained",
    4: "to be drained and reset",
}
_UNCORRECTED, _SINCE_LOAD = 1, 0
_VALUE_OF_TYPE = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}


def fault(ask: Ask) -> str | None:
    """What is wrong with a card, in words that stand after its name; None = it reports nothing."""
    return "; ".join(_faults(ask)) or None


def _faults(ask: Ask) -> Iterator[str]:
    rows = ask("nvmlDeviceGetRemappedRows")
    if rows is not None:
        _corrected, _uncorrected, pending, failed = rows
        if failed:
            yield "rows of its memory that fail could not be replaced; have the card exchanged"
        if pending:
            yield "rows of its memory are to be replaced at the next reset (`nvidia-smi --gpu-reset`)"
    if ask("nvmlDeviceGetRetiredPagesPendingStatus"):
        yield "pages of its memory are to be retired at the next reset (`nvidia-smi --gpu-reset`)"
    if errors := ask("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _SINCE_LOAD):
        yield f"{errors} uncorrectable memory error{'' if errors == 1 else 's'} since the driver was loaded"
    if action := _recovery_action(ask):
        yield f"its driver asks for {_ACTIONS.get(action, f'recovery action {action}')}"


def _recovery_action(ask: Ask) -> int | None:
    """Each value of this call has an error of its own."""
    values = ask("nvmlDeviceGetFieldValues", [_RECOVERY_ACTION])
    if not values or values[0].nvmlReturn != 0:
        return None
    kind = _VALUE_OF_TYPE.get(values[0].valueType)
    return None if kind is None else int(getattr(values[0].value, kind))
