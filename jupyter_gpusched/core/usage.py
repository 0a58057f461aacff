"""Who has used how much of the machine of late, so that shares can be fair over time.

A user's share is the part of the machine held, averaged with weights that halve every
``HALF_LIFE_S``: 1 for someone who has had all of it for ever. The large resource counts: GPU
memory, CPUs or host memory, whichever is the larger part. Frozen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .frozen import quick

HALF_LIFE_S = 4 * 3600.0
HEAD_START_S = 600.0
"""What somebody is given counts at once as if it had been held for so long, so that the next one goes to another."""

_FORGOTTEN = 1e-7
"""Less than a small job of some seconds: also who has had only that comes after who has had nothing."""


@quick
@dataclass(frozen=True, slots=True)
class Holding:
    """Parts of the machine that somebody has now, so summed up that time needs no look at each of them.

    parts    of all together.
    lacking  what of it had not become share yet at the moment ``at``, when the last of them was taken.
    """

    parts: float = 0.0
    lacking: float = 0.0
    at: float = 0.0

    @classmethod
    def of(cls, held: Sequence[tuple[float, float]]) -> Holding:
        """Of parts and the moments since when they are held."""
        at = max((since for _, since in held), default=0.0)
        parts = sum(part for part, _ in held)
        return cls(parts, sum(part * _decay(at - since) for part, since in held), at)


@quick
@dataclass(frozen=True, slots=True)
class Usage:
    """Shares of what has ended, by user, each as it was at a moment."""

    ended: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def with_end(self, owner: str, part: float, since: float, until: float) -> Usage:
        share, at = self.ended.get(owner, (0.0, until))
        until = max(until, at)
        gained = part * (1.0 - _decay(max(0.0, until - since)))
        kept = {
            who: had
            for who, had in self.ended.items()
            if who != owner and had[0] * 0.5 ** ((until - had[1]) / HALF_LIFE_S) > _FORGOTTEN
        }
        kept[owner] = (share * _decay(until - at) + gained, until)
        return Usage(kept)

    def joined(self, other: Usage) -> Usage:
        """What both tell of together, as of the latest moment that either knows."""
        latest = max((at for one in (self, other) for _, at in one.ended.values()), default=0.0)
        shares = {
            who: sum(
                share * _decay(latest - at) for share, at in (one.ended.get(who, _NOTHING) for one in (self, other))
            )
            for who in (*self.ended, *other.ended)
        }
        return Usage({who: (share, latest) for who, share in shares.items() if share > _FORGOTTEN})

    def share(self, owner: str, holding: Holding, now: float) -> float:
        """A user's share now, with what that one is holding."""
        share, at = self.ended.get(owner, _NOTHING)
        had = share * _decay(max(0.0, now - at)) if share else 0.0
        if not holding.parts:
            return had
        return had + holding.parts - holding.lacking * _decay(max(0.0, now - holding.at)) * _HEAD_START


def least_after(share: float, passed_s: float) -> float:
    """What a share is not below after so long, if nothing of it was given back; quicker than to work it out."""
    return share * (_NEARLY_ONE - passed_s * _FASTEST)


def at_once(part: float) -> float:
    """By how much a share grows with what is given now."""
    return part * (1.0 - _HEAD_START)


_NOTHING = (0.0, 0.0)


def _decay(seconds: float) -> float:
    return float(0.5 ** (seconds / HALF_LIFE_S))


_HEAD_START = _decay(HEAD_START_S)
_FASTEST = math.log(2.0) / HALF_LIFE_S
"""The part of a share that is lost in a second at most."""

_NEARLY_ONE = 1.0 - 1e-12
"""Room for the rounding of what is worked out in another way."""
