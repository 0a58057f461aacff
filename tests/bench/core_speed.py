"""How fast the core decides, against the length of the queue: `python tests/bench/core_speed.py`.

One event is what a full machine sees all the time: a job ends, another is submitted, and a
pass starts what fits. A decision is that pass alone. Messages are what goes through ``apply`` for it:
the end, the submission, and for each job that starts its placement and its start. The past is that of
a server at work: 2,000 runs of 200 names. All lengths are measured in one process, in turn, so that their ratio means
something on a busy machine; times are of the process, not of the wall. They still grow under load,
since others use the same caches and hyper-threads: two to three times on a machine of two cores at a
load of fifteen. What does not grow is the number of instructions:
`valgrind --tool=cachegrind --cache-sim=no python tests/bench/core_speed.py --lengths 5000 --events N`,
for two values of N.
"""

import argparse
import gc
import random
import time
import tracemalloc

from jupyter_gpusched.core.history import History, Kin
from jupyter_gpusched.core.messages import Exited, Launch, Started, Submitted
from jupyter_gpusched.core.model import ExitRecord, Gpu, Job, Kind, Priority, Request, Settings
from jupyter_gpusched.core.past import Past
from jupyter_gpusched.core.schedule import schedule
from jupyter_gpusched.core.state import State, apply

GPUS, VRAM = 8, 81920
SIZES = [2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80]
SETTINGS = Settings(cpus=64, memory=2**20, headroom=0, stale_after_s=float("inf"), release_timeout_s=0.0)


class World:
    """A machine that is full, with a queue of a given length."""

    def __init__(self, queued, *, users=20, names=10, seed=1):
        self.dice, self.users, self.names, self.count, self.now = random.Random(seed), users, names, 0, 0.0
        cards = [Gpu(f"GPU-{at}", at, "bench", VRAM, 0.0, used=0, free=VRAM, simulated=True) for at in range(GPUS)]
        self.state = State.begin(SETTINGS, gpus=cards, past=self.past())
        self.running = []
        self.messages = 0
        started = time.process_time()
        while self.count < queued:
            self.happen(Submitted(tuple(self.job() for _ in range(min(100, queued - self.count)))))
        self.submit_us = (time.process_time() - started) / queued * 1e6
        self.decide()

    def past(self):
        """What the last 2,000 ended jobs have taught, as of a server that has been at work for a while."""
        history = History()
        for _ in range(2000):
            gpus, limit = self.dice.choice([1, 1, 1, 2, 4, 8]), self.dice.choice([None, 600.0, 3600.0])
            kin = Kin(f"user{self.dice.randrange(self.users)}", f"train-{self.dice.randrange(self.names)}", gpus, limit)
            history = history.with_run(kin, self.dice.lognormvariate(6.0, 1.0), compute=None)
        return Past(history)

    def job(self):
        self.count += 1
        self.now += 1.0
        user = self.dice.randrange(self.users)
        gpus = self.dice.choices([1, 2, 4, 8], [0.90, 0.06, 0.03, 0.01])[0]
        request = Request(gpus=gpus, vram=self.dice.choice(SIZES) * 1024)
        name = f"train-{self.dice.randrange(self.names)}"
        limit = self.dice.choice([None, 600.0, 3600.0])
        return Job(f"{self.count:08d}", f"user{user}", Kind.COMMAND, name, request, Priority.NORMAL, self.now, self.now,
                   time_limit_s=limit)  # fmt: skip

    def happen(self, event):
        self.messages += 1
        self.state = apply(self.state, event, self.now).state

    def decide(self):
        step = schedule(self.state, self.now)
        self.state = step.state
        self.messages += sum(change.kind != "released" for change in step.changes)
        for instruction in step.instructions:
            if isinstance(instruction, Launch):
                self.happen(Started(instruction.job_id, instruction.attempt, self.now))
                self.running.append(instruction.job_id)
        return len(step.instructions)

    def event(self):
        """One job ends, one comes, and a pass."""
        if self.running:
            job_id = self.running.pop(self.dice.randrange(len(self.running)))
            attempt = self.state.jobs[job_id].attempt
            self.happen(Exited(job_id, attempt, ExitRecord(0, None, None, self.now, "exit", "")))
        self.happen(Submitted((self.job(),)))
        began = time.process_time()
        self.decide()
        return time.process_time() - began


def measure(lengths, events):
    worlds = {length: World(length) for length in lengths}
    spent, passes = {length: [] for length in lengths}, {length: [] for length in lengths}
    for world in worlds.values():
        for _ in range(200):
            world.event()
        world.messages = 0
    gc.collect()
    gc.freeze()
    for _ in range(events):
        for length, world in worlds.items():
            began = time.process_time()
            passes[length].append(world.event())
            spent[length].append(time.process_time() - began)
    return worlds, spent, passes


def bytes_per_job(length=20_000):
    """What the state holds for each queued job."""
    tracemalloc.start()
    try:
        world = World(1000)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(length // 100):
            world.happen(Submitted(tuple(world.job() for _ in range(100))))
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        return (after - before) / length
    finally:
        tracemalloc.stop()


def main():
    asked = argparse.ArgumentParser()
    asked.add_argument("--events", type=int, default=1500)
    asked.add_argument("--lengths", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    options = asked.parse_args()
    worlds, spent, passes = measure(options.lengths, options.events)
    first = None
    print(
        f"{'queued':>8} {'event, us':>10} {'events/s':>9} {'messages/s':>11} "
        f"{'p99 of a decision, ms':>22} {'ratio':>6} "
        f"{'submit, us':>10} {'lines':>6}"
    )
    for length, times in spent.items():
        mean = sum(times) / len(times)
        first = mean if first is None else first
        p99 = sorted(passes[length])[int(0.99 * len(times))]
        lines = sum(len(own.lines) for owners in worlds[length].state.queue.lines.values() for own in owners.values())
        print(
            f"{length:>8} {mean * 1e6:>10.0f} {1 / mean:>9.0f} {worlds[length].messages / sum(times):>11.0f} "
            f"{p99 * 1e3:>22.2f} {mean / first:>6.2f} "
            f"{worlds[length].submit_us:>10.0f} {lines:>6}"
        )
    print(f"bytes per queued job: {bytes_per_job():.0f}")


if __name__ == "__main__":
    main()
