"""What is said on a supervisor's pipe may come from the job, which may say it as often as it likes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from jupyter_gpusched.core.messages import Exited
from jupyter_gpusched.launch import attempt as files
from jupyter_gpusched.launch import local
from jupyter_gpusched.launch.spawn import last_words
from jupyter_gpusched.runner.tree import start_time


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        (b"OSError: [Errno 28] No space left on device", "free some space on the disk"),
        (
            b"error while loading shared libraries: libpython3.so: cannot open shared object file: Error 24",
            "raise nofile",
        ),
        (b"prlimit: failed to set the NOFILE resource limit", "ask the administrator"),
        (b"", "it ended without a word; submit it again"),
    ],
)
def test_the_advice_goes_with_what_a_supervisor_that_failed_has_said(said, advice):
    assert advice in last_words(said)


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


async def said(bench, watch, times):
    """So many words to look for a start, each heard by itself."""
    told = os.open(f"/proc/self/fd/{watch.wake}", os.O_WRONLY)
    try:
        for _ in range(times):
            before = len(watch.said)
            os.write(told, b"\0")
            await bench.until(lambda before=before: len(watch.said) > before)
    finally:
        os.close(told)


async def test_a_start_that_is_told_again_and_again_takes_no_descriptor_each_time(bench):
    job, _ = bench.start("sleep", "600")
    await bench.started()
    before = descriptors()
    await said(bench, bench.launcher._watches[job.id, 1], 30)
    assert descriptors() == before
    assert len(bench.events) == 1, "and it is reported once"


async def test_nor_does_a_record_that_names_another_process_each_time(bench):
    job, folder = bench.start("sleep", "600")
    await bench.started()
    watch, before = bench.launcher._watches[job.id, 1], descriptors()
    record = folder / "attempt-1" / "started"
    for pid in (os.getpid(), os.getppid()):
        main = {"pid": pid, "start_time": start_time(pid)}
        record.write_text(json.dumps(json.loads(record.read_text()) | {"main": main}))
        await said(bench, watch, 1)
    assert descriptors() == before


async def test_what_goes_on_after_an_end_that_another_user_made_up_is_killed(bench, monkeypatch):
    monkeypatch.setattr(local, "ENFORCED_S", 0.1)
    job, folder = bench.start("sleep", "600")
    await bench.started()
    watch = bench.launcher._watches[job.id, 1]
    watch.uid = os.getuid()
    main = files.read_started(folder, 1)["main"]["pid"]
    told = os.open(f"/proc/self/fd/{watch.wake}", os.O_WRONLY)
    os.write(told, b'{"code": 0}\n')
    os.close(told)
    assert isinstance(await bench.last(), Exited)
    await bench.until(lambda: start_time(main) is None)
