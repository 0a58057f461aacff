"""One thread per kernel that asks the host once a second for everything shown live.

It runs while anything is shown and ends with the last of it. Never asks twice in a round, and
never lets an unreachable host end the looking.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from functools import cached_property
from typing import Any, Protocol

from .core.model import GpuSchedError, UnknownJob
from .session import host
from .widgetrows import FAILED, FAILED_NAMED, ArrayNow, array_of

EVERY_S = 1.0
MOST_JOBS = 100
MOST_ELEMENTS = 200
"""Of a longer array that is open those that run or have failed are shown, some of each."""

_PATIENT_ROUNDS = 5
_AFTER_TROUBLE_S = 30.0


class Round:
    """The answers of one round, each asked for when it is first needed."""

    @cached_property
    def gpus(self) -> list[dict[str, Any]]:
        return host().gpus()

    @cached_property
    def drained(self) -> bool:
        """Whether nothing new starts on this machine."""
        return host().health()["drained"] is not None

    @cached_property
    def gpu_cause(self) -> str | None:
        cause: str | None = host().health()["gpu_cause"]
        return cause

    @cached_property
    def jobs(self) -> list[dict[str, Any]]:
        """The caller's newest jobs, newest first."""
        return host().jobs(limit=MOST_JOBS)

    def arrays(self, opened: Collection[str]) -> dict[str, ArrayNow]:
        """The arrays among these jobs, of those that are ``opened`` with their elements."""
        known: dict[str, list[dict[str, Any]]] = {}
        for view in self.jobs:
            if view["array_id"] is not None:
                known.setdefault(view["array_id"], []).append(view)
        if len(self.jobs) < MOST_JOBS:  # then all of their elements are among them
            found = [array_of(array_id, views) for array_id, views in known.items()]
        else:
            found = [array for array_id in known if (array := self.array(array_id, array_id in opened)) is not None]
        return {array.id: array for array in found if array.whole["count"] > 1}

    def array(self, array_id: str, with_elements: bool) -> ArrayNow | None:
        """One array as its host knows it; None for one that is not known any more."""
        known = _ENDED.get((array_id, with_elements))
        if known is not None:
            return known
        try:
            whole = host().array(array_id)
        except UnknownJob:
            return None
        few = whole["count"] <= MOST_ELEMENTS
        if with_elements and few:
            array = array_of(array_id, host().jobs(array=array_id))
        else:
            phases = [phase for phase in FAILED if whole["phases"].get(phase)]
            most = MOST_ELEMENTS // 4 if with_elements else FAILED_NAMED
            failed = _in_phases(array_id, phases, most)
            going = _in_phases(array_id, ("running", "starting"), most) if with_elements else []
            array = array_of(array_id, [*failed, *going], whole)
        if array.ended:
            if len(_ENDED) >= MOST_JOBS:
                _ENDED.clear()
            _ENDED[array_id, with_elements] = array
        return array


_ENDED: dict[tuple[str, bool], ArrayNow] = {}
"""Arrays of which nothing will change, by id and whether with their elements: they are asked for once."""


def _in_phases(array_id: str, phases: Collection[str], most: int) -> list[dict[str, Any]]:
    return [view for phase in phases for view in host().jobs(array=array_id, phase=phase, limit=most)]


class Viewer(Protocol):
    def take(self, answers: Round) -> None:
        """Show what is true now. Raises what the host says."""

    def lost(self, why: str) -> None:
        """The host could not be asked."""


class Feed:
    """Who is shown, and the thread that feeds them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._viewers: list[Viewer] = []
        self._thread: threading.Thread | None = None
        self._changed = threading.Event()
        self._in_vain = 0

    def join(self, viewer: Viewer) -> None:
        with self._lock:
            self._viewers.append(viewer)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="jupyter-gpusched-live", daemon=True)
                self._thread.start()

    def leave(self, viewer: Viewer) -> None:
        """Harmless for one that has left."""
        with self._lock:
            self._viewers = [other for other in self._viewers if other is not viewer]
        self._changed.set()

    def _run(self) -> None:
        while viewers := self._shown():
            self._round(viewers)
            self._pause()

    def _shown(self) -> list[Viewer]:
        with self._lock:
            if not self._viewers:
                self._thread = None  # decided under the lock: who joins from now on starts another
            return list(self._viewers)

    def _round(self, viewers: list[Viewer]) -> None:
        answers, trouble = Round(), None
        for viewer in viewers:
            try:
                viewer.take(answers)
            except GpuSchedError as error:  # noqa: PERF203  one that cannot be fed leaves the others be
                trouble = error.message
                viewer.lost(trouble)
        self._in_vain = 0 if trouble is None else self._in_vain + 1

    def _pause(self) -> None:
        """A second; more after many rounds in vain, since looking for a host may try to start one."""
        self._changed.wait(EVERY_S if self._in_vain < _PATIENT_ROUNDS else _AFTER_TROUBLE_S)
        self._changed.clear()


FEED = Feed()
