"""The NVIDIA driver through unmodified pynvml: what one device says, value by value.

Runs in the sampler's process only (and in ``probe``), never in the host: any call may hang.
A value that the card does not have is None, never 0. Raises ``DriverError`` and nothing else.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from .causes import NO_BINDINGS, Trouble
from .faults import EVERY_S as FAULTS_EVERY_S
from .faults import fault
from .owners import Owners

MIB = 2**20
UNSUPPORTED_S = 600.0
"""A call that a device does not support is not made again for so long."""

LARGEST_PID = 2**22
"""Linux gives out no larger one; what is above comes from a driver of another layout."""

_ABSENT = frozenset({"NOT_SUPPORTED", "FUNCTION_NOT_FOUND"})
_OLD_LAYOUT = _ABSENT | {"UNKNOWN", "ARGUMENT_VERSION_MISMATCH", "INVALID_ARGUMENT"}
_FATAL = frozenset({"GPU_IS_LOST", "RESET_REQUIRED", "LIB_RM_VERSION_MISMATCH", "DRIVER_NOT_LOADED", "UNINITIALIZED"})
_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
_UNIFIED = re.compile(r"GB10|Thor|Orin|Xavier|Tegra|Jetson", re.IGNORECASE)
_ATS = 2


class DriverError(Exception):
    """The driver, or one card, cannot be read."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.text)
        self.trouble = trouble


class Memory(NamedTuple):
    """MiB of a device, rounded down; ``used`` without what the driver reserves, where it tells them apart.

    plain  whether ``used`` is what processes have on the card, so that what none of them has belongs to nobody.
    """

    total: int
    reserved: int
    used: int
    free: int
    plain: bool = False


@cache
def _bindings() -> Any:
    try:
        import pynvml  # type: ignore[import-untyped]  # NVIDIA publishes no types
    except ImportError:
        raise DriverError(NO_BINDINGS) from None
    return pynvml


@cache
def _names() -> dict[Any, str]:
    """Names of NVML's error codes, from the bindings themselves."""
    prefix = "NVML_ERROR_"
    return {code: name.removeprefix(prefix) for name, code in vars(_bindings()).items() if name.startswith(prefix)}


def trouble_of(error: BaseException) -> Trouble:
    """What an exception of pynvml means. A function that bindings or driver lack is one and the same."""
    if isinstance(error, DriverError):
        return error.trouble
    if isinstance(error, AttributeError) or type(error).__name__ == "NVMLLibraryMismatchError":
        return Trouble("FUNCTION_NOT_FOUND", str(error))
    return Trouble(_names().get(getattr(error, "value", None), type(error).__name__), str(error))


def call(name: str, *arguments: Any, **named: Any) -> Any:
    """One call of the driver. Raises ``DriverError``."""
    try:
        return getattr(_bindings(), name)(*arguments, **named)
    except Exception as error:  # noqa: BLE001  pynvml raises more than its own errors (NVMLLibraryMismatchError)
        raise DriverError(trouble_of(error)) from None


def connect() -> int:
    """Open the driver; how many cards it has. Raises ``DriverError``."""
    call("nvmlInit")
    return int(call("nvmlDeviceGetCount"))


