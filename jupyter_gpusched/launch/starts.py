"""How the supervisor of an attempt comes to be: as whom, in which cgroup, by a spare or by a start of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from jupyter_gpusched.ports import LaunchOrder

from .door import attempt_folder
from .fence import Fence
from .folders import lay_folder
from .homes import Homes, entering
from .nursery import Nursery
from .orders import supervisor_order
from .owners import Owner
from .prepared import PreparedCells
from .spawn import spawn
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

        def ordered(marker: str) -> bytes:
            return supervisor_order(
                order, passed_on=self.environ, marker=marker, log_limit=self.log_limit, means=means, home=watch.home
            )

        place = attempt_folder(order.folder, order.attempt)
        ready = None
        if spare and owner is None:
            ready = self.prepared.launch(order.work, ordered, place) or self.nursery.launch(ordered, place)
        if ready is not None:
            watch.child, watch.spare_since, watch.wake, watch.marker = ready
            return
        before = [*(means.scope or ()), *(entering(watch.home) if watch.home is not None else ())]
        if owner is not None and self.fence is not None:
            before += self.fence.command(order)
        watch.child, watch.wake = spawn(ordered(marker), place, self.environ, before=before, owner=owner)
