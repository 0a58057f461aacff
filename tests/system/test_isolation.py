"""Isolation of jobs by bubblewrap, in a real service of several users."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from pathlib import Path

import pytest
from waiting import wait_for

from jupyter_gpusched.launch.fence import build_fence

pytestmark = pytest.mark.system


@pytest.fixture
def isolating(service):
    """The service, started again with isolation."""
    try:
        build_fence()
    except OSError as error:
        pytest.skip(str(error))
    service.stop()
    with service.config.open("a") as config:
        config.write('c.GpuSched.isolation = "bwrap"\n')
    return service.start()


@pytest.fixture
def litter():
    path = Path("/tmp") / f"gs-of-somebody-{uuid.uuid4().hex}"
    path.write_text("secret")
    yield path
    path.unlink()


def test_a_job_has_a_tmp_of_its_own_and_finds_everything_else(isolating, ann, litter):
    script = (
        f"test ! -e {litter} && echo 7 >/tmp/mine && cat /tmp/mine && pwd && id -u && grep NoNewPrivs /proc/$$/status"
    )
    job = ann.submit("sh", "-c", script)
    view = ann.ended(job)
    assert view["phase"] == "succeeded", ann.log(job)
    assert ann.log(job).split() == ["7", str(ann.home), str(ann.uid), "NoNewPrivs:", "1"]
    assert not Path("/tmp/mine").exists()


def test_a_job_submits_another_from_behind_the_fence(isolating, ann):
    code = "import jupyter_gpusched as gs; print(gs.submit(['echo', 'inner'], gpus=0).wait(60).logs())"
    job = ann.submit(ann._python, "-c", code, env=ann.environ | {"HOME": str(ann.home)})
    assert ann.ended(job)["phase"] == "succeeded", ann.log(job)
    assert ann.log(job).strip() == "inner"


def test_a_job_that_is_killed_and_one_that_leaves_something_behind_end_as_without_a_fence(isolating, ann):
    view = ann.ended(ann.submit("sh", "-c", "kill -9 $$"))
    assert (view["phase"], view["attempts"][-1]["signal"]) == ("failed", 9)
    job = ann.submit("sh", "-c", "setsid sleep 600 & echo $!")
    assert ann.ended(job)["phase"] == "succeeded"
    left = int(ann.log(job))
    wait_for(lambda: not Path(f"/proc/{left}").exists(), "what it left behind goes on")


def test_a_running_job_is_cancelled_after_the_service_was_killed_and_restarted(isolating, ann):
    job = ann.submit("sh", "-c", "echo begun; sleep 600")
    wait_for(lambda: "begun" in ann.log(job), "it does not begin")
    isolating.kill()
    isolating.start()
    assert ann.ask("POST", f"jobs/{job}/cancel", {"grace": "1s"})[0] == 200
    assert ann.ended(job)["phase"] == "cancelled"


def test_a_folder_that_jobs_do_not_see_is_refused_at_submission(isolating, ann, tmp_path):
    folder = Path("/tmp") / f"gs-{uuid.uuid4().hex}"
    folder.mkdir()
    folder.chmod(0o755)
    try:
        status, answer = ann.ask("POST", "jobs", {"argv": ["true"], "gpus": 0, "cwd": str(folder)})[:2]
    finally:
        folder.rmdir()
    assert (status, answer["error"]["field"]) == (422, "cwd")
    assert "of which each job has its own here" in answer["error"]["message"]


def test_health_and_doctor_say_which_isolation_is_on(isolating, ann):
    assert ann.ask("GET", "health")[1]["isolation"] == "bwrap"
    checks = json.loads(ann.cli("doctor", "--json").stdout)
    assert "isolation of jobs: bwrap" in json.dumps(checks)


def test_the_service_does_not_start_where_isolation_is_asked_for_and_not_to_be_had(service, tmp_path):
    service.stop()
    with service.config.open("a") as config:
        config.write('c.GpuSched.isolation = "bwrap"\n')
    for program in ("setpriv", "prlimit", "sh", "id", "cat"):
        (tmp_path / program).symlink_to(shutil.which(program))
    given, os.environ["PATH"] = os.environ["PATH"], str(tmp_path)
    try:
        with pytest.raises(pytest.fail.Exception, match=r"(?s)isolation = .bwrap.: bubblewrap is missing"):
            service.start()
    finally:
        os.environ["PATH"] = given
