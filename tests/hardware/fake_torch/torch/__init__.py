"""As much of PyTorch as the hardware tests use, on the fake driver: a dry run needs neither a card nor PyTorch."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "fake_nvml"))

import fakegpu

from . import cuda

__version__ = "0 (fake)"
uint8 = "uint8"


class OutOfMemoryError(RuntimeError):
    pass


class Tensor:
    """Some bytes of the card; they are free again when it is deleted."""

    def __init__(self, size: int) -> None:
        self._size = 0
        try:
            cuda.take(size)
        except fakegpu.OutOfMemory as error:
            raise OutOfMemoryError(str(error)) from None
        self._size = size

    def __del__(self) -> None:
        if self._size:
            cuda.give(self._size)


def empty(size: int, *, dtype: str, device: str) -> Tensor:
    assert (dtype, device) == (uint8, "cuda")
    return Tensor(size)
