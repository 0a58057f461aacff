"""The service of a machine with several users: every job is its owner's, and nobody else's business."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_for

import jupyter_gpusched
from jupyter_gpusched.launch.spawn import as_user

pytestmark = pytest.mark.system

WHO = "id -u; id -g; id -G; umask; echo $HOME $USER $LOGNAME $SHELL; pwd; grep NoNewPrivs /proc/self/status; env"


def test_a_job_runs_as_its_owner_with_nothing_of_the_service(service, ann):
    job = ann.submit("sh", "-c", WHO)
    view = ann.ended(job)
    assert (view["phase"], view["user"]) == ("succeeded", ann.name)
    uid, gid, groups, umask, surroundings, folder, privileges, *env = ann.log(job).splitlines()
    assert (int(uid), int(gid), umask) == (ann.uid, ann.gid, "0077")
    assert sorted(map(int, groups.split())) == sorted(os.getgrouplist(ann.name, ann.gid))
    assert surroundings.split() == [str(ann.home), ann.name, ann.name, "/bin/bash"]
    assert folder == str(ann.home)
    assert privileges.split() == ["NoNewPrivs:", "1"]
    assert not any("of the service" in line or "GPUSCHED_HOME" in line for line in env)
    assert f"GPUSCHED_SOCKET={service.socket}" in env, "a job finds the service that runs it"


def test_the_supervisor_shows_its_owner_nothing_of_the_service(service, ann):
    job = ann.submit("sh", "-c", "tr '\\0' '\\n' </proc/$PPID/environ; cat /proc/$PPID/status")
    assert ann.ended(job)["phase"] == "succeeded"
    assert "A_SECRET" not in ann.log(job)
    assert f"Uid:\t{ann.uid}\t{ann.uid}\t{ann.uid}\t{ann.uid}" in ann.log(job)


def test_files_of_a_job_are_its_owners_alone_below_folders_of_root(service, ann, bob):
    job = ann.submit("sh", "-c", "echo secret")
    ann.ended(job)
    folder = service.state / "jobs" / job
    for path in (folder, *folder.rglob("*")):
        info = path.lstat()
        assert (info.st_uid, stat.S_IMODE(info.st_mode) & 0o077) == (ann.uid, 0), path
    for path in (service.state, service.state / "jobs"):
        assert (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) == (0, 0o711), path
    for path in service.state.glob("gpusched.sqlite*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    log = folder / "attempt-1" / "log"
    assert ann.run("cat", str(log)).stdout == "secret\n"
    assert "Permission denied" in bob.run("cat", str(log)).stderr
    assert "Permission denied" in bob.run("ls", str(service.state / "jobs")).stderr


def test_another_users_job_is_as_unknown_as_one_that_never_was(ann, bob, admin):
    job = ann.submit("sleep", "600")
    unknown = bob.ask("GET", "jobs/aaaaaaaa")
    found = bob.ask("GET", f"jobs/{job}")
    assert found[0] == unknown[0] == 404
    assert json.dumps(found[1]).replace(job, "aaaaaaaa") == json.dumps(unknown[1])
    assert bob.ask("POST", f"jobs/{job}/cancel", {})[0] == 404
    assert bob.ask("GET", "jobs?all_users=1")[0] == 403
    assert bob.cli("ls", "--json").stdout.strip() == "[]"
    assert bob.cli("show", job).returncode == 2
    everybodys = admin.cli("ls", "--all-users", "--json")
    assert everybodys.returncode == 0, everybodys.stderr
    assert [view["id"] for view in json.loads(everybodys.stdout)] == [job]
    assert admin.ask("POST", f"jobs/{job}/cancel", {"grace": "0s"})[0] == 200
    view = ann.ended(job)
    assert view["phase"] == "cancelled"
    assert admin.name in view["message"], "the owner is told who did it"


def test_root_itself_is_no_administrator(service, ann):
    from rest import Rest

    rest = Rest(str(service.socket))
    try:
        job = ann.submit("sleep", "600")
        assert rest("GET", f"jobs/{job}").status == 404
        assert rest("POST", "admin/drain", {}).status == 403
        assert rest("GET", "jobs?all_users=1").status == 403
    finally:
        rest.close()


def test_only_administrators_run_the_machine_and_it_is_written_down_who_did(ann, admin):
    assert ann.ask("POST", "admin/drain", {"cause": "mischief"})[0] == 403
    assert ann.ask("POST", "admin/quarantine", {"gpu": 0})[0] == 403
    status, answer = admin.ask("POST", "admin/drain", {"cause": "new disks"})
    assert (status, answer["drained"]["by"]) == (200, admin.name)
    waiting = ann.submit("true")
    assert f"{admin.name} has drained this machine: new disks" in ann.ask("GET", f"jobs/{waiting}")[1]["waiting"]


def test_a_job_whose_owner_may_not_enter_a_folder_is_refused_as_the_owner_would_be(service, ann, bob):
    private = bob.home / "private"
    bob.run("mkdir", str(private))
    status, answer = ann.ask("POST", "jobs", {"argv": ["true"], "gpus": 0, "cwd": str(private)})
    assert status == 422
    assert answer["error"]["field"] == "cwd"
    bob.run("sh", "-c", "echo 'print(1)' >private/secret.py")
    spec = {"kind": "script", "path": str(private / "secret.py"), "gpus": 0}
    there = ann.ask("POST", "jobs", spec)
    absent = ann.ask("POST", "jobs", spec | {"path": str(private / "absent.py")})
    assert there[0] == absent[0] == 422
    assert json.dumps(there[1]).replace("secret.py", "absent.py") == json.dumps(absent[1]), "existence is not told"


def test_running_jobs_go_on_when_the_service_is_killed_and_are_found_again(service, ann):
    job = ann.submit("sh", "-c", "echo begun; while ! [ -e $HOME/go ]; do sleep 0.1; done; echo done")
    wait_for(lambda: "begun" in ann.log(job), "it does not begin")
    service.kill()
    ann.run("touch", "go")
    service.start()
    assert ann.ended(job)["phase"] == "succeeded"
    assert ann.log(job) == "begun\ndone\n"
    second = ann.submit("sleep", "600")
    wait_for(lambda: ann.ask("GET", f"jobs/{second}")[1]["phase"] == "running", "it does not start")
    service.kill()
    service.start()
    assert ann.ask("POST", f"jobs/{second}/cancel", {"grace": "1s"})[0] == 200
    assert ann.ended(second)["phase"] == "cancelled"


def test_a_cell_job_brings_its_values_along_as_its_owners_file_and_its_result_back(service, ann):
    code = (
        "import jupyter_gpusched as gs\n"
        "factor = 6\n"
        "def product(x):\n    return x * factor\n"
        "job = gs.submit(product, 7, gpus=0)\n"
        "print(job.id, job.wait(60).result())\n"
    )
    ann.run("sh", "-c", f"cat >call.py <<'END'\n{code}END")
    done = ann.run(ann._python, "call.py")
    assert done.stdout.split()[1:] == ["42"], done.stderr
    payload = service.state / "jobs" / done.stdout.split()[0] / "payload.pkl"
    assert (payload.stat().st_uid, stat.S_IMODE(payload.stat().st_mode)) == (ann.uid, 0o600)
    assert ann.ask("DELETE", f"jobs/{done.stdout.split()[0]}")[0] == 204
    assert not payload.parent.exists()


def test_the_service_signals_no_process_that_is_not_the_owners(service, ann, bob):
    """Ann swaps the records of her job for ones that name Bob's process; then the job is cancelled."""
    victim = bob.submit("sleep", "600")
    wait_for(lambda: bob.ask("GET", f"jobs/{victim}")[1]["phase"] == "running", "it does not start")
    claim = json.loads((service.state / "jobs" / victim / "attempt-1" / "claim").read_text())
    job = ann.submit("sleep", "600")
    wait_for(lambda: ann.ask("GET", f"jobs/{job}")[1]["phase"] == "running", "it does not start")
    folder = service.state / "jobs" / job / "attempt-1"
    ours = json.loads((folder / "claim").read_text())
    forged = json.dumps({**ours, "pid": claim["pid"], "start_time": claim["start_time"], "marker": claim["marker"]})
    started = json.dumps({**json.loads((folder / "started").read_text()), "main": {
        "pid": claim["pid"], "start_time": claim["start_time"]}, "marker": claim["marker"]})  # fmt: skip
    script = f"cd {folder}; rm claim started; printf %s '{forged}' >claim; printf %s '{started}' >started"
    assert ann.run("sh", "-c", script).returncode == 0
    service.kill()
    service.start()  # it has nothing but the forged files to go by
    os.kill(ours["pid"], signal.SIGKILL)  # nor a supervisor
    ann.ask("POST", f"jobs/{job}/cancel", {"grace": "0s"})
    ann.ended(job)
    assert bob.ask("GET", f"jobs/{victim}")[1]["phase"] == "running"
    os.kill(claim["pid"], 0)


