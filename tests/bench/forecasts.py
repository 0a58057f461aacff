"""How honest `estimated_start` is: `python tests/bench/forecasts.py [--traces FOLDER] [--only TEXT]`.

Traces run through the scheduler; every so many passes the starts of all that wait are foretold,
and at the end it is counted how many began within their range. Nobody tells the forecast what
has not been submitted yet, nor how long anything will run.
"""

import argparse
import gzip
import statistics
import time
from pathlib import Path

from jupyter_gpusched.core.estimate import foretold
from jupyter_gpusched.core.model import Settings
from jupyter_gpusched.core.quantities import Mib
from jupyter_gpusched.core.simulate import _cards, _World
from jupyter_gpusched.core.trace import read_trace

TRACES = Path(__file__).parent / "traces"
MACHINES = {"lab2g": (2, 24576), "lab": (8, 81920)}
RECENT = 256
SETTINGS = Settings(cpus=1, memory=Mib(1), headroom=Mib(0), stale_after_s=float("inf"), release_timeout_s=0.0)


class Watched(_World):
    """A run in which the future is foretold at every so many passes with a queue."""

    def __init__(self, *args, every, **kwargs):
        super().__init__(*args, **kwargs)
        self.every, self.passes, self.told, self.costs = every, 0, [], []

    def _pass(self):
        super()._pass()
        if self.state.queue:
            self.passes += 1
            if self.passes % self.every == 0:
                self.look()

    def look(self):
        recent = [one.job for one in self.jobs.values() if one.job.submitted_at <= self.now][-RECENT:]
        began = time.process_time()
        starts = foretold(self.state, self.now, recent)
        self.costs.append(time.process_time() - began)
        fresh = (rank.job_id for rank in self.state.queue.ages if not self.state.jobs[rank.job_id].attempts)
        self.told += [(job_id, self.now, starts.get(job_id)) for job_id in fresh]


def watched(path, every):
    """Of each job that waited at a look: how long it then waited still, and was expected to, at best and at worst."""
    gpus, vram = next(machine for family, machine in MACHINES.items() if path.name.startswith(family + "-"))
    with gzip.open(path, "rt") as lines:
        world = Watched(read_trace(lines), _cards(gpus, vram), SETTINGS, contention=False, every=every)
    first = {}
    for one in sorted(world.run(), key=lambda segment: segment.start_s):
        first.setdefault(one.job_id, one.start_s)
    rows = [(first[job_id] - at, *(moment - at for moment in start)) for job_id, at, start in world.told if start]
    return rows, len(world.told), world.costs


def line(name, rows, asked, costs):
    inside = sum(low - 1.0 <= waited <= high + 1.0 for waited, _, low, high in rows) / len(rows)
    sooner = sum(waited < low - 1.0 for waited, _, low, _ in rows) / len(rows)
    off = statistics.median(abs(waited - middle) / max(60.0, waited) for waited, middle, *_ in rows)
    width = statistics.median((high - low) / max(60.0, middle) for _, middle, low, high in rows)
    share = len(rows) / asked
    figures = f"{share:>8.0%}{inside:>9.0%}{sooner:>9.0%}{1 - inside - sooner:>9.0%}{off:>8.0%}{width:>8.0%}"
    return f"{name:<16}{asked:>8}{figures}{statistics.median(costs):>9.2f}{max(costs):>8.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument("--every", type=int, default=100, help="passes with a queue between two looks")
    parser.add_argument("--only", default="", help="traces whose name has this in it")
    chosen = parser.parse_args()
    print("inside, sooner, later: of the foretold starts; off: median error against the wait; cpu: seconds of a look")
    columns = f"{'told':>8}{'inside':>9}{'sooner':>9}{'later':>9}{'off':>8}{'width':>8}{'cpu':>9}{'most':>8}"
    print(f"{'trace':<16}{'waiting':>8}{columns}")
    all_rows, all_asked, all_costs = [], 0, []
    for path in sorted(chosen.traces.glob("*.csv.gz")):
        if chosen.only in path.name:
            rows, asked, costs = watched(path, chosen.every)
            if rows:
                print(line(path.name.removesuffix(".csv.gz"), rows, asked, costs), flush=True)
                all_rows, all_asked, all_costs = all_rows + rows, all_asked + asked, all_costs + costs
    print(line("all", all_rows, all_asked, all_costs))


if __name__ == "__main__":
    main()
