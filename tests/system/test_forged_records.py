"""What a user writes into the records of his own job decides nothing about others, nor about his limits."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from pathlib import Path

import pytest
from waiting import wait_for

from jupyter_gpusched.launch.spawn import as_user
from jupyter_gpusched.runner.tree import start_time

pytestmark = pytest.mark.system

BEGUN = "echo $$ >main; echo begun; while :; do sleep 0.1; done"


@pytest.fixture
def needs_cgroups(service, ann):
    if "cgroup" not in ann.ask("GET", "health")[1]["ending"]:
        pytest.skip("there are no cgroups of version 2 that can be written; a machine with systemd has them")


def running(user):
    job = user.submit("sh", "-c", BEGUN, cwd=str(user.home))
    wait_for(lambda: "begun" in user.log(job), "it does not begin")
    return job, int((user.home / "main").read_text())


def rewrite(service, job, **changes):
    """As its owner could: the file is hers."""
    claim = service.state / "jobs" / job / "attempt-1" / "claim"
    claim.write_text(json.dumps(json.loads(claim.read_text()) | changes))


def make_up_an_end(service, user, job):
    record = service.state / "jobs" / job / "attempt-1" / "exit.json"
    record.write_text('{"code": 0}')
    os.chown(record, user.uid, user.gid)


def cgroup_of(pid):
    mount = next(line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if " cgroup2 " in line)
    path = next(line for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if line.startswith("0::"))
    return Path(mount + path[3:])


@pytest.fixture
def bystander(service, bob):
    """A process of bob's in a cgroup that is named like one that a host of his own keeps ready."""
    process = subprocess.Popen(
        [*as_user(bob.uid, bob.gid, ()), "sleep", "600"], env={}, cwd="/", start_new_session=True
    )
    marker = uuid.uuid4().hex
    home = cgroup_of(os.getpid()) / f"gpusched-{marker}"
    home.mkdir()
    (home / "cgroup.procs").write_text(str(process.pid))
    yield process, home, marker
    process.kill()
    process.wait()
    wait_for(lambda: not home.exists() or _removed(home), f"{home} stays")


def _removed(home):
    try:
        home.rmdir()
    except OSError:
        return False
    return True


@pytest.mark.usefixtures("needs_cgroups")
@pytest.mark.parametrize("how", ["running", "spoilt", "ended"])
def test_a_claim_that_names_the_cgroup_of_another_user_ends_nothing_in_it(service, ann, bystander, how):
    process, home, marker = bystander
    job, main = running(ann)
    service.kill()
    rewrite(service, job, cgroup=str(home), marker=marker, **({"pid": "none"} if how == "spoilt" else {}))
    if how == "ended":
        make_up_an_end(service, ann, job)
    service.start()
    if how == "running":
        assert ann.ask("POST", f"jobs/{job}/cancel", {"grace": "0s"})[0] == 200
    ann.ended(job)
    wait_for(lambda: start_time(main) is None, "her own goes on")
    assert process.poll() is None, "root has killed another user's process at her word"
    assert home.exists()


@pytest.mark.usefixtures("needs_cgroups")
@pytest.mark.parametrize(
    "forged",
    [{"boot_id": "another"}, {"void": True}, {"pid": "none"}, {"pid": 2**22 - 1, "marker": "f" * 32}],
    ids=["another boot", "void", "nobody", "somebody who is gone"],
)
def test_a_claim_that_lies_does_not_let_a_job_go_on_without_its_limits(service, ann, forged):
    job, main = running(ann)
    service.kill()
    rewrite(service, job, **forged)
    service.start()
    assert ann.ended(job)["phase"] == "lost"
    wait_for(lambda: start_time(main) is None, "it goes on, and nothing counts it")


@pytest.mark.usefixtures("needs_cgroups")
def test_nor_does_an_end_that_was_made_up(service, ann):
    job, main = running(ann)
    service.kill()
    make_up_an_end(service, ann, job)
    service.start()
    ann.ended(job)
    wait_for(lambda: start_time(main) is None, "it goes on, and nothing counts it")