def test_the_service_follows_no_link_waits_for_no_pipe_and_reads_no_giant_of_an_owner(service, ann):
    job = ann.submit("sleep", "600")
    wait_for(lambda: ann.ask("GET", f"jobs/{job}")[1]["phase"] == "running", "it does not start")
    folder = service.state / "jobs" / job
    secret = service.place / "secret"
    secret.write_text("[1, 2]")
    secret.chmod(0o600)
    script = (
        f"cd {folder} && rm -f attempt-1/log attempt-1/outputs.jsonl && ln -s {secret} attempt-1/log"
        " && truncate -s 1T attempt-1/outputs.jsonl && mkfifo memory.json attempt-1/timeline.json"
        " && mkfifo attempt-1/.stop attempt-1/stop .memory.json attempt-1/log.cut attempt-1/cells"
        f" && mkdir -p results && ln -s {secret} results/x.pkl && truncate -s 1T results/y.pkl"
        " && rm -f attempt-1/started && mkfifo attempt-1/started"
    )
    assert ann.run("sh", "-c", script).returncode == 0
    assert ann.log(job) == ""
    assert ann.ask("GET", f"jobs/{job}/result/x")[0] == 404
    for path in ("outputs", "memory", "timeline", "outputs?newest=1000"):
        assert ann.ask("GET", f"jobs/{job}/{path}")[0] == 200, path
    assert ann.ask("POST", f"jobs/{job}/cancel", {"grace": "0s"})[0] == 200
    ann.ended(job)
    assert ann.ask("GET", "health")[1]["status"] == "ok"
    size = int(next(line for line in _status(service) if line.startswith("VmHWM")).split()[1])
    assert size < 400 * 1024, "kB at most"


