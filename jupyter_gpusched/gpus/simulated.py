"""Cards that do not exist: they behave as real ones do, so that everything else can be real.

Jobs on them are real processes; the memory a job uses is taken to be its promise while any
of its processes may live, and nothing afterwards. Never reads the machine.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from jupyter_gpusched.core.model import BadRequest, Gpu, JobId
from jupyter_gpusched.core.quantities import Mib, parse_mib
from jupyter_gpusched.ports import ActiveGrant

FORMS = "2x24G, or a list such as 1x24564M,1x48G (count x size)"
MOST_CARDS = 256

_PART = re.compile(r"([1-9]\d{0,3})x(\S+)", re.IGNORECASE)
_NAMESPACE = uuid.UUID("9f2d7c1e-4b0a-5d3f-8e61-7a5b0c4d2e19")


def parse_simulation(text: str) -> list[Mib]:
    """The cards' sizes in MiB. Raises ``BadRequest`` naming the accepted form."""
    sizes: list[Mib] = []
    for part in text.split(","):
        sizes += _cards(part.strip(), text)
        if len(sizes) > MOST_CARDS:  # before they are counted out: a request may name them
            raise BadRequest(
                f"GPUSCHED_SIMULATE: {text[:100]!r} asks for too many cards; at most {MOST_CARDS} are simulated.",
                field="GPUSCHED_SIMULATE",
                hint=f"Write {FORMS}.",
            )
    return sizes


def _cards(part: str, text: str) -> list[Mib]:
    match = _PART.fullmatch(part)
    try:
        return [parse_mib(match[2])] * int(match[1]) if match else _refuse(text)
    except ValueError:
        return _refuse(text)


def _refuse(text: str) -> list[Mib]:
    raise BadRequest(
        f"GPUSCHED_SIMULATE: {text!r} does not describe simulated cards; write {FORMS}.",
        field="GPUSCHED_SIMULATE",
    ) from None


@dataclass(frozen=True, slots=True)
class _Card:
    uuid: str
    index: int
    name: str
    total: Mib


def _card(index: int, total: Mib) -> _Card:
    """The same place and size give the same UUID, so that a restarted host finds its grants again."""
    size = f"{total // 1024}G" if total % 1024 == 0 else f"{total}M"
    return _Card(f"GPU-{uuid.uuid5(_NAMESPACE, f'{index} {total}')}", index, f"Simulated {size}", total)


class SimulatedGpus:
    """Implements ``ports.GpuProvider``. ``text`` is what GPUSCHED_SIMULATE says."""

    simulated = True

    def __init__(self, text: str) -> None:
        self.description = text
        self._cards = [_card(index, total) for index, total in enumerate(parse_simulation(text))]

    @property
    def cause(self) -> str | None:
        return None

    @property
    def fault(self) -> str | None:
        return None

    async def sample(self, grants: Sequence[ActiveGrant], *, now: float) -> tuple[Gpu, ...]:
        return tuple(_measure(card, grants, now) for card in self._cards)

    async def close(self) -> None:
        return


def _measure(card: _Card, grants: Sequence[ActiveGrant], now: float) -> Gpu:
    by_job: dict[JobId, Mib] = {}
    for active in grants:
        if active.alive and active.grant.gpu == card.uuid:
            by_job[active.grant.job_id] = Mib(by_job.get(active.grant.job_id, 0) + active.grant.promised)
    used = Mib(min(card.total, sum(by_job.values())))
    return Gpu(
        uuid=card.uuid,
        index=card.index,
        name=card.name,
        total=card.total,
        sampled_at=now,
        used=used,
        free=Mib(card.total - used),
        simulated=True,
        used_by_job=by_job,
    )