class Device:
    """A card or a MIG instance. What it is stays as first read; what it does is read anew each time."""

    def __init__(self, handle: Any, owners: Owners, *, index: int, parent: str | None = None) -> None:
        self.handle = handle
        self._owners = owners
        self._unsupported: dict[str, float] = {}
        self._list_version = "_v3"
        self._fault: str | None = None
        self._fault_due = 0.0
        self.index = index
        self.parent = parent
        self.uuid = _text(self._must("nvmlDeviceGetUUID"))
        self.name = _text(self.ask("nvmlDeviceGetName") or "NVIDIA GPU")

    def ask(self, name: str, *arguments: Any) -> Any:
        """A value, or None where the card does not tell it. Raises ``DriverError`` when the whole card is ill."""
        if self._unsupported.get(name, 0.0) > time.monotonic():
            return None
        try:
            return self._must(name, *arguments)
        except DriverError as error:
            if error.trouble.name in _FATAL:
                raise
            if error.trouble.name in _ABSENT:
                self._unsupported[name] = time.monotonic() + UNSUPPORTED_S
            return None

    def _must(self, name: str, *arguments: Any, **named: Any) -> Any:
        return call(name, self.handle, *arguments, **named)

    def mig_enabled(self) -> bool:
        mode = self.ask("nvmlDeviceGetMigMode")
        return bool(mode and mode[0])

    def instances(self) -> list[Any]:
        """Handles of its MIG instances; their numbers have holes."""
        count = self.ask("nvmlDeviceGetMaxMigDeviceCount") or 0
        handles = (self.ask("nvmlDeviceGetMigDeviceHandleByIndex", number) for number in range(count))
        return [handle for handle in handles if handle is not None]

    def reading(self, *, with_processes: bool = True) -> dict[str, Any]:
        """Everything as JSON. Processes and memory are read twice and the smaller is taken.

        So a change in between makes what seems to be free smaller, never larger.
        """
        first, before = (self._processes() if with_processes else None), self._memory(optional=not with_processes)
        second, after = (self._processes() if with_processes else None), self._memory(optional=not with_processes)
        memory = min(before, after, key=lambda seen: seen.free) if before and after else None
        listed, dropped = self._merged(first, second, memory)
        return {
            "uuid": self.uuid, "name": self.name, "index": self.index, "parent": self.parent,
            **(memory._asdict() if memory else dict.fromkeys(Memory._fields)),
            "processes": listed, "dropped": dropped, **self._figures(),
        }  # fmt: skip

    def _figures(self) -> dict[str, Any]:
        rates = self.ask("nvmlDeviceGetUtilizationRates")
        power = self.ask("nvmlDeviceGetPowerUsage")
        return {
            "utilization": None if rates is None else rates.gpu,
            "temperature": self._temperature(),
            "power": None if power is None else power / 1000,
            "mode": _MODES.get(self.ask("nvmlDeviceGetComputeMode")),
        }

    def fault(self) -> str | None:
        """What the card reports about itself that needs a person."""
        if time.monotonic() >= self._fault_due:
            self._fault = fault(self.ask)
            self._fault_due = time.monotonic() + FAULTS_EVERY_S
        return self._fault

    def minor(self) -> int | None:
        """N of /dev/nvidiaN."""
        number = self.ask("nvmlDeviceGetMinorNumber")
        return None if number is None else int(number)

    def _temperature(self) -> int | None:
        """The new call first: drivers deprecate the old one."""
        newer = self.ask("nvmlDeviceGetTemperatureV", 0)
        value = newer if newer is not None else self.ask("nvmlDeviceGetTemperature", 0)
        return None if value is None else int(value)

    # --- memory -------------------------------------------------------------------------

    def _memory(self, *, optional: bool) -> Memory | None:
        """None where the device does not tell it. A card whose memory cannot be read is ill: it raises."""
        try:
            return self._memory_v2()
        except DriverError as error:
            if error.trouble.name not in _OLD_LAYOUT:
                return self._unreadable(error, optional=optional)
        try:
            info = self._must("nvmlDeviceGetMemoryInfo")
            return Memory(info.total // MIB, 0, info.used // MIB, info.free // MIB)
        except DriverError as error:
            if error.trouble.name in _ABSENT:
                return self._unified_memory()
            return self._unreadable(error, optional=optional)

    @staticmethod
    def _unreadable(error: DriverError, *, optional: bool) -> None:
        if not optional or error.trouble.name in _FATAL:
            raise error

    def _memory_v2(self) -> Memory:
        version = getattr(_bindings(), "nvmlMemory_v2", None)
        if version is None:
            raise DriverError(Trouble("FUNCTION_NOT_FOUND", "these bindings are older than memory version 2"))
        info = self._must("nvmlDeviceGetMemoryInfo", version=version)
        return Memory(info.total // MIB, info.reserved // MIB, info.used // MIB, info.free // MIB, plain=True)

    def _unified_memory(self) -> Memory | None:
        """The host's memory, for a chip that is known to share it; a broken card must not be given it."""
        if not (_UNIFIED.search(self.name) or self.ask("nvmlDeviceGetAddressingMode") == _ATS):
            return None
        words = dict(re.findall(r"^(\w+):\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE))
        total, free = int(words["MemTotal"]) // 1024, int(words["MemAvailable"]) // 1024
        return Memory(total, 0, total - free, free)

    # --- processes ----------------------------------------------------------------------

    def _processes(self) -> dict[int, int | None] | None:
        """Bytes by pid (None = not told), or None where the card lists nobody. One pid in two lists counts once."""
        lists = [self._list(kind) for kind in ("Compute", "Graphics", "MPSCompute")]
        if lists[0] is None:
            return None
        found: dict[int, int | None] = {}
        for pid, size in (entry for one in lists if one for entry in one):
            known = found.get(pid)
            found[pid] = size if known is None else max(known, size or 0)
        return found

    def _list(self, kind: str) -> list[tuple[int, int | None]] | None:
        """One list of the driver. Drivers 535.43 to 535.86 fill ``_v3`` in another layout: then ``_v2`` is right."""
        entries = self._ask_list(f"nvmlDeviceGet{kind}RunningProcesses", self._list_version)
        if entries is not None and self._list_version == "_v3" and not _sane(entries):
            older = self._ask_list(f"nvmlDeviceGet{kind}RunningProcesses", "_v2")
            if older is not None and _sane(older):
                self._list_version = "_v2"
                return older
        return entries

    def _ask_list(self, name: str, version: str) -> list[tuple[int, int | None]] | None:
        for attempt in (name + version, name + version, name + "_v2"):  # the list may grow while it is read
            entries = self.ask(attempt)
            if entries is not None:
                return [(int(entry.pid), entry.usedGpuMemory) for entry in entries]
        return None

    def _merged(
        self, first: dict[int, int | None] | None, second: dict[int, int | None] | None, memory: Memory | None
    ) -> tuple[list[dict[str, Any]] | None, int]:
        """The processes of the second list with the smaller use of both as ``low``; and how many were impossible."""
        if first is None or second is None:
            return None, 0
        limit = memory.total * MIB if memory else None
        possible = {pid: size for pid, size in second.items() if _possible(pid, size, limit)}
        listed = [
            {"pid": pid, "mib": _mib(size), "low": _low(first.get(pid, 0), size), **self._owners.of(pid)}
            for pid, size in sorted(possible.items())
        ]
        return listed, len(second) - len(possible)


class Card:
    """A physical card with the MIG instances into which it may be divided."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._owners = Owners()
        self._device: Device | None = None
        self._instances: dict[str, Device] = {}

    def read(self) -> list[dict[str, Any]]:
        """The card alone, or followed by its MIG instances. Raises ``DriverError``."""
        self._owners.forget_the_gone()
        if self._device is None:
            handle = call("nvmlDeviceGetHandleByIndex", self._index)
            self._device = Device(handle, self._owners, index=self._index)
        divided = self._device.mig_enabled()
        card = {"fault": self._device.fault(), "minor": self._device.minor()}
        own = self._device.reading(with_processes=not divided) | card | {"divided": divided}
        instances = self._instance_readings(self._device) if divided else []
        return [own, *(reading | card for reading in instances)]

    def _instance_readings(self, parent: Device) -> list[dict[str, Any]]:
        """Instances come and go while the card stays; one that goes while it is read is left out."""
        found: dict[str, Device] = {}
        readings = [self._instance_reading(handle, parent, found) for handle in parent.instances()]
        self._instances = found
        return [reading for reading in readings if reading is not None]

    def _instance_reading(self, handle: Any, parent: Device, found: dict[str, Device]) -> dict[str, Any] | None:
        try:
            instance = self._instance(handle, parent)
            found[instance.uuid] = instance
            return instance.reading()
        except DriverError as error:
            if error.trouble.name in _FATAL:
                raise
            return None

    def _instance(self, handle: Any, parent: Device) -> Device:
        known = self._instances.get(_text(call("nvmlDeviceGetUUID", handle)))
        if known is None:
            return Device(handle, self._owners, index=self._index, parent=parent.uuid)
        known.handle = handle
        return known


def _sane(entries: list[tuple[int, int | None]]) -> bool:
    return all(0 < pid <= LARGEST_PID for pid, _ in entries)


def _possible(pid: int, size: int | None, limit: int | None) -> bool:
    return 0 < pid <= LARGEST_PID and (size is None or limit is None or size <= limit)


def _mib(size: int | None) -> int | None:
    return None if size is None else size // MIB


def _low(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else min(first, second) // MIB


def _text(value: Any) -> str:
    """Old bindings give bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def disconnect() -> None:
    with suppress(DriverError):  # ending a session that may be broken anyway
        call("nvmlShutdown")
