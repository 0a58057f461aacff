"""What NVML says about this machine, for now only the one sentence why no card can be used.

The driver's library is loaded at the first question, never at import, and no answer of it
(nor none at all) may raise or block beyond a deadline.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from jupyter_gpusched.core.model import Gpu
from jupyter_gpusched.ports import ActiveGrant

DEADLINE_S = 5.0

_SENTENCES = {
    "LIBRARY_NOT_FOUND": "No NVIDIA driver was found: the library libnvidia-ml.so.1 is not installed here.",
    "DRIVER_NOT_LOADED": "The NVIDIA driver is installed but not loaded; load it (`nvidia-smi` as an administrator).",
    "NO_PERMISSION": "You have no permission to use the NVIDIA driver; ask for access to /dev/nvidia*.",
    "LIB_RM_VERSION_MISMATCH": (
        "The NVIDIA driver was upgraded while the old one is still loaded; reboot, or reload the driver."
    ),
    "UNKNOWN": "The NVIDIA driver reports an unknown error; in a container, restart the container.",
}


def probe(*, deadline_s: float = DEADLINE_S) -> str:
    """One sentence why this machine's cards cannot be used. Never raises; answers within the deadline."""
    answers: list[str] = []
    # A stuck driver call cannot be interrupted: a thread that nobody waits for is the way to leave it behind.
    asking = threading.Thread(target=lambda: answers.append(_ask()), name="gpusched-nvml-probe", daemon=True)
    asking.start()
    asking.join(deadline_s)
    return answers[0] if answers else f"The NVIDIA driver did not answer within {deadline_s:.0f} seconds."


def _ask() -> str:
    try:
        import pynvml  # type: ignore[import-untyped]  # NVIDIA publishes no types
    except ImportError:
        return "The Python package nvidia-ml-py is missing; install it with `pip install nvidia-ml-py`."
    try:
        pynvml.nvmlInit()
    except Exception as error:  # noqa: BLE001  pynvml raises more than its own errors (NVMLLibraryMismatchError)
        return cause_of(error)
    try:
        return _found(pynvml.nvmlDeviceGetCount())
    except Exception as error:  # noqa: BLE001  as above
        return cause_of(error)
    finally:
        with suppress(Exception):  # ending a driver session that may be broken anyway
            pynvml.nvmlShutdown()


def _found(count: int) -> str:
    if count == 0:
        return "The NVIDIA driver is loaded but finds no GPU."
    cards = "1 NVIDIA GPU" if count == 1 else f"{count} NVIDIA GPUs"
    return f"This machine has {cards}, but this version of jupyter-gpusched schedules only simulated cards."


def cause_of(error: Exception) -> str:
    """The sentence for an error of pynvml."""
    value = getattr(error, "value", None)
    return _SENTENCES.get(_names().get(value, ""), f"The NVIDIA driver cannot be used: {error}.")


def _names() -> dict[Any, str]:
    """Names of NVML's error codes, from the bindings themselves."""
    import pynvml

    prefix = "NVML_ERROR_"
    return {code: name.removeprefix(prefix) for name, code in vars(pynvml).items() if name.startswith(prefix)}


class NoGpus:
    """Implements ``ports.GpuProvider`` for a machine without usable cards; jobs with ``gpus`` 0 run."""

    simulated = False
    description = "none"

    def __init__(self, cause: str) -> None:
        self._cause = cause

    @property
    def cause(self) -> str | None:
        return self._cause

    async def sample(self, grants: Sequence[ActiveGrant], *, now: float) -> tuple[Gpu, ...]:  # noqa: ARG002
        return ()

    async def close(self) -> None:
        return
