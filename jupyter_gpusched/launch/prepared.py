"""Cell processes kept prepared: by interpreter, folder and environment, for attempts that are alike in all three.

A nursery (``runner/prepared.py``) is started after the first attempt of its kind, in the way that
attempt was, and ends when none has come for a while. What is not alike to the last variable is
started anew: nothing here knows which variables matter to whom.
"""

from __future__ import annotations

import asyncio
import marshal
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from jupyter_gpusched.core.environment import CAP, varies
from jupyter_gpusched.core.model import Kind, Work

from .means import Hierarchy
from .nursery import Nursery

PREPARED = frozenset({Kind.CELL, Kind.FUNCTION})

START_AFTER_S = 1.0
"""So long after the first attempt of its kind a nursery is started, so as not to slow that one down."""

IDLE_S = 600.0
KEPT_S = 30.0
"""So long after its last attempt one is not given up for another kind: jobs of many kinds in a row prepare nothing."""

RESTART_S = 60.0
"""One that has ended by itself may find itself unfit; or a package was installed."""

_ROOM = 1024
"""Bytes for what an attempt's arguments and environment have more than those of the process that is forked for it."""

Alike = tuple[bytes, bytes, frozenset[tuple[bytes, bytes]]]
_CAP = CAP.encode()


@dataclass(eq=False)
class _Kept:
    nursery: Nursery
    used_at: float = 0.0
    idle: asyncio.TimerHandle | None = None


@dataclass(eq=False)
class PreparedCells:
    """At most ``most`` nurseries with two spares each; called inside the engine's loop."""

    most: int
    cgroups: Hierarchy | None = None
    _kept: OrderedDict[Alike, _Kept] = field(default_factory=OrderedDict)
    _coming: dict[Alike, asyncio.TimerHandle] = field(default_factory=dict)

    def nursery_for(self, work: Work, order: Callable[[str], bytes]) -> Nursery | None:
        """Where prepared processes are that are alike; None where there are none, yet.

        order  of the attempt with some marker.
        """
        if not self.most or work.kind not in PREPARED:
            return None
        told = marshal.loads(order(""))  # noqa: S302  our own
        alike = _alike(told["argv"][0], told["cwd"], told["env"])
        kept = self._kept.get(alike)
        if kept is None:
            if alike not in self._coming:
                loop = asyncio.get_running_loop()
                start = (alike, told["argv"][:2], told["env"])
                self._coming[alike] = loop.call_later(START_AFTER_S, self._start, *start)
            return None
        self._kept.move_to_end(alike)
        self._rest_later(alike, kept)
        return kept.nursery

    def close(self) -> None:
        for timer in self._coming.values():
            timer.cancel()
        self._coming.clear()
        for alike in list(self._kept):
            self._end(alike)

    def _start(self, alike: Alike, command: list[bytes], env: dict[bytes, bytes]) -> None:
        del self._coming[alike]
        if len(self._kept) >= self.most:
            oldest = next(iter(self._kept))
            if asyncio.get_running_loop().time() < self._kept[oldest].used_at + KEPT_S:
                return
            self._end(oldest)
        room = b"x" * (_ROOM + sum(len(name) + len(value) + 2 for name, value in env.items() if _varies(name)))
        nursery = Nursery(
            [*command, b"--prepared", b"-" * _ROOM],
            _common(env) | {b"ROOM": room},
            spares=2,
            cwd=alike[1],
            restart_s=RESTART_S,
            cgroups=self.cgroups,
        )
        kept = self._kept[alike] = _Kept(nursery)
        nursery.fill()
        self._rest_later(alike, kept)

    def _rest_later(self, alike: Alike, kept: _Kept) -> None:
        if kept.idle is not None:
            kept.idle.cancel()
        loop = asyncio.get_running_loop()
        kept.used_at = loop.time()
        kept.idle = loop.call_later(IDLE_S, self._end, alike)

    def _end(self, alike: Alike) -> None:
        kept = self._kept.pop(alike)
        if kept.idle is not None:
            kept.idle.cancel()
        kept.nursery.close()


def _alike(python: bytes, cwd: bytes, env: dict[bytes, bytes]) -> Alike:
    same = {name: value for name, value in env.items() if not _varies(name)}
    return python, cwd, frozenset(same.items())


def _common(env: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """What such attempts have in common, a cap so that it is looked for in each, and no card."""
    same = {name: value for name, value in env.items() if not _varies(name) or name == _CAP}
    return same | {b"CUDA_VISIBLE_DEVICES": b""}


def _varies(name: bytes) -> bool:
    return varies(name.decode(errors="replace"))
