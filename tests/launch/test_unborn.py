"""The child that waits with a spare supervisor: it becomes the job, or leaves nothing behind."""

import os
import select
import signal
import time
from pathlib import Path

import pytest

from jupyter_gpusched.core.messages import Exited, Started
from jupyter_gpusched.core.model import Work
from jupyter_gpusched.launch import attempt as files
from jupyter_gpusched.launch import local
from jupyter_gpusched.launch.cgroups import KEPT_READY, cgroup_of
from jupyter_gpusched.launch.means import Means, probe
from jupyter_gpusched.ports import LaunchOrder
from jupyter_gpusched.runner import cgroup
from jupyter_gpusched.runner.supervision import SOON_S
from jupyter_gpusched.runner.tree import children, start_time

from .conftest import a_job

HERE = probe(Path("/tmp"))
needs_cgroups = pytest.mark.skipif(HERE.cgroups is None, reason=f"{HERE.no_cgroups}; root in a container has them")


async def spares_of(bench, count=1):
    """The pids of the spares, once all have said who they are, and so have their children."""

    def ready():
        doors = [door for door, _ in bench.launcher.nursery._spares]
        return len(select.select(doors, [], [], 0)[0]) == count

    await bench.until(ready)
    return children(bench.launcher.nursery._process.pid)


def gone(pid):
    return start_time(pid) is None


async def test_the_child_that_becomes_the_job_is_there_before_the_attempt(bench):
    bench.keep_ready()
    (spare,) = await spares_of(bench)
    (child,) = children(spare)
    _, folder = bench.start("sh", "-c", "echo $$; exit 3")
    assert (await bench.last()).exit.code == 3
    assert bench.log(folder) == f"{child}\n"
    assert files.read_started(folder, 1)["main"]["pid"] == child
    assert files.read_claim(folder, 1)["pid"] == spare


async def test_it_ends_with_its_supervisor_and_with_the_host(bench):
    bench.keep_ready(2)
    spares = await spares_of(bench, 2)
    waiting = [child for spare in spares for child in children(spare)]
    assert len(waiting) == 2
    os.kill(spares[0], signal.SIGKILL)
    await bench.until(lambda: sum(map(gone, waiting)) == 1)
    await bench.launcher.close()
    await bench.until(lambda: all(map(gone, waiting)))


async def test_an_attempt_whose_child_was_killed_is_started_all_the_same(bench):
    bench.keep_ready()
    (spare,) = await spares_of(bench)
    (child,) = children(spare)
    os.kill(child, signal.SIGKILL)
    await bench.until(lambda: gone(child))
    bench.start("sh", "-c", "exit 4")
    assert (await bench.last()).exit.code == 4
    assert len(bench.events_of(Started)) <= 1


async def test_a_claim_that_somebody_else_has_ends_the_child(bench):
    bench.keep_ready()
    (spare,) = await spares_of(bench)
    (child,) = children(spare)
    job = a_job()
    assert files.claim_void(bench.folder / job.id, 1, at=1.0, why="a test")
    bench.start("touch", str(bench.folder / "ran"), job=job)
    await bench.last()
    await bench.until(lambda: gone(child) and gone(spare))
    assert not (bench.folder / "ran").exists()


@needs_cgroups
async def test_it_waits_in_the_cgroup_that_becomes_the_attempts(bench):
    bench.launcher = bench.new_launcher(spares=1, means=Means(cgroups=HERE.cgroups))
    bench.launcher.nursery.fill()
    (spare,) = await spares_of(bench)
    (child,) = children(spare)
    (_, marker), *_ = bench.launcher.nursery._spares
    home = f"{cgroup.own_cgroup(*HERE.cgroups)}/{KEPT_READY.format(marker=marker)}"
    assert list(cgroup.members(home)) == [child]
    job, folder = bench.start("sleep", "600")
    await bench.started()
    claim = files.read_claim(folder, 1)
    assert (claim["cgroup"], claim["marker"]) == (home, marker)
    assert cgroup_of(claim, job.id, 1, marker) == home
    assert cgroup_of(claim, job.id, 1, "0" * 32) is None  # of another attempt
    assert bench.launcher.pids(job.id, 1) >= {child}
    bench.launcher.stop(job, 1, "cancelled", 5.0, folder)
    assert (await bench.last()).exit.signal == signal.SIGTERM
    await bench.until(lambda: not os.path.exists(home))


