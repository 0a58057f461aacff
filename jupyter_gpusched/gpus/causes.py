"""Sentences for what the NVIDIA driver answers when it cannot answer: why, and what a person must do.

Pure. Knows the names of NVML's errors, not the bindings, so that host and sampler share it.
"""

from __future__ import annotations

from typing import NamedTuple


class Trouble(NamedTuple):
    """An error as the driver's bindings gave it: NVML's name without its prefix, and their own words."""

    name: str
    text: str


NO_BINDINGS = Trouble("NO_BINDINGS", "nvidia-ml-py is not installed")
NO_CARD = Trouble("NO_CARD", "no card was found")
SILENT = Trouble("SILENT", "no answer")
BROKE_OFF = Trouble("BROKE_OFF", "the reading process ended")

ABSENT = frozenset({"LIBRARY_NOT_FOUND", "NO_CARD"})
"""Nothing is broken: this machine simply has no card that could be used."""

LOST = frozenset({"GPU_IS_LOST", "RESET_REQUIRED"})
"""Errors of one card that will not go away by themselves."""

_SENTENCES = {
    "LIBRARY_NOT_FOUND": "No NVIDIA driver was found: the library libnvidia-ml.so.1 is not installed here.",
    "DRIVER_NOT_LOADED": "The NVIDIA driver is installed but not loaded; load it (`nvidia-smi` as an administrator).",
    "NO_PERMISSION": "You have no permission to use the NVIDIA driver; ask for access to /dev/nvidia*.",
    "LIB_RM_VERSION_MISMATCH": (
        "The NVIDIA driver was upgraded while the old one is still loaded; reboot, or reload the driver."
    ),
    "UNKNOWN": "The NVIDIA driver reports an unknown error; in a container, restart the container.",
    "NO_BINDINGS": "The Python package nvidia-ml-py is missing; install it with `pip install nvidia-ml-py`.",
    "NO_CARD": "The NVIDIA driver is loaded but finds no GPU.",
    "SILENT": "The NVIDIA driver does not answer; see `dmesg` for its messages, and reboot if it stays so.",
    "BROKE_OFF": "The process that reads the NVIDIA driver ended unexpectedly; it is started again.",
}

_OF_A_CARD = {
    "GPU_IS_LOST": "the card fell off the bus; reset it or reboot the machine",
    "RESET_REQUIRED": "the card must be reset (`nvidia-smi --gpu-reset` as an administrator)",
    "GONE": "the driver does not list the card any more; reset it or reboot the machine",
    "SILENT": "the NVIDIA driver does not answer for this card; see `dmesg`, and reboot if it stays so",
    "NO_PERMISSION": "you have no permission to read this card; ask for access to /dev/nvidia*",
    "NO_INSTANCES": "MIG is on but the card has no instances; create some (`nvidia-smi mig -cgi ... -C`)",
}


def driver_cause(trouble: Trouble) -> str:
    """The sentence for a driver that cannot be used at all."""
    return _SENTENCES.get(trouble.name, f"The NVIDIA driver cannot be used: {trouble.text.rstrip('.')}.")


def card_cause(trouble: Trouble) -> str:
    """The words for one card that cannot be read, to stand after its name."""
    if trouble.name in _OF_A_CARD:
        return _OF_A_CARD[trouble.name]
    if trouble.name in _SENTENCES:
        return driver_cause(trouble).rstrip(".")
    return f"the card cannot be read: {trouble.text.rstrip('.')}"
