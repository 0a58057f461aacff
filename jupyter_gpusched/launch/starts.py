"""How the supervisor of an attempt comes to be: as whom, in which cgroup, by a spare or by a start of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from jupyter_gpusched.core.model import JobId
from jupyter_gpusched.ports import LaunchOrder

from .door import attempt_folder
from .fence import Fence
from .folders import lay_folder
from .homes import Homes, entering
from .means import Means
from .nursery import BEING_FORKED_S, Nursery, Spare
from .orders import supervisor_order
from .owners import Owner
from .prepared import PreparedCells
from .spawn import limiting, spawn
from .watch import Watch


@dataclass
class Starter:
    """``environ`` is the host's own; ``homes`` makes cgroups for what runs as others, ``fence`` hides."""

    nursery: Nursery
    prepared: PreparedCells
    environ: Mapping[str, str]
    log_limit: int | None
    homes: Homes | None
    fence: Fence | None = None
    _ready: dict[tuple[JobId, int], tuple[Nursery, Spare]] = field(default_factory=dict)
    _told: dict[tuple[JobId, int], bool] = field(default_factory=dict)  # who may go, and whether it has heard it

    def prepare(self, order: LaunchOrder, means: Means) -> None:
        """Give it to a spare already, if one waits: it gets ready while the journal is written, and waits to go.

        Of our own attempts only. Raises ``OSError`` or ``ValueError``.
        """
        if order.rlimits:  # a spare has those of the host
            return
        ready = self._given(order, self._ordered(order, means, None))
        if ready is not None:
            self._ready[order.job.id, order.attempt] = ready

    def go(self, job_id: JobId, attempt: int) -> None:
        """Let it run, if it is ready: it has been written down. From any thread."""
        if (ready := self._ready.get((job_id, attempt))) is not None:
            self._told[job_id, attempt] = ready[1].go()

    def give_up(self, job_id: JobId, attempt: int) -> None:
        """It is not started after all; or nobody is here any more to watch it."""
        heard = self._told.pop((job_id, attempt), None)
        if (ready := self._ready.pop((job_id, attempt), None)) is not None and heard is not False:
            ready[1].give_up()

    def close(self) -> None:
        for job_id, attempt in list(self._ready):
            self.give_up(job_id, attempt)

    def start(self, watch: Watch, order: LaunchOrder, marker: str, owner: Owner | None, *, spare: bool) -> None:
        """Start it, by the watch's means; the watch knows it then. Raises ``OSError`` or ``ValueError``.

        owner  as whom it runs; None = as ourselves.
        spare  whether one that was kept ready will do.
        """
        means = watch.means
        watch.uid = None if owner is None else owner.uid
        if owner is not None:
            lay_folder(order.folder, owner)
            if self.homes is not None and means.scope is None:  # a scope is a place of its own already
                watch.home = self.homes.make(order, marker)
            means = replace(means, cgroups=None)  # what is ours could not be divided by another
        ordered = self._ordered(order, means, watch.home)
        if spare and owner is None and not order.rlimits and self._start_spare(watch, order, ordered):
            return
        before = [*(means.scope or ()), *(entering(watch.home) if watch.home is not None else ())]
        if owner is not None and self.fence is not None:
            before += self.fence.command(order)
        before += limiting(order.rlimits)
        place = attempt_folder(order.folder, order.attempt)
        watch.child, watch.wake = spawn(ordered(marker), place, self.environ, before=before, owner=owner)

    def _start_spare(self, watch: Watch, order: LaunchOrder, ordered: Callable[[str], bytes]) -> bool:
        ready = self._ready.pop((order.job.id, order.attempt), None)
        while ready is not None or (ready := self._given(order, ordered, patience_s=BEING_FORKED_S)) is not None:
            nursery, spare = ready
            heard = self._told.pop((order.job.id, order.attempt), None)
            if heard is None:
                heard = spare.go()
            nursery.fill_soon()
            if heard:
                watch.child, watch.spare_since, watch.wake, watch.marker = spare[:4]
                return True
            ready = None
        self.nursery.fill_soon()
        return False

    def _given(
        self, order: LaunchOrder, ordered: Callable[[str], bytes], *, patience_s: float = 0.0
    ) -> tuple[Nursery, Spare] | None:
        place = attempt_folder(order.folder, order.attempt)
        for nursery in (self.prepared.nursery_for(order.work, ordered), self.nursery):
            if nursery is not None and (spare := nursery.give(ordered, place, patience_s=patience_s)) is not None:
                return nursery, spare
        return None

    def _ordered(self, order: LaunchOrder, means: Means, home: str | None) -> Callable[[str], bytes]:
        """The supervisor's order, given the marker of the attempt."""
        return lambda marker: supervisor_order(
            order, passed_on=self.environ, marker=marker, log_limit=self.log_limit, means=means, home=home
        )
