"""The cards of NVIDIA as a provider: one sampler process, replaced when it fails, and what is made of its answers.

Nothing here calls the driver. A sample takes a bounded time whatever the driver does; a card
that cannot be read keeps its last figures with their age, its health says why, and the others
go on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_gpusched.core.model import Gpu, Opener
from jupyter_gpusched.core.operations import LITTLE_MIB
from jupyter_gpusched.core.quantities import Mib
from jupyter_gpusched.ports import ActiveGrant

from .attribution import Past, Process, attribute
from .causes import ABSENT, NO_CARD, SILENT, Trouble, card_cause, driver_cause
from .child import Sampler
from .health import Health, judge
from .identities import Identity, recall, remember
from .openers import openers

log = logging.getLogger(__name__)

MOST_STUCK = 2
"""So many processes that cannot be killed are left behind; then no other one is started until one has ended."""

INIT_NAMESPACE = "pid:[4026531836]"
"""The number that Linux gives the machine's own pid namespace."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds.

    start   how long the first sample waits for a driver that is just being loaded.
    hello   how long a driver may take to open at all; without persistence mode a card takes seconds.
    least   between two samples, however many jobs end meanwhile.
    answer  how long a sample waits for cards that answered the last time.
    card    how long a card may owe an answer before it is unknown.
    broken  how long all cards may fail together before the process is replaced.
    renew   how often the process is replaced while single cards are lost or stuck.
    longest the largest pause between two tries; ``absent`` where there is no driver or no card at all.
    openers how long it is known who has a device open, since looking takes a while.
    """

    start: float = 5.0
    hello: float = 30.0
    least: float = 0.1
    answer: float = 1.0
    card: float = 3.0
    broken: float = 2.0
    renew: float = 60.0
    first_pause: float = 1.0
    longest: float = 30.0
    absent: float = 60.0
    openers: float = 10.0
    say_again: float = 3600.0


@dataclass
class _Device:
    """A card or MIG instance as it is known: who it is, its last good reading, and how it is."""

    identity: Identity
    reading: dict[str, Any] = field(default_factory=dict)
    at: float = 0.0
    health: Health = field(default_factory=Health)
    past: Past = field(default_factory=Past)
    opened_by: tuple[Opener, ...] = ()
    looked_at: float = float("-inf")


class NvmlGpus:
    """Implements ``ports.GpuProvider``. Called inside one event loop, one sample at a time.

    remembered    file in which the cards' names outlive the host.
    device_files  what the cards' device files are called, without their numbers.
    """

    simulated = False
    description = "nvml"

    def __init__(
        self, *, remembered: Path | None = None, timing: Timing | None = None, device_files: str = "/dev/nvidia"
    ) -> None:
        self._timing = timing or Timing()
        self._remembered = remembered
        self._lost_names = recall(remembered)
        self._devices: dict[str, _Device] = {}
        self._sampler: Sampler | None = None
        self._trouble: Trouble | None = None
        self._asked_at = 0.0
        self._pause = 0.0
        self._not_before = 0.0
        self._killed: list[Sampler] = []
        self._nameless: dict[int, Trouble] = {}
        self._renewals = 0
        self._renew_at: float | None = None
        self._failing_since: float | None = None
        self._said: dict[str, float] = {}
        self._device_files = device_files
        self._looking: asyncio.Task[None] | None = None
        self._own_namespace = _namespace() != INIT_NAMESPACE

    @property
    def cause(self) -> str | None:
        return None if self._trouble is None else driver_cause(self._trouble)

    @property
    def fault(self) -> str | None:
        """The cause, where something is broken and not just absent; cards that are known carry their own."""
        if self._trouble is not None and self._trouble.name in ABSENT and not self._devices:
            return None
        nameless = [f"GPU {card}: {card_cause(trouble)}." for card, trouble in sorted(self._nameless.items())]
        return self.cause or " ".join(nameless) or None

    async def sample(self, grants: Sequence[ActiveGrant], *, now: float) -> tuple[Gpu, ...]:
        await self._look()
        self._take_in(now)
        self._judge_sampler()
        return tuple(self._gpu(device, grants) for device in self._devices.values())

    async def close(self) -> None:
        if self._looking is not None:
            await asyncio.wait([self._looking], timeout=1.0)
        self._drop()
        for sampler in self._killed:
            await sampler.ended(1.0)

    # --- the sampler's process ------------------------------------------------------------

    async def _look(self) -> None:
        """Ask for a sample and wait for it, but not for cards that were slow already."""
        patience = self._timing.answer
        if self._sampler is None:
            self._start()
            patience = self._timing.start
        sampler = self._sampler
        if sampler is None:
            return
        await asyncio.sleep(max(0.0, self._asked_at + self._timing.least - time.monotonic()))
        self._asked_at = time.monotonic()
        slow = sampler.owing()
        sampler.ask()
        if sampler.cards is None:
            await sampler.wait(lambda: sampler.cards is not None, patience if patience > self._timing.answer else 0.0)
            slow = set()
        await sampler.wait(lambda: sampler.cards is None or not sampler.owing() - slow, patience)

    def _start(self) -> None:
        """A fresh process, unless it is too early, or earlier ones are stuck in the driver so that they cannot die."""
        self._killed = [sampler for sampler in self._killed if not sampler.gone]
        if time.monotonic() < self._not_before or len(self._killed) > MOST_STUCK:
            return
        try:
            self._sampler = Sampler()
        except OSError as error:
            self._give_up(Trouble("NO_PROCESS", f"no process could be started to read it: {error}"))

    def _drop(self) -> None:
        if self._sampler is not None:
            self._sampler.kill()
            self._killed.append(self._sampler)
            self._sampler = None

    def _judge_sampler(self) -> None:
        """Whether to go on with this process, now that its answers are taken in."""
        sampler, timing = self._sampler, self._timing
        if sampler is None:
            return
        if sampler.failed is not None:
            self._give_up(sampler.failed)
        elif sampler.cards is None:
            self._trouble = SILENT
            if time.monotonic() - sampler.started_at > timing.hello:
                self._give_up(SILENT)
        elif sampler.cards == 0:
            self._give_up(NO_CARD)
        elif self._all_failing():
            self._give_up(self._common_trouble(sampler))
        else:
            self._trouble = None
            self._renew_when_due()

    def _all_failing(self) -> bool:
        sampler = self._sampler
        assert sampler is not None
        if not all(self._failed(sampler, card) for card in range(sampler.cards or 0)):
            self._failing_since = None
            self._pause = 0.0
            return False
        if self._failing_since is None:
            self._failing_since = time.monotonic()
        return time.monotonic() - self._failing_since >= self._timing.broken

    def _failed(self, sampler: Sampler, card: int) -> bool:
        return sampler.owes_for(card) > self._timing.card or "failed" in sampler.latest.get(card, {})

    def _common_trouble(self, sampler: Sampler) -> Trouble:
        told = [Trouble(**line["failed"]) for line in sampler.latest.values() if "failed" in line]
        return told[0] if told else SILENT

    def _give_up(self, trouble: Trouble) -> None:
        """Without a working driver: try again later, with a fresh process that loads it anew."""
        self._trouble = trouble
        self._say(driver_cause(trouble), driver_cause(trouble))
        self._drop()
        longest = self._timing.absent if trouble.name in ABSENT else self._timing.longest
        first = longest if trouble.name in ABSENT else self._timing.first_pause
        self._pause = min(longest, 2 * self._pause or first)
        self._not_before = time.monotonic() + self._pause
        self._failing_since = None

    def _renew_when_due(self) -> None:
        """A lost card comes back, and a stuck call ends, only in a process that opened the driver afresh."""
        if all(device.health.status in {"ok", "quarantined"} for device in self._devices.values()):
            self._renew_at, self._renewals = None, 0
            return
        if self._renew_at is None:
            self._renew_at = time.monotonic() + self._timing.renew * 2 ** min(self._renewals, 3)
        elif time.monotonic() >= self._renew_at and self._sampler is not None:
            self._drop()
            self._renew_at = None
            self._renewals += 1

    # --- its answers ----------------------------------------------------------------------

    def _take_in(self, now: float) -> None:
        sampler = self._sampler
        if sampler is None or sampler.failed is not None or sampler.cards is None:
            if self._devices:
                trouble = sampler.failed if sampler is not None and sampler.failed else self._trouble or SILENT
                self._mark(self._devices.values(), trouble, now)
            return
        for card in range(sampler.cards):
            line = sampler.latest.get(card)
            if line is not None and "devices" in line and line["at"] > self._read_at(line["devices"]):
                self._take_card(line, now)
            if sampler.owes_for(card) > self._timing.card:
                self._mark(self._of(card), SILENT, now)
            elif line is not None and "failed" in line:
                self._mark(self._of(card), Trouble(**line["failed"]), now)
                if not self._of(card):
                    self._nameless[card] = Trouble(**line["failed"])
                    continue
            self._nameless.pop(card, None)
        self._mark([one for one in self._devices.values() if self._is_gone(one)], Trouble("GONE", ""), now)

    def _read_at(self, readings: Sequence[dict[str, Any]]) -> float:
        known = self._devices.get(readings[0]["uuid"])
        return known.at if known else 0.0

    def _take_card(self, line: dict[str, Any], now: float) -> None:
        """A card with its instances. What is not among them any more has been taken apart."""
        card, *instances = line["devices"]
        present = {reading["uuid"] for reading in instances}
        for uuid in [one.identity.uuid for one in self._devices.values() if one.identity.parent == card["uuid"]]:
            if uuid not in present:
                del self._devices[uuid]
        empty = card.get("divided") and not instances
        for reading in line["devices"]:
            trouble = Trouble("NO_INSTANCES", "") if empty else None
            self._take_device(reading, float(line["at"]), trouble, now)

    def _take_device(self, reading: dict[str, Any], at: float, trouble: Trouble | None, now: float) -> None:
        identity = _identity(reading)
        device = self._devices.get(identity.uuid)
        if device is None or device.identity != identity:
            device = device or _Device(identity)
            device.identity = identity
            self._devices[identity.uuid] = device
            self._remember()
        device.reading, device.at = reading, at
        self._set_health(device, judge(device.health, trouble, now))
        if reading["dropped"]:
            self._say(
                f"{identity.uuid} processes",
                f"GPU {identity.index}: {reading['dropped']} impossible processes in the driver's list are left out",
            )

    def _remember(self) -> None:
        """Cards that were lost before this host started keep their names, unless others have taken their places."""
        known = [device.identity for device in self._devices.values()]
        places = {identity.index for identity in known}
        remember(self._remembered, known + [lost for lost in self._lost_names if lost.index not in places])

    def _of(self, card: int) -> list[_Device]:
        """What is known of a card that cannot tell its UUID; if need be from the last host."""
        known = [one for one in self._devices.values() if one.identity.index == card]
        for identity in [] if known else [one for one in self._lost_names if one.index == card]:
            if identity.uuid not in self._devices:
                self._devices[identity.uuid] = device = _Device(identity)
                known.append(device)
        return known

    def _is_gone(self, device: _Device) -> bool:
        """A card whose number the driver does not count any more, or at whose place another one is."""
        sampler = self._sampler
        assert sampler is not None
        line = sampler.latest.get(device.identity.index)
        if device.identity.index >= (sampler.cards or 0):
            return True
        if line is None or "devices" not in line:
            return False
        return device.identity.uuid not in {reading["uuid"] for reading in line["devices"]}

    def _mark(self, devices: Iterable[_Device], trouble: Trouble, now: float) -> None:
        for device in devices:
            self._set_health(device, judge(device.health, trouble, now))

    def _set_health(self, device: _Device, health: Health) -> None:
        if health.cause is not None and health.cause != device.health.cause:
            self._say(f"{device.identity.uuid} {health.cause}", f"GPU {device.identity.index}: {health.cause}")
        device.health = health

    def _say(self, topic: str, text: str) -> None:
        """One line per distinct cause and hour."""
        if time.monotonic() - self._said.get(topic, float("-inf")) >= self._timing.say_again:
            self._said[topic] = time.monotonic()
            log.warning("%s", text)

    # --- what the engine gets -------------------------------------------------------------

    def _gpu(self, device: _Device, grants: Sequence[ActiveGrant]) -> Gpu:
        identity, reading, health = device.identity, device.reading, device.health
        shares = attribute(
            _processes(reading),
            reading.get("used"),
            [active for active in grants if active.grant.gpu == identity.uuid],
            device.past,
            own_namespace=self._own_namespace,
        )
        device.past = shares.past
        nobodys = shares.nobodys if reading.get("plain") else None
        minor = reading.get("minor")
        device_file = None if minor is None else f"{self._device_files}{minor}"
        opened_by: tuple[Opener, ...] = ()
        if device_file is not None and (nobodys or 0) > LITTLE_MIB:
            self._look_for_openers(device, device_file, grants)
            opened_by = device.opened_by
        return Gpu(
            uuid=identity.uuid,
            index=identity.index,
            name=identity.name,
            total=Mib(identity.total),
            sampled_at=device.at,
            reserved=Mib(identity.reserved),
            used=reading.get("used"),
            free=reading.get("free"),
            parent_uuid=identity.parent,
            utilization_pct=reading.get("utilization"),
            temperature_c=reading.get("temperature"),
            power_w=reading.get("power"),
            compute_mode=reading.get("mode"),
            health=health.status,
            health_cause=health.cause,
            health_since=health.since,
            used_by_job=shares.by_job,
            used_by_earlier=shares.by_earlier,
            foreign=shares.foreign,
            fault=reading.get("fault"),
            unattributed=None if nobodys is None else Mib(nobodys),
            device_file=device_file,
            opened_by=opened_by,
        )

    def _look_for_openers(self, device: _Device, device_file: str, grants: Sequence[ActiveGrant]) -> None:
        """Beside the sample, since a machine may have very many open files; found by the next sample, or later."""
        busy = self._looking is not None and not self._looking.done()
        if busy or time.monotonic() - device.looked_at < self._timing.openers:
            return
        known = {process["pid"] for process in device.reading["processes"] or ()} | {os.getpid()}
        known |= {pid for active in grants for pid in active.pids}
        known |= {sampler.pid for sampler in (*self._killed, self._sampler) if sampler is not None}

        async def look() -> None:
            device.looked_at = time.monotonic()
            device.opened_by = await asyncio.to_thread(openers, device_file, without=known)

        self._looking = asyncio.create_task(look())


def _identity(reading: dict[str, Any]) -> Identity:
    return Identity(
        reading["uuid"], reading["index"], reading["name"],
        total=reading["total"] or 0, reserved=reading["reserved"] or 0, parent=reading["parent"],
    )  # fmt: skip


def _processes(reading: dict[str, Any]) -> list[Process] | None:
    listed = reading.get("processes")
    return None if listed is None else [Process(**entry) for entry in listed]


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
