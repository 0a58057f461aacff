"""What is left of the machine: the arithmetic of DESIGN 7, per card, for CPUs and for host memory.

Owns A = F - H - sum(max(0, P - M)), the figures that views show of a card, and the check
whether a request can ever be held. A value that is missing makes its card unusable, never
0. It decides nothing about who gets what; that is ``policy``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .frozen import quick, replace
from .held import Held
from .model import BadRequest, Gpu, GpuUuid, Grant, GrantState, Job, JobId, NeverFits, Request, Settings
from .quantities import Mib
from .release import is_earlier, use_of

if TYPE_CHECKING:  # what a state knows of its cards it asks this module
    from .state import State

LEAST_HEADROOM = 256


@quick
@dataclass(frozen=True, slots=True)
class Card:
    """One device and what is promised on it.

    usable     total - reserved - headroom: the largest amount it could ever hold.
    grants     ours on it, releasing ones too.
    promised   MiB of those grants.
    foreign    MiB in use that belongs to no grant of ours; None = unknown.
    available  A: what one more job may be promised; None = unknown. It can be negative.
    obstacle   why nothing may start on it now, whatever its figures say.
    exclusive  whether what is on it lets nobody join.
    """

    gpu: Gpu
    usable: Mib
    grants: tuple[Grant, ...]
    promised: Mib
    foreign: Mib | None
    available: Mib | None
    obstacle: str | None
    exclusive: bool

    @property
    def releasing(self) -> Mib:
        """MiB of ended attempts that the card has not shown to be freed."""
        return Mib(sum(grant.promised for grant in self.grants if grant.state is GrantState.RELEASING))


@quick
@dataclass(frozen=True, slots=True)
class Books:
    """The machine at one moment: its devices in order of index, and unpromised CPUs and host memory."""

    cards: Mapping[GpuUuid, Card]
    cpus: int
    memory: Mib


def read_books(state: State, now: float) -> Books:
    """Add up who holds what. The one place where views and policy get their figures from."""
    held, settings = state.held, state.settings
    cards = {gpu.uuid: _remembered(gpu, held, settings, now) for gpu in devices(state.gpus.values())}
    return Books(cards, settings.cpus - held.cpus, Mib(settings.memory - held.memory))


def devices(gpus: Iterable[Gpu]) -> list[Gpu]:
    """What jobs can be given: the parent of MIG instances is no device, its instances are."""
    known = list(gpus)
    parents = {gpu.parent_uuid for gpu in known}
    return [gpu for gpu in known if gpu.uuid not in parents]


def headroom(gpu: Gpu, settings: Settings) -> Mib:
    """MiB kept free: the setting, else max(256 MiB, 1 %) on a real card and nothing on a simulated one."""
    if settings.headroom is not None:
        return settings.headroom
    return Mib(0) if gpu.simulated else Mib(max(LEAST_HEADROOM, math.ceil(gpu.total / 100)))


def usable(gpu: Gpu, settings: Settings) -> Mib:
    return Mib(max(0, gpu.total - gpu.reserved - headroom(gpu, settings)))


def asked(jobs: Iterable[Job]) -> tuple[int, Mib]:
    """CPUs and host memory of those jobs that ask for some."""
    cpus = memory = 0
    for job in jobs:
        cpus += job.request.cpus or 0
        memory += job.request.memory or 0
    return cpus, Mib(memory)


def foreign_use(gpu: Gpu, holders: Iterable[JobId]) -> Mib | None:
    """MiB in use on a card that belong to none of these jobs."""
    used = gpu.used
    if used is None:
        used = None if gpu.free is None else Mib(gpu.total - gpu.reserved - gpu.free)
    if used is None:
        return None
    if not gpu.used_by_job and not gpu.used_by_earlier:
        return used
    ours = sum(gpu.used_by_job.get(job_id, 0) + gpu.used_by_earlier.get(job_id, 0) for job_id in set(holders))
    return Mib(max(0, used - ours))


def _remembered(gpu: Gpu, held: Held, settings: Settings, now: float) -> Card:
    """The card as it was added up last, if neither it nor what is promised on it has changed."""
    grants = held.grants.get(gpu.uuid, ())
    known: tuple[Gpu, tuple[Grant, ...], Settings, Card] | None = held.sums.get(gpu.uuid)
    if known is None or known[0] is not gpu or known[1] is not grants or known[2] is not settings:
        card = _card(gpu, grants, settings, now)
        held.sums[gpu.uuid] = gpu, grants, settings, card
        return card
    card = known[3]
    obstacle = _obstacle(gpu, settings, now)
    return card if obstacle == card.obstacle else replace(card, obstacle=obstacle)


def _card(gpu: Gpu, grants: Sequence[Grant], settings: Settings, now: float) -> Card:
    promised = sum([grant.promised for grant in grants])
    unseen = promised_but_unseen(gpu, grants) if gpu.used_by_job or gpu.used_by_earlier else promised
    return Card(
        gpu=gpu,
        usable=usable(gpu, settings),
        grants=tuple(grants),
        promised=Mib(promised),
        foreign=foreign_use(gpu, (grant.job_id for grant in grants)),
        available=None if gpu.free is None else Mib(gpu.free - headroom(gpu, settings) - unseen),
        obstacle=_obstacle(gpu, settings, now),
        exclusive=_is_exclusive(gpu, grants),
    )


def _is_exclusive(gpu: Gpu, grants: Sequence[Grant]) -> bool:
    if gpu.compute_mode == "exclusive_process" and (grants or gpu.foreign):
        return True  # the driver lets one process in
    return any(grant.exclusive for grant in grants)


def promised_but_unseen(gpu: Gpu, grants: Sequence[Grant]) -> int:
    """The sum of max(0, P - M). Of a job's earlier attempts use is known together, so they count together."""
    if len({grant.job_id for grant in grants}) == len(grants):  # nearly always, and quick
        used = gpu.used_by_job
        return sum(max(0, grant.promised - (used.get(grant.job_id) or 0)) for grant in grants)
    promised: dict[tuple[JobId, bool], int] = defaultdict(int)
    for grant in grants:
        promised[grant.job_id, is_earlier(grants, grant)] += grant.promised
    return sum(max(0, mib - (use_of(gpu, job_id, earlier=earlier) or 0)) for (job_id, earlier), mib in promised.items())