def test_a_folder_that_its_owner_swapped_for_a_link_leads_the_service_nowhere(service, ann):
    job = ann.submit("sleep", "600")
    wait_for(lambda: ann.ask("GET", f"jobs/{job}")[1]["phase"] == "running", "it does not start")
    target = service.place / "of-root"
    target.mkdir(mode=0o700)
    folder = service.state / "jobs" / job
    assert ann.run("sh", "-c", f"cd {folder} && mv attempt-1 away && ln -s {target} attempt-1").returncode == 0
    assert ann.ask("POST", f"jobs/{job}/cancel", {"grace": "0s"})[0] == 200
    ann.ended(job)
    assert list(target.iterdir()) == [], "nothing was written there with root's rights"
    outside = ann.home / "kept"
    ann.run("sh", "-c", f"mkdir kept; touch kept/file; cd {folder}; rm -rf results; ln -s {outside} results")
    assert ann.ask("DELETE", f"jobs/{job}")[0] == 204
    assert not folder.exists()
    assert (outside / "file").exists()


def _status(service):
    return (service.process and open(f"/proc/{service.process.pid}/status").read().splitlines()) or []


def test_sighup_reads_the_limits_again_and_ends_nothing(service, ann, admin):
    limits = service.place / "limits.toml"
    limits.write_text("[everybody]\nrunning_jobs = 1\n")
    service.config.write_text(service.config.read_text() + f"c.GpuSched.limits = {str(limits)!r}\n")
    service.stop()
    service.start()
    first, second = ann.submit("sleep", "600"), ann.submit("sleep", "600")
    words = f"{ann.name} may run 1 job at a time, and 1 is running"
    wait_for(lambda: words in (ann.ask("GET", f"jobs/{second}")[1]["waiting"] or ""), "no word of the limit")
    limits.write_text("[everybody]\nruning_jobs = 2\n")
    service.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "line 2: there is no limit 'runing_jobs'" in service.log.read_text(), "the mistake is not told")
    limits.write_text("[everybody]\nrunning_jobs = 2\n")
    service.process.send_signal(signal.SIGHUP)
    wait_for(lambda: ann.ask("GET", f"jobs/{second}")[1]["phase"] == "running", "the new limit does not hold")
    assert ann.ask("GET", f"jobs/{first}")[1]["phase"] == "running"
    assert "2" in ann.cli("limits").stdout
    assert '"SIGHUP"' in json.dumps(admin.ask("GET", "admin/events")[1])


