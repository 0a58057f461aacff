"""What is written in one transaction: one bad wish among many must not fail the others."""

import asyncio
import time

import anyio
import pytest

from jupyter_gpusched import engine as engine_module
from jupyter_gpusched.core.model import BadRequest, Job, Kind, Priority, Request, Settings, Work
from jupyter_gpusched.core.quantities import Mib
from jupyter_gpusched.engine import Engine
from jupyter_gpusched.gpus import open_provider
from jupyter_gpusched.launch.local import LocalLauncher
from jupyter_gpusched.store import SqliteStore

WORK = Work(kind=Kind.COMMAND, cwd="/", argv=("true",))


def a_job(job_id, *, name="job", key=None):
    now = time.time()
    request = Request(gpus=2, vram=Mib(8192))  # more than there is: it waits
    return Job(job_id, "ada", Kind.COMMAND, name, request, Priority.NORMAL, now, now, idempotency_key=key)


@pytest.fixture
def with_engine(tmp_path):
    """Runs a test's body beside a running engine, in a loop of its own."""

    async def beside(body):
        store = SqliteStore(tmp_path / "gpusched.db")
        engine = Engine(
            store=store,
            epoch=store.take_over(at=1.0, host="test"),
            gpus=open_provider("1x8192M"),
            launcher=LocalLauncher,
            settings=Settings(4, Mib(4096)),
            jobs_folder=tmp_path / "jobs",
            clock=time.time,
            sample_interval_s=5.0,
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(engine.run)
            await body(engine)
            tasks.cancel_scope.cancel()
        store.close()

    return lambda body: anyio.run(beside, body)


def test_one_that_cannot_be_written_fails_alone_and_at_once(with_engine, monkeypatch):
    async def body(engine):
        monkeypatch.setattr(engine_module, "RETRY_STORE_S", 60.0)
        jobs = [a_job("aaaaaaaa"), a_job("bbbbbbbb", name="\udcff"), a_job("cccccccc")]
        with anyio.fail_after(10):
            ends = await asyncio.gather(*(engine.submit([job], {job.id: WORK}) for job in jobs), return_exceptions=True)
            assert ends[0::2] == [["aaaaaaaa"], ["cccccccc"]]
            assert isinstance(ends[1], BadRequest)
            await engine.submit([a_job("dddddddd")], {"dddddddd": WORK})
        assert set(engine.state.jobs) == {job.id for job in engine.store.live()} == {"aaaaaaaa", "cccccccc", "dddddddd"}
        assert engine.store_cause is None

    with_engine(body)


def test_one_key_twice_in_a_batch_is_one_job(with_engine):
    async def body(engine):
        jobs = [a_job("aaaaaaaa", key="k"), a_job("bbbbbbbb", key="k"), a_job("cccccccc")]
        assert await engine.submit(jobs, {job.id: WORK for job in jobs}) == ["aaaaaaaa", "aaaaaaaa", "cccccccc"]
        assert set(engine.state.jobs) == {"aaaaaaaa", "cccccccc"}

    with_engine(body)


def test_batches_that_share_a_key_at_the_same_moment_share_its_job(with_engine):
    async def body(engine):
        batches = [[a_job(f"j{n}{m}aaaaa", key=f"k{(n + m) % 3}") for m in range(3)] for n in range(5)]
        found = await asyncio.gather(*(engine.submit(jobs, {job.id: WORK for job in jobs}) for jobs in batches))
        assert len({job_id for ids in found for job_id in ids}) == 3 == len(engine.state.jobs)

    with_engine(body)
