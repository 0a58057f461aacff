"""The machine's cards, real or simulated, behind one port.

Which of them is decided here, once, when a host starts.
"""

from __future__ import annotations

from pathlib import Path

from jupyter_gpusched.ports import GpuProvider

from .nvml import NvmlGpus
from .probe import probe
from .simulated import SimulatedGpus, parse_simulation

__all__ = ["NvmlGpus", "SimulatedGpus", "open_provider", "parse_simulation", "probe"]


def open_provider(simulate: str | None, *, remembered: Path | None = None) -> GpuProvider:
    """Simulated cards when ``simulate`` (GPUSCHED_SIMULATE) says so, else the machine's own.

    Without a card or a driver there are none, and ``cause`` says why, until they appear.

    remembered  file in which the names of real cards outlive the host.
    """
    return SimulatedGpus(simulate) if simulate else NvmlGpus(remembered=remembered)
