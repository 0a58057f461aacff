"""Whose memory is on a card: our attempts' by their process trees, everybody else's is foreign.

Pure. Attributes only what is proven, since a stranger's memory taken for a job's would let
too much in; a use that cannot be told is left out, never 0. Follows the memory of an ended
attempt until the card shows it gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from jupyter_gpusched.core.model import Foreign, JobId
from jupyter_gpusched.core.quantities import Mib
from jupyter_gpusched.ports import ActiveGrant

LINGERING_MIB = 256
"""Less than this that nobody is listed for is the driver's own coming and going, not an ended job's memory."""

Key = tuple[JobId, int]


class Process(NamedTuple):
    """A process as the driver lists it.

    low   the smaller of two readings; None = not told.
    here  whether /proc has such a pid; if not, it lives in another namespace or is dead.
    """

    pid: int
    mib: int | None
    low: int | None
    user: str | None = None
    since: float | None = None
    here: bool = True
    kernel: bool = False
    notebook: str | None = None


class Trace(NamedTuple):
    """The use of a card by an attempt when it was last seen there."""

    pids: frozenset[int]
    mib: int


@dataclass(frozen=True, slots=True)
class Past:
    """What must be known of earlier samples of a card.

    unlisted  MiB in use for which no process was listed, at its lowest since jobs are on the card.
    matched   whether a process of ours was ever listed: then the driver speaks of the pids we know.
    """

    traces: Mapping[Key, Trace] = field(default_factory=dict)
    unlisted: int | None = None
    matched: bool = False


@dataclass(frozen=True, slots=True)
class Shares:
    """Who uses a card now. A job of ours whose use cannot be told is not in ``by_job``.

    by_job      by the latest attempt of each job on this card.
    by_earlier  by attempts of those jobs that ended before it and may not have let go of everything.
    nobodys  MiB in use that neither an attempt of ours nor a process that exists has; None = cannot be told.
    """

    by_job: dict[JobId, Mib]
    by_earlier: dict[JobId, Mib]
    foreign: tuple[Foreign, ...]
    past: Past
    nobodys: Mib | None = None


def attribute(
    processes: Sequence[Process] | None,
    used: int | None,
    grants: Iterable[ActiveGrant],
    past: Past,
    *,
    own_namespace: bool = False,
) -> Shares:
    """Divide the use of one card.

    processes      None = the driver lists nobody.
    grants         those on this card.
    own_namespace  we do not see the machine's pids, so that an empty list proves nothing.
    """
    grants = sorted(grants, key=_key)
    listed = processes or ()
    living = {_key(active): _of(listed, active.pids) for active in grants if active.alive}
    matched = past.matched or any(living.values())
    blind = processes is None or (not matched and (own_namespace or any(not process.here for process in listed)))
    unlisted = _unlisted(processes, used)
    uses = {key: _use(mine, blind=blind) for key, mine in living.items()}
    ended = _lingering(listed, unlisted, [_key(active) for active in grants if not active.alive], past)
    uses |= ended
    latest = dict(sorted(uses.keys()))  # of two attempts of a job the later one stays
    return Shares(
        by_job=_by_job({key: use for key, use in uses.items() if latest[key[0]] == key[1]}),
        by_earlier=_by_job({key: use for key, use in uses.items() if latest[key[0]] != key[1]}),
        foreign=_foreign(listed, grants, past),
        past=Past(_traces(living, grants, past), _lowest(past, unlisted, grants), matched),
        nobodys=None
        if blind or unlisted is None
        else _nobodys(listed, unlisted, ended, past, dead_pids=not own_namespace),
    )


def _nobodys(
    listed: Sequence[Process], unlisted: int, ended: Mapping[Key, int | None], past: Past, *, dead_pids: bool
) -> Mib:
    """What no process has, and what the driver lists for processes that are gone; less what ended attempts left.

    dead_pids  a listed pid that is not here is of a process that has ended, since we see those of the whole machine.
    """
    gone = sum(process.mib or 0 for process in listed if not process.here) if dead_pids else 0
    of_ended = 0
    for key, mib in ended.items():
        still = _of(listed, trace.pids) if (trace := past.traces.get(key)) is not None else []
        if not still:
            of_ended += mib or 0
        elif dead_pids:
            of_ended += sum(process.mib or 0 for process in still if not process.here)
    return Mib(max(0, unlisted + gone - of_ended))


def _key(active: ActiveGrant) -> Key:
    return active.grant.job_id, active.grant.attempt


def _of(listed: Iterable[Process], pids: frozenset[int]) -> list[Process]:
    return [process for process in listed if process.pid in pids]


def _use(mine: Sequence[Process], *, blind: bool) -> int | None:
    """Of a living attempt: nobody listed means nothing used, but only if it would be listed."""
    sizes = [process.low for process in mine]
    if None in sizes or (not mine and blind):
        return None
    return sum(size for size in sizes if size is not None)


def _lingering(
    listed: Sequence[Process], unlisted: int | None, ended: Sequence[Key], past: Past
) -> dict[Key, int | None]:
    """Memory of ended attempts that the card still holds: under their pids, or under nobody's."""
    spare = 0 if unlisted is None or past.unlisted is None else unlisted - past.unlisted
    found: dict[Key, int | None] = {}
    for key in ended:
        trace = past.traces.get(key)
        if trace is None:
            found[key] = None
        elif still := _of(listed, trace.pids):
            found[key] = max(1, sum(trace.mib if process.mib is None else process.mib for process in still))
        else:
            left = min(trace.mib, spare)
            found[key] = left if left > LINGERING_MIB else 0
            spare -= found[key] or 0
    return found


def _by_job(uses: Mapping[Key, int | None]) -> dict[JobId, Mib]:
    """Attempts of one job on one card together; what is known of it even if not all is."""
    sizes: dict[JobId, list[int | None]] = defaultdict(list)
    for (job_id, _), size in uses.items():
        sizes[job_id].append(size)
    sums = {job_id: (sum(size or 0 for size in these), None not in these) for job_id, these in sizes.items()}
    return {job_id: Mib(total) for job_id, (total, complete) in sums.items() if complete or total}


def _foreign(listed: Iterable[Process], grants: Sequence[ActiveGrant], past: Past) -> tuple[Foreign, ...]:
    ours: set[int] = set()
    for active in grants:
        trace = past.traces.get(_key(active))
        ours |= active.pids if active.alive else (trace.pids if trace else frozenset())
    return tuple(
        Foreign(
            process.pid,
            None if process.mib is None else Mib(process.mib),
            process.user,
            process.since,
            process.kernel,
            process.notebook,
        )
        for process in listed
        if process.pid not in ours
    )


def _traces(living: Mapping[Key, list[Process]], grants: Iterable[ActiveGrant], past: Past) -> dict[Key, Trace]:
    """Where a living attempt is not listed any more its last trace stays: its processes may just have ended."""
    traces = {key: past.traces[key] for key in map(_key, grants) if key in past.traces}
    for key, mine in living.items():
        if mine and all(process.low is not None for process in mine):
            traces[key] = Trace(frozenset(process.pid for process in mine), sum(process.low or 0 for process in mine))
    return traces


def _unlisted(processes: Sequence[Process] | None, used: int | None) -> int | None:
    if processes is None or used is None or any(process.mib is None for process in processes):
        return None
    return max(0, used - sum(process.mib or 0 for process in processes))


def _lowest(past: Past, unlisted: int | None, grants: Sequence[ActiveGrant]) -> int | None:
    if unlisted is None:
        return past.unlisted
    return unlisted if past.unlisted is None or not grants else min(past.unlisted, unlisted)
