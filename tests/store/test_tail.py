"""The newest events are read once for all streams, and mean the same as the journal itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from jupyter_gpusched import tail as module
from jupyter_gpusched.ports import Recorded
from jupyter_gpusched.tail import Tail

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


@dataclass
class Journal:
    """Events by number, and how often somebody has read them."""

    recorded: dict[int, Recorded] = field(default_factory=dict)
    reads: int = 0
    pruned: int = 0

    def write(self, *kinds, job=None):
        for kind in kinds:
            seq = max(self.recorded, default=self.pruned) + 1
            of = None if job is None else SimpleNamespace(id=job)
            self.recorded[seq] = Recorded(seq, of, kind, 0.0, {})

    def events(self, *, after, limit):
        self.reads += 1
        return [record for seq, record in sorted(self.recorded.items()) if seq > after][:limit]

    def pruned_to(self):
        return self.pruned

    @property
    def store(self):
        return self

    @property
    def last_seq(self):
        return max(self.recorded, default=self.pruned)


async def read_all(tail, after):
    """What a reader gets from there on, until there is nothing more."""
    seen = []
    while found := await tail.after(seen[-1].seq if seen else after):
        seen += found
    return [record.seq for record in seen]


async def test_a_hundred_readers_cost_one_look_at_the_journal():
    journal = Journal()
    tail = Tail(journal)
    journal.write(*["submitted"] * 5)
    for _ in range(100):
        assert await read_all(tail, 2) == [3, 4, 5]
    assert journal.reads == 1
    journal.write("placed")
    for _ in range(100):
        assert await read_all(tail, 5) == [6]
    assert journal.reads == 2


async def test_a_reader_with_nothing_new_costs_nothing():
    journal = Journal()
    journal.write("submitted")
    assert await Tail(journal).after(1) == []
    assert journal.reads == 0


@pytest.mark.parametrize("after", [0, 1, 40, 2600, 2999])
async def test_whoever_is_behind_misses_nothing_and_gets_nothing_twice(after):
    journal = Journal()
    tail = Tail(journal)
    for _ in range(30):
        journal.write(*["started"] * 100)
        await tail.after(journal.last_seq - 1)
    assert await read_all(tail, after) == list(range(after + 1, 3001))
    assert len(tail._records) <= module.KEPT


async def test_a_burst_while_nobody_reads_is_no_burden_afterwards():
    journal = Journal()
    tail = Tail(journal)
    journal.write("submitted")
    await tail.after(0)
    journal.write(*["started"] * 10_000)
    assert await read_all(tail, 10_000) == [10_001]
    assert journal.reads < 5
    assert await read_all(tail, 9_000) == list(range(9_001, 10_002))


async def test_who_is_behind_what_was_pruned_is_told_so():
    journal = Journal(pruned=50)
    journal.write("submitted", "placed")
    tail = Tail(journal)
    assert await tail.after(49) is None
    assert [record.seq for record in await tail.after(50)] == [51, 52]


async def test_of_a_deleted_job_only_its_deletion_is_told():
    journal = Journal()
    tail = Tail(journal)
    journal.write("submitted", "exited", job="a")
    journal.write("submitted", job="b")
    assert await read_all(tail, 0) == [1, 2, 3]
    del journal.recorded[1], journal.recorded[2]
    journal.write("deleted", job="a")
    assert await read_all(tail, 0) == [3, 4]
