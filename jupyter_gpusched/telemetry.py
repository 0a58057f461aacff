"""What monitoring is told: the machine as it is now, and what has ended since this host began, as Prometheus reads it.

No label has a person, a job or a path in it, so that everybody may be told the same. Amounts are bytes
and seconds, as Prometheus wants them; what is not known is left out, never 0.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import wire
from ._version import __version__
from .core.journal import KINDS
from .core.model import Phase
from .core.state import State
from .ports import Recorded

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
WAITS_S = (1.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, 4 * 3600.0, 24 * 3600.0)
"""Upper ends of the buckets in which waits are counted; one more is for all that were longer."""

_MIB = 2**20
_LIVE = tuple(phase for phase in Phase if not phase.final)
_FINAL = tuple(phase for phase in Phase if phase.final)
_STATUSES = ("ok", "quarantined", "lost", "unknown")
_OF_JOBS = frozenset(KINDS.values())
"""Events that move a job; what else is written down of one that has ended is no second end."""

_CARD = ["gpu", "uuid", "name"]
_OF_CARDS = (
    ("gpusched_gpu_memory_total_bytes", "Memory of the card.", "total_mib", _MIB),
    ("gpusched_gpu_memory_used_bytes", "What the driver says is in use.", "used_mib", _MIB),
    ("gpusched_gpu_memory_free_bytes", "What the driver says is free.", "free_mib", _MIB),
    ("gpusched_gpu_memory_promised_bytes", "Promised to jobs.", "promised_mib", _MIB),
    ("gpusched_gpu_memory_foreign_bytes", "In use by what belongs to no job.", "foreign_mib", _MIB),
    ("gpusched_gpu_memory_available_bytes", "What the next job could be promised.", "available_mib", _MIB),
    ("gpusched_gpu_utilization_ratio", "The part of the time in which something ran on the card.", "utilization_pct",
     0.01),
    ("gpusched_gpu_temperature_celsius", "Of the card.", "temperature_c", 1),
    ("gpusched_gpu_power_watts", "What the card takes.", "power_w", 1),
    ("gpusched_gpu_sampled_timestamp_seconds", "When the card was last looked at.", "sampled_at", 1),
)  # fmt: skip


@dataclass
class Counts:
    """What has happened since this host began: ends by phase, and waits of jobs for their first place."""

    ended: Counter[Phase] = field(default_factory=Counter)
    waits: list[int] = field(default_factory=lambda: [0] * (len(WAITS_S) + 1))
    waited_s: float = 0.0

    def observe(self, recorded: Sequence[Recorded], state: State, *, sampled: bool) -> None:  # noqa: ARG002
        for one in recorded:
            job = one.job
            if job is None or one.kind not in _OF_JOBS:
                continue
            if one.kind == "placed" and job.attempt == 1:
                wait_s = max(0.0, one.at - job.ages_from)
                self.waits[bisect_left(WAITS_S, wait_s)] += 1
                self.waited_s += wait_s
            if job.phase.final:
                self.ended[job.phase] += 1


@dataclass(frozen=True, eq=False)
class Machine:
    """What is told of at one moment; ``alerts`` are those that whoever asks may see."""

    state: State
    now: float
    cards: Sequence[wire.GpuView]
    alerts: Sequence[wire.Alert]
    counts: Counts
    simulated: bool
    writable: bool

    def collect(self) -> Iterator[Metric]:
        yield from self._of_cards()
        yield from self._of_jobs()
        yield from self._of_host()

    def _of_cards(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        for name, words, attribute, scale in _OF_CARDS:
            known = [(card, getattr(card, attribute)) for card in self.cards]
            shown = GaugeMetricFamily(name, words, labels=_CARD)
            for card, value in known:
                if value is not None:
                    shown.add_metric(_labels(card), value * scale)
            yield shown
        health = GaugeMetricFamily("gpusched_gpu_health", "1 for the status that it has.", labels=[*_CARD, "status"])
        for card in self.cards:
            for status in _STATUSES:
                health.add_metric([*_labels(card), status], card.health.status == status)
        yield health

    def _of_jobs(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        jobs = list(self.state.jobs.values())
        phases = Counter(job.phase for job in jobs)
        live = GaugeMetricFamily("gpusched_jobs", "Jobs that have not ended, by phase.", labels=["phase"])
        for phase in _LIVE:
            live.add_metric([phase.value], phases[phase])
        yield live
        queued = [job for job in jobs if job.phase is Phase.QUEUED]
        could_start = [job for job in queued if not job.set_aside]
        set_aside = "Of the queued ones, those that are held or come after other jobs."
        yield GaugeMetricFamily("gpusched_jobs_set_aside", set_aside, len(queued) - len(could_start))
        longest = GaugeMetricFamily("gpusched_longest_wait_seconds", "Of the queued jobs that could start, if any.")
        if could_start:
            longest.add_metric([], max(0.0, self.now - min(job.ages_from for job in could_start)))
        yield longest
        ended = CounterMetricFamily(
            "gpusched_jobs_ended", "Jobs that have ended since this host began.", labels=["phase"]
        )
        for phase in _FINAL:
            ended.add_metric([phase.value], self.counts.ended[phase])
        yield ended
        yield HistogramMetricFamily(
            "gpusched_wait_seconds",
            "From submission to the first place, of jobs placed since this host began.",
            buckets=_cumulative(self.counts.waits),
            sum_value=self.counts.waited_s,
        )

    def _of_host(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily

        told = {"version": __version__, "simulated": "yes" if self.simulated else "no"}
        yield InfoMetricFamily("gpusched", "This host.", told)
        drained = self.state.operations.drain is not None
        yield GaugeMetricFamily("gpusched_drained", "Whether nothing new starts, by an administrator's word.", drained)
        yield GaugeMetricFamily("gpusched_journal_writable", "Whether the queue can be written down.", self.writable)
        alerts = GaugeMetricFamily("gpusched_alerts", "What needs a person now.", labels=["kind", "severity"])
        for (kind, severity), count in sorted(Counter((one.kind, one.severity) for one in self.alerts).items()):
            alerts.add_metric([kind, severity], count)
        yield alerts


def exposition(machine: Machine) -> bytes:
    """In the text form of Prometheus. Its library is loaded only now: not for the event loop."""
    from prometheus_client.exposition import generate_latest
    from prometheus_client.registry import CollectorRegistry

    registry = CollectorRegistry(auto_describe=False)
    registry.register(machine)
    return generate_latest(registry)


def _labels(card: wire.GpuView) -> list[str]:
    return [str(card.index), card.uuid, card.name]


def _cumulative(counts: Iterable[int]) -> list[tuple[str, float]]:
    told, total = list[tuple[str, float]](), 0
    for end, count in zip((*(f"{end:g}" for end in WAITS_S), "+Inf"), counts, strict=True):
        total += count
        told.append((end, total))
    return told
