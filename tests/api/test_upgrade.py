"""The package is taken away or replaced under running jobs, as by ``pip install --upgrade``."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from waiting import wait_for

import jupyter_gpusched

PACKAGE = Path(jupyter_gpusched.__file__).parent


@pytest.fixture
def installed(tmp_path):
    """A copy of the package, in the place of an installed one."""
    place = tmp_path / "site"
    shutil.copytree(PACKAGE, place / PACKAGE.name, ignore=shutil.ignore_patterns("labextension"))
    return place


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
def test_jobs_and_their_supervisors_live_through_it_and_the_host_of_the_new_files_adopts_them(
    installed, start_host, command, tmp_path, replaced, monkeypatch
):
    monkeypatch.chdir(tmp_path)  # the working folder of a host comes before everything installed
    old = start_host("2x24G", "--GpuSched.log_limit=1M", environ={"PYTHONPATH": str(installed)})
    client = old.client()
    wait = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\n"
    flood = command(sys.executable, "-c", wait + "for i in range(500_000): print(i)\nraise SystemExit(5)")
    straggling = command("sh", "-c", "while ! test -e go; do sleep 0.05; done; setsid sleep 600 & exit 6", grace="1s")
    cell = {"kind": "cell", "source": wait + "print('the end')\nx = 7", "outputs": ["x"], "cwd": str(tmp_path)}
    stubborn = command("sh", "-c", "trap '' TERM; while :; do sleep 0.1; done")
    timed = command("sleep", "600", time_limit="8s")
    cell |= {"env": dict(os.environ), "vram": "1G"}
    ids = client.submit_many([flood, straggling, cell, stubborn, timed])
    ours, theirs = ids[0], ids[2]
    wait_for(lambda: [client.job(job_id)["phase"] for job_id in ids] == ["running"] * 5, "they do not start")
    assert str(installed) in Path(f"/proc/{claim_of(ours)}/cmdline").read_text()
    journal = Path(os.environ["GPUSCHED_HOME"], "jobs", theirs, "attempt-1", "cell.py")
    wait_for(journal.exists, "the cell does not begin")
    old.kill()
    shutil.rmtree(installed)
    if replaced:
        for file in sorted(PACKAGE.rglob("*.py")):
            target = installed / PACKAGE.name / file.relative_to(PACKAGE)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("raise RuntimeError('files of another version')\n")
    (tmp_path / "go").touch()
    exits = [Path(os.environ["GPUSCHED_HOME"], "jobs", job_id, "attempt-1", "exit.json") for job_id in ids[:3]]
    wait_for(lambda: all(file.exists() for file in exits), "an end is not written down")

    client = start_host("2x24G").client()
    assert [client.job(job_id)["exit_code"] for job_id in ids[:3]] == [5, 6, 0]
    assert client.job(ids[3])["phase"] == "running"
    client.cancel(ids[3], "0s")
    assert client.wait(ids[3])["phase"] == "cancelled"
    assert client.wait(ids[4])["phase"] == "timeout"
    assert client.log(theirs) == b"the end\n"
    text = b"".join(client.whole_log(ours))
    assert text.endswith(b"499999\n")
    assert text.count(b"bytes are missing here") == 1


def claim_of(job_id):
    from jupyter_gpusched.launch.attempt import read_claim

    return read_claim(Path(os.environ["GPUSCHED_HOME"], "jobs", job_id), 1)["pid"]
