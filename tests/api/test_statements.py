"""What a deep queue costs in SQL and in calls of the core: counted, so that no other work on the machine changes it."""

import sys
from functools import partial

import anyio
import pytest
from rest import Rest

from jupyter_gpusched import engine as engine_module
from jupyter_gpusched.core.messages import Sampled
from jupyter_gpusched.core.schedule import next_wakeup
from jupyter_gpusched.places import state_folder
from jupyter_gpusched.service import Host
from jupyter_gpusched.settings import GpuSched
from jupyter_gpusched.store import opening, sqlite

from .test_group_commit import WORK, a_job, with_engine  # noqa: F401  a fixture

SHALLOW, DEEP, DEEPEST = 10, 2_000, 10_000
TRIES = 3
"""What else a host does now and then can only add to a count: the least of a few is the request's own."""


class Counted:
    """Statements of all connections to the journal, and steps of SQLite's machine, which are some for each row."""

    def __init__(self, monkeypatch):
        self.statements = []
        self.steps = 0
        self._counts = False
        self._connections = []
        for module in (opening, sqlite):
            monkeypatch.setattr(module, "connect", partial(self._connect, module.connect))

    def _connect(self, connect, *place, **more):
        connection = connect(*place, **more)
        self._connections.append(connection)
        self._count(connection)
        return connection

    def _count(self, connection):
        connection.set_trace_callback(self.statements.append if self._counts else None)
        connection.set_progress_handler(self._step if self._counts else None, 1)

    def _step(self):
        self.steps += 1

    def _set(self, counts):
        self._counts = counts
        for connection in self._connections:
            self._count(connection)

    async def of(self, ask):
        counts = []
        self._set(True)
        for _ in range(TRIES):
            self.statements.clear()
            self.steps = 0
            await ask()
            counts.append((len(self.statements), self.steps))
        self._set(False)
        return min(counts)


@pytest.fixture
def counted(monkeypatch):
    return Counted(monkeypatch)


@pytest.fixture
def with_host(monkeypatch):
    """Runs a test's body beside a host in this process, with one card, which looks at it only at its start."""

    def beside(body):
        monkeypatch.setenv("GPUSCHED_SIMULATE", "1x24G")
        host = Host(state_folder(), GpuSched(sample_interval_s=3600.0), kind="server")

        async def until(desk):
            rest = Rest(desk.record.socket)

            async def ask(method, path, body=None, *, status=200):
                reply = await anyio.to_thread.run_sync(rest, method, path, body)
                assert reply.status == status, reply.body
                return reply.json

            try:
                await body(ask, desk.engine)
            finally:
                rest.close()

        anyio.run(host.serve, until)

    return beside


def waiting(tmp_path):
    """What no machine with one card starts while another job has it."""
    return {"argv": ["true"], "vram": "20G", "cwd": str(tmp_path)}


def test_a_submission_and_the_first_page_cost_the_journal_the_same_at_any_depth(with_host, counted, tmp_path):
    found = {}

    async def body(ask, engine):
        spec = waiting(tmp_path)
        holder = await ask("POST", "jobs", {**spec, "argv": ["sleep", "1000"]}, status=201)
        for depth in (SHALLOW, DEEP):
            missing = depth - sum(job.phase.value == "queued" for job in engine.state.jobs.values())
            await ask("POST", "jobs", {"jobs": [spec] * missing}, status=201)
            submission = await counted.of(partial(ask, "POST", "jobs", spec, status=201))
            page = await counted.of(partial(ask, "GET", f"jobs?limit={SHALLOW}"))
            found[depth] = submission, page
        await ask("POST", f"jobs/{holder['id']}/cancel", {"grace": "0s"})

    with_host(body)
    assert found[SHALLOW] == found[DEEP]
    (written, _), (read, steps) = found[DEEP]
    assert written > read > 0
    assert steps > SHALLOW


def test_a_look_at_the_cards_costs_an_idle_host_nothing_for_each_of_many_waiting_jobs(with_engine, counted):  # noqa: F811
    found = {}

    async def body(engine):
        passes = []
        decided = engine_module.decided

        def deciding(state, batch, now, fault):
            calls = 0

            def counting(frame, event, argument):
                nonlocal calls
                calls += event in {"call", "c_call"}

            sys.setprofile(counting)
            try:
                taken = decided(state, batch, now, fault)
            finally:
                sys.setprofile(None)
            passes.append(calls)
            return taken

        async def look():
            seen = engine.watch(None)
            engine.post(Sampled(await engine._sample()))
            await seen.wait()

        for depth in (SHALLOW, DEEPEST):
            jobs = [a_job(f"j{number:07}") for number in range(len(engine.state.jobs), depth)]
            await engine.submit(jobs, {job.id: WORK for job in jobs})
            await look()  # what was worked out of this queue once is kept
            engine_module.decided = deciding
            try:
                passes.clear()
                statements, _ = await counted.of(look)
            finally:
                engine_module.decided = decided
            assert next_wakeup(engine.state, engine.clock()) is None  # between two looks nothing comes due
            found[depth] = statements, len(passes), min(passes)

    with_engine(body)
    (no_statements, looks, calls), (none_either, as_many, deep_calls) = found.values()
    assert no_statements == none_either == 0
    assert looks == as_many == TRIES
    assert deep_calls <= 1.1 * calls