@needs_cgroups
async def test_what_no_attempt_came_for_leaves_no_cgroup(bench):
    bench.launcher = bench.new_launcher(spares=2, means=Means(cgroups=HERE.cgroups))
    bench.launcher.nursery.fill()
    await spares_of(bench, 2)
    own = cgroup.own_cgroup(*HERE.cgroups)
    homes = [f"{own}/{KEPT_READY.format(marker=marker)}" for _, marker in bench.launcher.nursery._spares]
    assert all(map(os.path.exists, homes))
    await bench.launcher.close()
    await bench.until(lambda: not any(map(os.path.exists, homes)))


@pytest.mark.parametrize("spares", [0, 1])
async def test_the_end_is_known_by_word_of_the_supervisor_before_any_file_says_it(bench, spares, monkeypatch):
    if spares:
        bench.keep_ready()
        await spares_of(bench)
    monkeypatch.setattr(local.files, "read_exit", lambda folder, attempt: None)
    _, folder = bench.start("sh", "-c", "echo so; exit 5")
    end = (await bench.last()).exit
    assert (end.code, end.reason) == (5, "exit")
    monkeypatch.undo()
    written = await bench.until(lambda: files.read_exit(folder, 1))  # and then it is written down
    assert written["code"] == 5


async def test_of_a_success_the_log_is_not_looked_at(bench, monkeypatch):
    looked = []
    monkeypatch.setattr(local, "log_tail", lambda *place: looked.append(place) or b"")
    bench.start("true", job=a_job("aaaaaaaa"))
    bench.start("false", job=a_job("bbbbbbbb"))
    await bench.until(lambda: len(bench.events_of(Exited)) == 2)
    assert [folder.name for folder, _ in looked] == ["bbbbbbbb"]


@pytest.mark.parametrize(
    "said", [b"", b"\0", b"\0{}", b"\0nonsense\n", b"\0[1]\n", b'{"code": 0}\n', b"\0" + b"[" * 100_000 + b"\n"]
)
def test_what_is_no_whole_record_is_not_taken_for_one(said):
    assert local._record_of(said) is None


def test_a_record_is_what_follows_the_start():
    assert local._record_of(b'\0{"code": 7}\n') == {"code": 7}


# --- while the journal is being written -----------------------------------------------------


def order_of(bench, *argv):
    job = a_job()
    work = Work(kind=job.kind, cwd=str(bench.folder), env=dict(os.environ), argv=argv)
    return LaunchOrder(job, 1, work, bench.folder / job.id)


async def test_what_is_prepared_does_not_run_before_it_is_launched(bench):
    bench.keep_ready()
    (spare,) = await spares_of(bench)
    order = order_of(bench, "sh", "-c", "echo here; exit 6")
    bench.launcher.prepare(order)
    await bench.until((order.folder / "attempt-1/log").exists)
    assert files.read_claim(order.folder, 1) is None
    assert bench.events == []
    bench.launcher.launch(order)
    assert (await bench.last()).exit.code == 6
    assert files.read_claim(order.folder, 1)["pid"] == spare


async def test_what_was_prepared_for_nothing_ends_without_its_attempt(bench):
    bench.keep_ready(2)
    spares = await spares_of(bench, 2)
    order = order_of(bench, "touch", str(bench.folder / "ran"))
    bench.launcher.prepare(order)
    bench.launcher.give_up(order.job.id, 1)
    await bench.until(lambda: sum(map(gone, spares)) == 1)
    assert files.read_claim(order.folder, 1) is None
    bench.launcher.launch(order)  # the journal took it at the second try
    assert (await bench.last()).exit.code == 0
    assert (bench.folder / "ran").exists()


