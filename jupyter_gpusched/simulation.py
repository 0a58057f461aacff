"""``jupyter gpusched simulate``: a trace of jobs through the scheduler on a virtual clock.

Reads and writes the files around ``core.simulate``; what the formats mean is ``core.trace``'s.
No host is asked or started.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .core.metrics import bounds, score, summary
from .core.model import BadRequest
from .core.quantities import Mib
from .core.simulate import simulate
from .core.trace import read_trace, schedule_lines
from .policy_choice import choose_policy


def main(
    trace: Path, out: Path, *, gpus: int, vram: int, policy: str = "default", contention: bool = False
) -> Iterator[str]:
    """Write the schedule of a trace to ``out``; then the lines of its summary, for whoever wants them.

    vram  usable MiB of each card. Files whose names end with ``.gz`` are compressed.
    Raises ``BadRequest`` for a trace that cannot be read or run.
    """
    chosen = choose_policy(policy)
    try:
        with _opened(trace, "r") as lines:
            traced = read_trace(lines)
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise BadRequest(f"{trace} cannot be read: {error}.", field="trace") from None
    if not traced:
        raise BadRequest(f"{trace} has no jobs.", field="trace")
    segments = simulate(traced, gpus=gpus, vram=Mib(vram), policy=chosen, contention=contention)
    if chosen.fault is not None:
        raise BadRequest(f"The policy {policy} failed: {chosen.fault}.", field="policy")
    try:
        with _opened(out, "w") as file:
            file.writelines(schedule_lines(segments))
    except OSError as error:
        raise BadRequest(f"{out} cannot be written: {error}.", field="out") from None
    figures = summary(score(traced, segments), bounds(traced, gpus=gpus, vram=vram))
    return (f"{name:<28}{value:>14.3f}" for name, value in figures.items())


@contextmanager
def _opened(path: Path, mode: str) -> Iterator[IO[str]]:
    """The text of a file; a compressed one bears no time, so that the same schedule gives the same bytes."""
    if path.suffix != ".gz":
        with path.open(mode, newline="", encoding="utf-8") as plain:
            yield plain
    elif mode == "r":
        with gzip.open(path, "rt", newline="", encoding="utf-8") as packed:
            yield packed
    else:
        with (
            path.open("wb") as raw,
            gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as packing,
            io.TextIOWrapper(packing, encoding="utf-8", newline="") as text,
        ):
            yield text
