"""``torch.cuda`` on the fake driver."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import fakegpu

_bytes = {"now": 0, "peak": 0}


@cache
def _allocation() -> fakegpu.Allocation:
    """This process's memory on its first device; there from the first use on, as a context is."""
    return fakegpu.Allocation()


def take(size: int) -> None:
    _allocation().grow(size)
    _bytes["now"] += size
    _bytes["peak"] = max(_bytes.values())


def give(size: int) -> None:
    _allocation().shrink(size)
    _bytes["now"] -= size


def is_available() -> bool:
    return bool(fakegpu.visible())


def device_count() -> int:
    return len(fakegpu.visible())


def synchronize() -> None:
    pass


def empty_cache() -> None:
    pass


def max_memory_allocated() -> int:
    return _bytes["peak"]


def set_per_process_memory_fraction(_fraction: float, _device: object = None) -> None:
    pass


def get_device_properties(index: int) -> SimpleNamespace:
    gpu, _mig = fakegpu.visible()[index]
    card = fakegpu.read().device(gpu)
    return SimpleNamespace(uuid=card["uuid"].removeprefix("GPU-"), name=card["name"], total_memory=card.num("total"))