def test_a_job_gets_the_resource_limits_of_its_owner_and_not_those_of_the_service(service, accounts, ann, bob):
    limits = service.place / "limits.toml"
    limits.write_text(
        "[everybody]\nrlimits = { nofile = 640, core = 0 }\n"
        f"[groups.{accounts['group']}]\nrlimits = {{ nproc = 500 }}\n"
        f'[users.{bob.name}.rlimits]\nnofile = 1280\nmemlock = "1M"\n'
    )
    service.config.write_text(service.config.read_text() + f"c.GpuSched.limits = {str(limits)!r}\n")
    service.stop()
    service.start()
    raising = "ulimit -a; ulimit -n 100000 && echo raised"
    jobs = {user: user.submit("bash", "-c", raising) for user in (ann, bob)}
    said = {}
    for user, job in jobs.items():
        assert user.ended(job)["attempts"], user.log(job)
        said[user] = {" ".join(line.split(")")[0].split()): line.split()[-1] for line in user.log(job).splitlines()}
    assert said[ann]["open files (-n"] == "640"
    assert said[ann]["core file size (blocks, -c"] == "0"
    assert said[ann]["max user processes (-u"] == "500"
    assert "raised" not in ann.log(jobs[ann]), "it cannot take back what was set"
    assert (said[bob]["open files (-n"], said[bob]["max locked memory (kbytes, -l"]) == ("1280", "1024")
    assert ann.ask("GET", "limits")[1]["limits"]["rlimits"] == {"core": 0, "nofile": 640, "nproc": 500}
    assert "nofile (ulimit)" in ann.cli("limits").stdout


def test_limits_of_a_unix_group_hold_for_its_members(service, accounts, ann):
    limits = service.place / "limits.toml"
    limits.write_text(f"[everybody]\nqueued_jobs = 0\n[groups.{accounts['group']}]\nqueued_jobs = 5\n")
    service.config.write_text(service.config.read_text() + f"c.GpuSched.limits = {str(limits)!r}\n")
    service.stop()
    service.start()
    assert ann.ended(ann.submit("true"))["phase"] == "succeeded"
    assert accounts["group"] in ann.ask("GET", "limits")[1]["groups"]


def test_an_administrators_day_on_the_command_line(ann, bob, admin):
    ann.ended(ann.submit("true"))
    bob.ended(bob.submit("false"))
    report = admin.cli("report", "--since", "1h")
    assert report.returncode == 0, report.stderr
    assert {line.split()[0] for line in report.stdout.splitlines()} == {"USER", ann.name, bob.name}
    told = admin.cli("events", "--since", "1h").stdout
    assert f"submitted by {ann.name} job" in told
    assert admin.cli("ls", "--all-users").stdout.count("\n") == 3
    for words in (("report",), ("events",), ("limits", "--all-users"), ("limits", "--reload"), ("ls", "--all-users")):
        refused = ann.cli(*words)
        assert refused.returncode == 2, words
        assert "dministrators" in refused.stderr