def _obstacle(gpu: Gpu, settings: Settings, now: float) -> str | None:
    if gpu.health != "ok":
        return f"is {gpu.health}" + (f" ({gpu.health_cause})" if gpu.health_cause else "")
    if now - gpu.sampled_at > settings.stale_after_s:
        return f"could not be read for {round(now - gpu.sampled_at)}s"
    if gpu.compute_mode == "prohibited":
        return "is in compute mode `prohibited`, in which nothing can run (an administrator set it)"
    return "does not say how much memory is free" if gpu.free is None else None


# --- what can ever fit ------------------------------------------------------------------


def largest_request(gpus: Iterable[Gpu], settings: Settings) -> Mib | None:
    """The largest ``vram`` that some card of this machine can hold; None without a card."""
    return max((usable(gpu, settings) for gpu in devices(gpus)), default=None)


def serves(gpu: Gpu, request: Request) -> bool:
    """Whether a device is of the kind that the request asks for, whatever is free on it.

    A process can use only one MIG instance, so that a job for several GPUs takes none.
    """
    if request.gpus > 1 and gpu.parent_uuid is not None:
        return False
    return request.gpu_model is None or request.gpu_model.casefold() in gpu.name.casefold()


def check_fits(request: Request, gpus: Iterable[Gpu], settings: Settings, *, cause: str | None = None) -> None:
    """Refuse what this machine can never hold, at submission.

    cause  one sentence why there is no card, as the provider of the cards tells it.
    Raises ``NeverFits``, or ``BadRequest`` when there is no card at all.
    """
    _check_host(request, settings)
    if request.gpus == 0:
        return
    known = devices(gpus)
    if not known:
        raise _no_card(request, cause)
    fitting = [gpu for gpu in known if serves(gpu, request)]
    _check_count(request, known, fitting)
    sizes = sorted((usable(gpu, settings) for gpu in fitting), reverse=True)
    largest = sizes[request.gpus - 1]
    if request.vram is not None and request.vram > largest:
        raise _too_large(request, largest)


def _check_host(request: Request, settings: Settings) -> None:
    if request.cpus is not None and request.cpus > settings.cpus:
        raise NeverFits(
            f"cpus: this machine has {settings.cpus} CPUs for jobs, the job asks for {request.cpus}.",
            field="cpus",
            hint=f"Ask for at most {settings.cpus}.",
        )
    if request.memory is not None and request.memory > settings.memory:
        raise NeverFits(
            f"memory: this machine has {exact(settings.memory)} for jobs, the job asks for {exact(request.memory)}.",
            field="memory",
            hint=f"Ask for at most {exact(settings.memory)}, for example --mem {settings.memory}M.",
        )


def _no_card(request: Request, cause: str | None) -> BadRequest:
    return BadRequest(
        cause or "This machine has no GPU that the scheduler can see.",
        field="gpus" if request.vram is None else "vram",
        hint="Submit with --gpus 0 (and without --vram) to run without a GPU, "
        "or set GPUSCHED_SIMULATE=1x8G to try things out on a simulated card.",
    )


def _check_count(request: Request, known: Sequence[Gpu], fitting: Sequence[Gpu]) -> None:
    if request.gpu_model is not None and not any(serves(gpu, _of_model(request)) for gpu in known):
        raise NeverFits(
            f"gpu_model: no GPU of this machine has {request.gpu_model!r} in its name.",
            field="gpu_model",
            hint="There are: " + ", ".join(sorted({gpu.name for gpu in known})) + ".",
        )
    if request.gpus > len(fitting):
        model = "" if request.gpu_model is None else f" with {request.gpu_model!r} in the name"
        split = " A job can use only one MIG instance." if any(gpu.parent_uuid for gpu in known) else ""
        raise NeverFits(
            f"gpus: the job asks for {request.gpus} GPUs, this machine can give {len(fitting)}{model}.{split}",
            field="gpus",
            hint=f"Ask for at most {max(1, len(fitting))}.",
        )


def _of_model(request: Request) -> Request:
    return Request(gpus=1, gpu_model=request.gpu_model)


def _too_large(request: Request, largest: Mib) -> NeverFits:
    where = "no GPU of this machine" if request.gpus == 1 else f"no {request.gpus} GPUs of this machine"
    model = "" if request.gpu_model is None else f" with {request.gpu_model!r} in the name"
    return NeverFits(
        f"vram: {where}{model} can ever give {exact(request.vram or Mib(0))}.",
        field="vram",
        hint=f"The largest possible amount is {exact(largest)}; write --vram {largest}M or less.",
    )


def exact(mib: Mib) -> str:
    """An amount to the MiB, with the short form beside it rounded down so that it fits: ``24308 MiB (23.7G)``."""
    return f"{mib} MiB ({math.floor(mib / 102.4) / 10:.1f}G)"
