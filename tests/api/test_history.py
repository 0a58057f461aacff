"""What is remembered of cards and jobs: bounded, thinned, and of others only who and how much."""

import asyncio

import anyio
import pytest

from jupyter_gpusched.core.messages import Exited, Placed, Sampled, Started, Submitted
from jupyter_gpusched.core.model import ExitRecord, Foreign, Phase, Shortage
from jupyter_gpusched.core.state import State, apply
from jupyter_gpusched.history import MOST_POINTS, MOST_SAMPLES, Curve, History, thinned
from jupyter_gpusched.launch import attempt as files
from jupyter_gpusched.ports import Recorded
from tests.core.conftest import SETTINGS, G, card, grant, job


class Watched:
    """A state that moves, and the history that is told of it."""

    def __init__(self, folder):
        self.now = 100.0
        self.folder = folder
        self.history = History(lambda job_id: folder / job_id, lambda: self.now)
        self.state = State.begin(SETTINGS)

    def run(self, *jobs):
        for one in jobs:
            (self.folder / one.id / "attempt-1").mkdir(parents=True)
            self.take(Submitted((one,)))
            self.take(Placed(one.id, (grant(one, since=self.now),)))
            self.take(Started(one.id, 1, self.now))

    def see(self, *, foreign=(), **uses):
        self.now += 1
        strangers = tuple(Foreign(7, mib, user) for user, mib in foreign)
        used = sum(uses.values()) + sum(mib for _, mib in foreign)
        self.take(Sampled((card(used=used, at=self.now, used_by_job=uses, foreign=strangers),)))

    def take(self, event):
        step = apply(self.state, event, self.now)
        self.state = step.state
        recorded = [Recorded(1, change.job, change.kind, change.at, change.detail) for change in step.changes]
        self.history.observe(recorded, self.state, sampled=isinstance(event, Sampled))

    def run_out(self, job_id):
        words = ExitRecord(1, None, None, self.now, "cuda_oom", "no memory", shortage=Shortage(G))
        self.take(Exited(job_id, 1, words))


@pytest.fixture
def watched(tmp_path):
    return Watched(tmp_path)


def test_a_card_has_a_quarter_of_an_hour_and_no_more(watched):
    for _ in range(MOST_SAMPLES + 5):
        watched.see()
    assert len(list(watched.history.of_cards(0.0))) == MOST_SAMPLES
    (newest,) = watched.history.of_cards(watched.now - 1)
    assert newest[0] == "GPU-0"


def test_looks_in_between_add_nothing(watched):
    watched.see()
    watched.now -= 0.9
    watched.see()
    assert len(list(watched.history.of_cards(0.0))) == 1


def test_a_curve_never_has_more_than_its_points_and_never_loses_the_peak():
    curve = Curve()
    for second in range(20_000):
        curve.add(float(second), 9999 if second == 12_345 else second % 100)
    assert len(curve.points) <= MOST_POINTS
    assert max(used for _, used in curve.points) == 9999
    assert [at for at, _ in curve.points] == sorted(at for at, _ in curve.points)
    assert curve.points[0][0] == 0.0
    assert curve.points[-1][0] > 19_800


@pytest.mark.parametrize(("count", "most", "left"), [(0, 5, 0), (5, 5, 5), (6, 5, 3), (1000, 500, 500)])
def test_thinning_keeps_within_its_bound(count, most, left):
    assert len(thinned([(float(at), at) for at in range(count)], most)) == left


def test_of_others_only_user_and_amounts_are_written_down(watched):
    other = job("bbbb0001", vram=8 * G)
    watched.run(job("aaaa0001", vram=4 * G), other.__class__(**{**_fields(other), "owner": "bob"}))
    watched.see(aaaa0001=2 * G, bbbb0001=7 * G, foreign=[("eve", 3 * G)])
    watched.see(aaaa0001=4 * G, bbbb0001=7 * G, foreign=[("eve", 9 * G)])
    for _ in range(3):
        watched.see(aaaa0001=4 * G, bbbb0001=7 * G, foreign=[("eve", 9 * G)])
    watched.run_out("aaaa0001")
    rows = asyncio.run(watched.history.timeline("aaaa0001", 1))
    assert [row["free_mib"] for row in rows] == [12 * G, 4 * G, 4 * G]
    told = [tuple(holder.values()) for holder in rows[-1]["holders"]]
    assert told == [
        ("job", "ann", "aaaa0001", 4 * G, 4 * G),
        ("job", "bob", None, 7 * G, 8 * G),
        ("foreign", "eve", None, 9 * G, None),
    ]
    assert (watched.folder / "aaaa0001/attempt-1/timeline.json").stat().st_mode & 0o777 == 0o600


def _fields(one):
    return {name: getattr(one, name) for name in one.__dataclass_fields__}


def test_a_curve_is_kept_at_the_end_and_put_before_what_the_next_host_sees(watched):
    watched.run(job("aaaa0001"))
    watched.see(aaaa0001=G)
    watched.see(aaaa0001=2 * G)

    async def host_ends(history):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(history.keep)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()

    asyncio.run(host_ends(watched.history))
    assert files.memory_curve(watched.folder / "aaaa0001") == [(101.0, G), (102.0, 2 * G)]
    watched.history = History(watched.history._folder, lambda: watched.now)
    watched.see(aaaa0001=3 * G)
    points = asyncio.run(watched.history.of_job("aaaa0001"))
    assert points == [(101.0, G), (102.0, 2 * G), (103.0, 3 * G)]
    watched.run_out("aaaa0001")
    assert watched.state.jobs["aaaa0001"].phase is Phase.FAILED
    asyncio.run(watched.history._write_all())
    assert files.memory_curve(watched.folder / "aaaa0001") == points
    assert asyncio.run(watched.history.of_job("aaaa0001")) == points


@pytest.mark.parametrize("content", ["", "{}", "[[1]]", '[["x", 1]]', "[[1, -5]]", "[" * 9000, '[{"at": 1}]'])
def test_what_the_user_put_in_its_place_is_not_believed(tmp_path, content):
    (tmp_path / "attempt-1").mkdir()
    (tmp_path / "memory.json").write_text(content)
    (tmp_path / "attempt-1" / "timeline.json").symlink_to("/etc/passwd")
    assert files.memory_curve(tmp_path) == []
    assert files.timeline(tmp_path, 1) == []


def test_a_folder_that_is_gone_or_a_full_disk_ends_nothing(watched, caplog):
    watched.run(job("aaaa0001"))
    watched.see(aaaa0001=G)
    (watched.folder / "aaaa0001" / "attempt-1").rmdir()
    (watched.folder / "aaaa0001").rmdir()
    watched.run_out("aaaa0001")
    asyncio.run(watched.history._write_all())
    assert "cannot be kept" in caplog.text