async def test_who_is_prepared_ends_with_the_host_and_has_not_run(bench):
    bench.keep_ready()
    (spare,) = await spares_of(bench)
    order = order_of(bench, "touch", str(bench.folder / "ran"))
    bench.launcher.prepare(order)
    await bench.launcher.close()
    await bench.until(lambda: gone(spare))
    assert files.read_claim(order.folder, 1) is None
    assert not (bench.folder / "ran").exists()


async def test_one_that_is_killed_after_it_was_prepared_is_replaced(bench):
    bench.keep_ready()
    (spare,) = await spares_of(bench)
    order = order_of(bench, "sh", "-c", "exit 6")
    bench.launcher.prepare(order)
    os.kill(spare, signal.SIGKILL)
    await bench.until(lambda: gone(spare))
    bench.launcher.launch(order)
    assert (await bench.last()).exit.code == 6


def claims(order):
    """All that is or was to be the attempt's claim."""
    return sorted(path.name for path in (order.folder / "attempt-1").glob("*claim*"))


async def test_the_claim_lies_ready_under_another_name_and_is_nobodys(bench):
    bench.keep_ready()
    (spare,) = await spares_of(bench)
    order = order_of(bench, "true")
    bench.launcher.prepare(order)
    await bench.until((order.folder / "checkpoint").exists)
    assert len(claims(order)) == 1
    assert files.read_claim(order.folder, 1) is None
    bench.launcher.give_up(order.job.id, 1)
    await bench.until(lambda: gone(spare))
    assert claims(order) == []


async def test_at_the_word_to_go_it_runs_and_the_launch_only_watches_it(bench):
    bench.keep_ready()
    (spare,) = await spares_of(bench)
    order = order_of(bench, "sh", "-c", "exit 6")
    bench.launcher.prepare(order)
    bench.launcher.go(order.job.id, 1)
    await bench.until(lambda: files.read_exit(order.folder, 1))
    assert bench.events == []
    bench.launcher.launch(order)
    assert (await bench.last()).exit.code == 6
    assert files.read_claim(order.folder, 1)["pid"] == spare
    assert claims(order) == ["claim"]


async def test_one_that_was_killed_before_the_word_to_go_is_replaced_by_the_launch(bench):
    bench.keep_ready()
    (spare,) = await spares_of(bench)
    order = order_of(bench, "sh", "-c", "exit 6")
    bench.launcher.prepare(order)
    os.kill(spare, signal.SIGKILL)
    await bench.until(lambda: gone(spare))
    bench.launcher.go(order.job.id, 1)
    bench.launcher.launch(order)
    assert (await bench.last()).exit.code == 6
    assert files.read_claim(order.folder, 1)["pid"] != spare


@pytest.mark.parametrize("killed", [False, True])
async def test_one_that_may_go_is_let_go_of_where_the_host_stops_before_it_watches(bench, killed):
    bench.keep_ready()
    (spare,) = await spares_of(bench)
    order = order_of(bench, "true")
    bench.launcher.prepare(order)
    if killed:
        os.kill(spare, signal.SIGKILL)
        await bench.until(lambda: gone(spare))
    bench.launcher.go(order.job.id, 1)
    before = len(os.listdir("/proc/self/fd"))
    await bench.launcher.close()
    assert len(os.listdir("/proc/self/fd")) < before
    if not killed:
        assert (await bench.until(lambda: files.read_exit(order.folder, 1)))["code"] == 0


async def test_one_that_waited_long_for_the_word_says_that_it_began_then(bench):
    bench.keep_ready()
    await spares_of(bench)
    order = order_of(bench, "true")
    bench.launcher.prepare(order)
    await bench.until((order.folder / "checkpoint").exists)
    ready = time.time()
    await bench.until(lambda: time.time() > ready + 2 * SOON_S)
    told = time.time()
    bench.launcher.launch(order)
    end = (await bench.last()).exit
    assert told <= end.started_at == files.read_claim(order.folder, 1)["at"]
    assert claims(order) == ["claim"]
