"""Jobs and stores for the tests of the journal."""

import pytest

from jupyter_gpusched.core.messages import Change
from jupyter_gpusched.core.model import Job, Kind, Phase, Priority, Request, Work
from jupyter_gpusched.core.quantities import Mib
from jupyter_gpusched.store import SqliteStore

WORK = Work(kind=Kind.COMMAND, cwd="/", env={"LANG": "C.UTF-8"}, argv=("nvidia-smi", "-L"))


def make_job(job_id="aaaaaaaa", *, owner="ada", at=1.0, phase=Phase.QUEUED, name="train", key=None):
    return Job(
        id=job_id,
        owner=owner,
        kind=Kind.COMMAND,
        name=name,
        request=Request(vram=Mib(4096)),
        priority=Priority.NORMAL,
        submitted_at=at,
        since=at,
        phase=phase,
        idempotency_key=key,
    )


def submit(store, epoch, *jobs):
    changes = [Change(job, "submitted", job.submitted_at, {"by": job.owner}) for job in jobs]
    return store.record(changes, {job.id: WORK for job in jobs}, epoch=epoch)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "gpusched.db"


@pytest.fixture
def store(path):
    opened = SqliteStore(path, busy_timeout_s=0.3)
    yield opened
    opened.close()


@pytest.fixture
def epoch(store):
    return store.take_over(at=1.0, host="first")


@pytest.fixture(name="submit")
def submit_fixture():
    return submit


@pytest.fixture(name="make_job")
def make_job_fixture():
    return make_job


@pytest.fixture
def work():
    return WORK
