"""The machine's cards, real or simulated, behind one port.

Which of them is decided here, once, when a host starts.
"""

from __future__ import annotations

from jupyter_gpusched.ports import GpuProvider

from .nvml import NoGpus, probe
from .simulated import SimulatedGpus, parse_simulation

__all__ = ["NoGpus", "SimulatedGpus", "open_provider", "parse_simulation", "probe"]


def open_provider(simulate: str | None) -> GpuProvider:
    """Simulated cards when ``simulate`` (GPUSCHED_SIMULATE) says so, else what the machine has."""
    return SimulatedGpus(simulate) if simulate else NoGpus(probe())