def test_without_root_it_serves_its_own_user_and_says_so(everybodys_python, service, ann, bob):
    """Ann starts a service of her own; Bob is turned away in words."""
    state, socket = ann.home / "own", ann.home / "own.sock"
    ann.run("chmod", "711", str(ann.home))
    words = [*_as(ann), everybodys_python, "-m", "jupyter_gpusched.cli", "serve", "--system", f"--socket={socket}"]
    env = ann.environ | {"GPUSCHED_HOME": str(state), "GPUSCHED_SIMULATE": "1x8G"}
    log = service.place / "own.log"
    with log.open("wb") as output:
        process = subprocess.Popen(words, env=env, cwd=ann.home, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        wait_for((state / "host.json").exists, "it does not start")
        wait_for(lambda: f"works for {ann.name} alone" in log.read_text(), "it does not say so")
        for user, status in ((ann, 200), (bob, 403)):
            user.environ["GPUSCHED_SOCKET"] = str(socket)
            assert user.ask("GET", "health")[0] == status
    finally:
        process.terminate()
        process.wait(timeout=60)


def _as(user):
    return as_user(user.uid, user.gid, os.getgrouplist(user.name, user.gid))


def test_a_python_that_others_cannot_execute_is_refused_at_the_start(service, tmp_path, everybodys_python):
    """A copy of the package below a folder that only root may enter."""
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    shutil.copytree(Path(jupyter_gpusched.__file__).parent, hidden / "jupyter_gpusched",
                    ignore=shutil.ignore_patterns("labextension", "__pycache__"))  # fmt: skip
    words = [everybodys_python, "-m", "jupyter_gpusched.hosts.daemon", "--system", f"--socket={tmp_path}/s/h.sock"]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(hidden), "GPUSCHED_HOME": str(tmp_path / "state")}
    done = subprocess.run(words, env=env, cwd="/", capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 2
    assert "other users cannot run" in done.stderr
    assert "/opt/jupyter-gpusched" in done.stderr


def test_the_unit_of_the_docs_is_one_that_systemd_understands(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd here; run `apt-get install systemd`")
    page = Path(__file__).parents[2] / "docs" / "how-to" / "shared-machine.md"
    unit = re.search(r"```ini\n(.*?)```", page.read_text(), re.DOTALL)[1]
    command = re.search(r"^ExecStart=(\S+) (.*)$", unit, re.MULTILINE)
    assert command[2].split()[:2] == ["serve", "--system"], "as these tests start it"
    file = tmp_path / "jupyter-gpusched.service"
    file.write_text(unit.replace(command[1], sys.executable))  # which is there, as the check wants it
    done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False)
    about_ours = [line for line in done.stderr.splitlines() if "jupyter-gpusched" in line]
    assert (done.returncode, about_ours) == (0, []), done.stderr


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _needs_cgroups(ann):
    if "cgroup" not in ann.ask("GET", "health")[1]["ending"]:
        pytest.skip("there are no cgroups of version 2 that can be written; a machine with systemd has them")


def test_nothing_leaves_a_job_that_hides_its_origin_and_kills_its_supervisor(service, ann):
    _needs_cgroups(ann)
    hide = "env -i setsid sh -c 'echo $$ >left; exec sleep 4321' & sleep 1; kill -9 $PPID; sleep 600"
    job = ann.submit("sh", "-c", hide, cwd=str(ann.home))
    assert ann.ended(job)["phase"] == "lost"
    left = int((ann.home / "left").read_text())
    wait_for(lambda: not _runs(left), "what hid itself goes on")
    wait_for(lambda: not list(Path("/sys/fs/cgroup").glob(f"**/gpusched-{job}-*")), "its cgroup stays")


def test_a_job_cannot_move_itself_out_of_its_cgroup(service, ann):
    _needs_cgroups(ann)
    where = "cat /proc/self/cgroup; d=$(find /sys/fs/cgroup -name 'gpusched-*' | head -1); echo $$ >$d/../cgroup.procs"
    job = ann.submit("sh", "-c", where)
    ann.ended(job)
    assert f"gpusched-{job}-1-" in ann.log(job)
    assert "ermission denied" in ann.log(job)


def test_whoever_keeps_the_own_supervisor_from_ending_a_job_does_not_keep_the_service_from_it(service, ann, admin):
    stubborn = "(while :; do kill -STOP $PPID; sleep 0.01; done) & trap '' TERM; echo on; while :; do sleep 1; done"
    job = ann.submit("sh", "-c", stubborn, grace="1s")
    wait_for(lambda: "on" in ann.log(job), "it does not begin")
    assert admin.ask("POST", f"jobs/{job}/cancel", {"grace": "0s"})[0] == 200
    view = ann.ended(job)
    assert view["phase"] in ("cancelled", "lost"), view
