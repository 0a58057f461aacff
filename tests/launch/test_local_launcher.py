"""Attempts as a user's machine runs them: real processes under the real supervisor."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from jupyter_gpusched.core.messages import Exited, LaunchFailed, MainEnded, Started, Vanished, Voided
from jupyter_gpusched.core.model import Kind
from jupyter_gpusched.launch import attempt as files
from jupyter_gpusched.runner.tree import start_time

from .conftest import a_grant, a_job


@pytest.fixture(params=["singly", "kept ready"], autouse=True)
def started(request, bench):
    """Supervisors are started one by one, or forked ahead of time: a job must not see a difference."""
    if request.param == "kept ready":
        bench.keep_ready()


def lives(pid):
    return start_time(pid) is not None


async def test_a_command_starts_runs_and_ends(bench):
    _, folder = bench.start("sh", "-c", "echo hello; exit 3")
    end = await bench.last()
    assert (end.exit.code, end.exit.signal, end.exit.stopped) == (3, None, None)
    assert end.exit.started_at <= end.exit.ended_at
    assert bench.log(folder) == "hello\n"


async def test_the_start_is_reported_while_the_attempt_runs(bench):
    job, _ = bench.start("sleep", "600")
    started = await bench.started()
    assert abs(started.at - time.time()) < 20
    assert bench.launcher.alive(job.id, 1)
    assert len(bench.launcher.pids(job.id, 1)) == 1


async def test_an_ordinary_end_reports_no_stragglers_phase(bench):
    bench.start("true")
    await bench.last()
    assert not bench.events_of(MainEnded)


async def test_a_list_reaches_the_process_as_exactly_that_list(bench):
    words = ["My File.txt", 'Mc\'L "x"', "$HOME", "*", "", "é 中"]
    _, folder = bench.python("import sys; print(ascii(sys.argv[1:]))", *words)
    await bench.last()
    assert bench.log(folder) == ascii(words) + "\n"


async def test_a_string_runs_by_the_shell(bench):
    _, folder = bench.start(shell="echo one | tr a-z A-Z && exit 4")
    end = await bench.last()
    assert (bench.log(folder), end.exit.code) == ("ONE\n", 4)


async def test_a_script_runs_with_its_arguments_in_the_given_interpreter(bench):
    script = bench.folder / "my script.py"
    script.write_text("import sys, shutil; print(sys.argv[1:], shutil.which('python') or shutil.which('python3'))")
    job = a_job(kind=Kind.SCRIPT)
    env = {"PATH": "/usr/bin:/bin"}
    _, folder = bench.start(job=job, path=script.name, args=("--epochs", "3"), python=sys.executable, env=env)
    await bench.last()
    assert bench.log(folder).startswith("['--epochs', '3'] " + os.path.dirname(sys.executable))


async def test_a_missing_folder_ends_the_attempt_without_running_it_elsewhere(bench):
    gone = bench.folder / "gone"
    bench.start("touch", str(bench.folder / "ran"), cwd=str(gone))
    end = await bench.last()
    assert isinstance(end, LaunchFailed)
    assert end.reason == "cwd_missing"
    assert str(gone) in end.message
    assert not (bench.folder / "ran").exists()


@pytest.mark.parametrize("program", ["no-such-program", "./no-such-program"])
async def test_a_missing_program_is_named(bench, program):
    bench.start(program)
    end = await bench.last()
    assert (end.reason, program in end.message) == ("launch_failed", True)
    assert not bench.events_of(Started)


async def test_death_by_a_signal_is_that_signal(bench):
    bench.python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    end = await bench.last()
    assert (end.exit.code, end.exit.signal, end.exit.reason) == (None, signal.SIGSEGV, "signal_11")


async def test_sigkill_is_explained_by_host_memory_and_names_the_peak(bench):
    bench.python("import os, signal; x = b'x' * 40_000_000; os.kill(os.getpid(), signal.SIGKILL)")
    end = await bench.last()
    assert end.exit.reason == "signal_9"
    assert end.exit.peak_rss_mib > 40
    assert f"at most {end.exit.peak_rss_mib} MiB of host memory" in end.exit.message


async def test_what_was_printed_before_sigkill_is_in_the_log(bench):
    code = "import os, signal; print('epoch 1 损失 ✓'); os.kill(os.getpid(), signal.SIGKILL)"
    env = {"PATH": "/usr/bin:/bin", "LC_ALL": "POSIX", "PYTHONIOENCODING": "ascii"}
    _, folder = bench.python(code, env=env)
    await bench.last()
    assert bench.log(folder) == "epoch 1 损失 ✓\n"


async def test_standard_input_is_empty_and_there_is_no_terminal(bench):
    _, folder = bench.start("sh", "-c", "read x || echo nothing; cat < /dev/tty || exit 7")
    end = await bench.last()
    assert end.exit.code == 7
    assert bench.log(folder).startswith("nothing\n")


async def test_signals_start_with_their_default_effect_and_none_blocked(bench):
    _, folder = bench.start("grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")
    await bench.last()
    assert bench.log(folder).split() == ["SigBlk:", "0" * 16, "SigIgn:", "0" * 16]


async def test_the_environment_is_there_before_the_process_starts(bench):
    code = "print(open('/proc/self/environ').read().replace(chr(0), chr(10)))"
    job = a_job(gpus=1, grants=[a_grant()])
    _, folder = bench.python(code, job=job, env={"PATH": "/usr/bin:/bin"})
    await bench.last()
    found = bench.log(folder).split("\n")
    assert {"CUDA_VISIBLE_DEVICES=GPU-bbbb", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "GPUSCHED_VRAM_MIB=4096"} <= set(found)
    assert {f"GPUSCHED_JOB_ID={job.id}", "GPUSCHED_ATTEMPT=1", "GPUSCHED_HOME=/somewhere"} <= set(found)


async def test_the_files_of_an_attempt_are_closed_to_others(bench):
    _, folder = bench.start("true")
    await bench.last()
    await bench.until((folder / "attempt-1/exit.json").exists)
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.rglob("*")}
    assert {modes.pop(name) for name in ("attempt-1", "checkpoint")} == {0o700}
    assert set(modes) == {"claim", "started", "log", "exit.json"}
    assert set(modes.values()) == {0o600}


async def test_a_large_order_blocks_nobody(bench):
    env = {f"V{number}": "x" * 100_000 for number in range(12)}
    _, folder = bench.start("/bin/sh", "-c", "echo ${#V11}", env=env)
    await bench.last()
    assert bench.log(folder) == "100000\n"


async def test_its_time_limit_ends_an_attempt(bench):
    _, folder = bench.start("sleep", "600", job=a_job(time_limit_s=0.3))
    end = await bench.last()
    assert (end.exit.stopped, end.exit.signal) == ("timeout", signal.SIGTERM)
    assert (folder / "attempt-1/stop").read_text().startswith("timeout\n")


async def test_what_the_main_process_leaves_behind_is_ended_and_counted(bench):
    bench.python("import subprocess; subprocess.Popen(['sleep', '600'])")
    end = await bench.last()
    assert (end.exit.code, end.exit.stragglers, end.exit.stopped) == (0, 1, None)


async def test_a_straggler_that_ignores_the_signal_is_shown_as_ending_and_then_killed(bench):
    code = (
        "import subprocess as s; p = s.Popen(['sh', '-c', 'trap \"\" TERM; echo ready; sleep 600'], stdout=s.PIPE);"
        "p.stdout.readline()"
    )
    bench.python(code, job=a_job(grace_s=1.0))
    end = await bench.last()
    assert [type(event) for event in bench.events] == [Started, MainEnded, Exited]
    assert (end.exit.code, end.exit.stragglers) == (0, 2)


TREE = """
import os, signal, subprocess, sys, time
def sleeper(after=""):
    return [sys.executable, "-c", "import signal, sys, os, time; signal.signal(15, signal.SIG_IGN);" + after +
            "open(sys.argv[1] + str(os.getpid()), 'w').close(); time.sleep(600)", sys.argv[1]]
signal.signal(15, signal.SIG_IGN)
subprocess.Popen(sleeper())
subprocess.Popen(sleeper(), start_new_session=True)
orphan = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"
subprocess.run([sys.executable, "-c", orphan, *sleeper()], start_new_session=True)
subprocess.run(["env", "-i", sys.executable, "-c", orphan, *sleeper()])
open(sys.argv[1] + "main", "w").close()
time.sleep(600)
"""


@pytest.fixture
def bystander():
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


async def test_a_stop_ends_the_whole_tree_and_nothing_else(bench, bystander):
    there = bench.folder / "there"
    there.mkdir()
    job, folder = bench.python(TREE, f"{there}/")
    await bench.until(lambda: len(list(there.iterdir())) == 5)
    bench.launcher.stop(job, 1, "cancelled", 0.5, folder)
    end = await bench.last()
    pids = [int(path.name) for path in there.iterdir() if path.name != "main"]
    assert [lives(pid) for pid in pids] == [False] * 4
    assert lives(bystander.pid)
    assert (end.exit.stopped, end.exit.signal, end.exit.survivors) == ("cancelled", signal.SIGKILL, ())


HANDLER = """
import os, signal, sys, time
seen = []
signal.signal(15, lambda *_: seen.append(1))
open("ready", "w").close()
while not seen: time.sleep(0.01)
time.sleep(1)
reason = open(os.environ["GPUSCHED_STOP_FILE"]).readline().strip()
open("ck.pt", "w").write(f"{len(seen)} {reason}")
"""


async def test_the_signal_reaches_the_code_below_a_shell_once_and_grace_is_given(bench):
    (bench.folder / "h.py").write_text(HANDLER)
    job, folder = bench.start("bash", "-c", f"{sys.executable} h.py; echo done")
    await bench.until((bench.folder / "ready").exists)
    bench.launcher.stop(job, 1, "cancelled", 10.0, folder)
    bench.launcher.stop(job, 1, "cancelled", 10.0, folder)
    end = await bench.last()
    assert (bench.folder / "ck.pt").read_text() == "1 cancelled"
    assert end.exit.stopped == "cancelled"


async def test_no_grace_ends_it_at_once(bench):
    job, folder = bench.start("sh", "-c", "trap '' TERM; echo ready; sleep 600")
    await bench.until(lambda: bench.log(folder))
    bench.launcher.stop(job, 1, "cancelled", 0.0, folder)
    end = await bench.last(timeout=5)
    assert end.exit.signal == signal.SIGKILL


async def test_a_stop_before_the_claim_means_that_nothing_runs(bench, monkeypatch):
    bench.launcher = bench.new_launcher()  # a supervisor that was kept ready might have its claim already
    held = bench.folder / "held"
    os.mkfifo(held)
    gate = os.open(held, os.O_RDWR)
    python = bench.folder / "python"
    python.write_text(f'#!/bin/sh\nread _ <{held}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", str(python))  # the supervisor's: it begins when the gate is opened
        job, folder = bench.start("touch", str(bench.folder / "ran"))
    bench.launcher.stop(job, 1, "cancelled", 2.0, folder)
    os.write(gate, b"\n")
    end = await bench.last()
    await bench.until(lambda: not bench.launcher._watches)
    os.close(gate)
    assert isinstance(end, Voided)
    assert not (bench.folder / "ran").exists()
    assert not (folder / "attempt-1/log").exists()
    assert bench.events == [end]


async def test_a_stop_racing_a_start_leaves_one_truth(bench):
    """Voided means that the code has not run; anything else means that it was ended or had ended."""
    ran = bench.folder / "ran"
    ran.mkdir()
    jobs = []
    for number in range(30):
        job, folder = bench.start("touch", str(ran / str(number)), job=a_job(f"job{number:05}"))
        await bench.until(lambda: True)
        bench.launcher._loop.call_later(number * 0.001, bench.launcher.stop, job, 1, "cancelled", 1.0, folder)
        jobs.append(job)
        await bench.last(job)
    await bench.until(lambda: not bench.launcher._watches)
    ends = {job.id: [e for e in bench.events if e.job_id == job.id and isinstance(e, (Voided, Exited))] for job in jobs}
    assert all(len(found) == 1 for found in ends.values())
    voided = [number for number, job in enumerate(jobs) if isinstance(ends[job.id][0], Voided)]
    assert not [number for number in voided if (ran / str(number)).exists()]


async def test_supervisors_of_ended_attempts_leave_no_zombies(bench):
    job, _ = bench.start("true")
    await bench.last()
    await bench.until(lambda: not bench.launcher._watches)
    with pytest.raises(ChildProcessError):
        os.waitpid(files.read_claim(bench.folder / job.id, 1)["pid"], os.WNOHANG)  # noqa: ASYNC222  it does not wait


async def test_a_new_host_gets_the_true_code_of_what_ended_in_between(bench):
    job, folder = bench.start("sh", "-c", "sleep 0.3; exit 5")
    await bench.started()
    await bench.launcher.close()
    await bench.until((folder / "attempt-1/exit.json").exists)
    bench.launcher = bench.new_launcher()
    bench.launcher.adopt(job, 1, folder)
    end = await bench.last()
    assert end.exit.code == 5


async def test_a_new_host_goes_on_watching_what_still_runs(bench):
    go = bench.folder / "go"
    job, folder = bench.start("sh", "-c", f"while ! test -e {go}; do sleep 0.02; done; exit 6")
    await bench.started()
    await bench.launcher.close()
    bench.events.clear()
    bench.launcher = bench.new_launcher()
    bench.launcher.adopt(job, 1, folder)
    await bench.started()
    go.touch()
    end = await bench.last()
    assert end.exit.code == 6


async def test_a_new_host_can_stop_what_it_adopted(bench):
    job, folder = bench.start("sleep", "600")
    await bench.started()
    await bench.launcher.close()
    bench.launcher = bench.new_launcher()
    bench.launcher.adopt(job, 1, folder)
    bench.launcher.stop(job, 1, "cancelled", 1.0, folder)
    end = await bench.last()
    assert end.exit.stopped == "cancelled"


async def test_an_attempt_that_nobody_claimed_is_void_for_a_new_host(bench):
    job, folder = a_job(), bench.folder / "aaaaaaaa"
    bench.launcher.adopt(job, 1, folder)
    assert bench.events == [Voided(job.id, 1)]
    bench.start("touch", str(bench.folder / "ran"), job=job)
    await bench.until(lambda: not bench.launcher._watches)
    assert not (bench.folder / "ran").exists()


async def test_an_attempt_of_an_earlier_boot_is_lost(bench):
    job, folder = bench.start("true")
    await bench.last()
    place = folder / "attempt-1"
    await bench.until((place / "exit.json").exists)
    (place / "exit.json").unlink()
    claim = json.loads((place / "claim").read_text())
    (place / "claim").write_text(json.dumps({**claim, "boot_id": "another"}))
    bench.events.clear()
    bench.new_launcher().adopt(job, 1, folder)
    assert isinstance(bench.events[0], Vanished)
    assert "restarted" in bench.events[0].message


@pytest.mark.parametrize("watched", [True, False])
async def test_a_killed_supervisor_makes_the_attempt_lost_and_leaves_nothing_running(bench, watched):
    child = "subprocess.Popen(['sleep', '600'], start_new_session=True)"
    code = f"import subprocess, time; print({child}.pid); time.sleep(600)"
    job, folder = bench.python(code)
    await bench.started()
    child = int(await bench.until(lambda: bench.log(folder)))
    main = files.read_started(folder, 1)["main"]["pid"]
    if not watched:
        await bench.launcher.close()
    os.kill(files.read_claim(folder, 1)["pid"], signal.SIGKILL)
    if not watched:
        bench.launcher = bench.new_launcher()
        bench.launcher.adopt(job, 1, folder)
    end = await bench.last()
    assert isinstance(end, Vanished)
    assert not lives(child)
    assert not lives(main)


async def test_a_supervisor_that_cannot_work_is_a_failed_launch_with_its_words(bench):
    (bench.folder / "aaaaaaaa").write_text("a file where the job's folder should be")
    bench.start("true")
    end = await bench.last()
    assert isinstance(end, LaunchFailed)
    assert "supervisor" in end.message


@pytest.mark.parametrize(
    "text", ["{}", "", '{"pid": "x", "boot_id": 3}', '{"pid": 99999999999999, "start_time": 1}', "[]"], ids=range(5)
)
async def test_a_new_host_lives_with_a_spoilt_claim_and_ends_what_bears_its_marker(bench, text):
    job, folder = bench.start("sleep", "600")
    await bench.started()
    supervisor, main = files.read_claim(folder, 1)["pid"], files.read_started(folder, 1)["main"]["pid"]
    await bench.launcher.close()
    os.kill(supervisor, signal.SIGKILL)
    claim = folder / "attempt-1/claim"
    claim.unlink()  # of a spare it is the record of the start as well, under another name
    claim.write_text(text)
    bench.launcher = bench.new_launcher()
    bench.launcher.adopt(job, 1, folder)
    end = await bench.last()
    assert isinstance(end, Vanished)
    assert "nothing of it runs any more" in end.message
    assert not lives(main)


async def test_where_every_record_is_spoilt_nobody_is_signalled_by_guess_and_nothing_is_claimed(bench):
    job, folder = bench.start("sleep", "600")
    await bench.started()
    supervisor, main = files.read_claim(folder, 1)["pid"], files.read_started(folder, 1)["main"]["pid"]
    await bench.launcher.close()
    os.kill(supervisor, signal.SIGKILL)
    for name in ("claim", "started"):
        (folder / "attempt-1" / name).write_text("{}")
    bench.launcher = bench.new_launcher()
    bench.launcher.adopt(job, 1, folder)
    end = await bench.last()
    assert isinstance(end, Vanished)
    assert "what of it still runs cannot be told" in end.message
    assert lives(main)
    os.kill(main, signal.SIGKILL)


@pytest.mark.parametrize("text", ["{}", '{"void": true}', None])
async def test_a_job_that_spoils_its_claim_can_still_be_cancelled(bench, text):
    job, folder = bench.start("sleep", "600")
    await bench.started()
    claim = folder / "attempt-1/claim"
    claim.unlink() if text is None else claim.write_text(text)
    (folder / "attempt-1/started").write_text("{}")
    bench.launcher.stop(job, 1, "cancelled", 1.0, folder)
    end = await bench.last()
    assert end.exit.stopped == "cancelled"


async def test_a_folder_that_is_no_folder_does_not_stop_a_recovery(bench):
    job = a_job()
    (bench.folder / job.id).write_text("a file where the job's folder should be")
    bench.launcher.adopt(job, 1, bench.folder / job.id)
    assert isinstance(await bench.last(), Vanished)


async def test_a_script_whose_name_begins_with_a_dash_is_a_script(bench):
    (bench.folder / "-x.py").write_text("print('ran')")
    _, folder = bench.start(job=a_job(kind=Kind.SCRIPT), path="-x.py", python=sys.executable)
    await bench.last()
    assert bench.log(folder) == "ran\n"


async def test_a_job_that_was_paused_goes_on_and_saves_its_work_when_it_is_cancelled(bench):
    code = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved'), sys.exit(0)))\n"
        "print('ready')\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\n"
        "time.sleep(600)"
    )
    job, folder = bench.python(code)
    await bench.until(lambda: bench.log(folder))
    bench.launcher.stop(job, 1, "cancelled", 600.0, folder)
    end = await bench.last()
    assert (end.exit.stopped, end.exit.code) == ("cancelled", 0)
    assert bench.log(folder) == "ready\nsaved\n"


async def test_a_supervisor_that_was_paused_goes_on_when_its_job_is_cancelled(bench):
    job, folder = bench.start("sh", "-c", "kill -STOP $PPID; echo paused; exec sleep 600")
    await bench.until(lambda: bench.log(folder))
    bench.launcher.stop(job, 1, "cancelled", 30.0, folder)
    end = await bench.last()
    assert (end.exit.stopped, end.exit.signal) == ("cancelled", signal.SIGTERM)


@pytest.mark.parametrize("whose", ["$D", "$(dirname $D)"], ids=["its attempt's", "its own"])
async def test_a_job_that_removes_its_own_folder_keeps_its_exit_code(bench, whose):
    bench.start("sh", "-c", f"D=$(dirname $GPUSCHED_STOP_FILE); rm -rf {whose}; exit 4")
    end = await bench.last()
    assert isinstance(end, Exited)
    assert end.exit.code == 4


async def test_a_stopped_job_has_ended_when_all_of_it_has_not_only_its_shell(bench):
    saving = (
        "import signal, sys, time; signal.signal(15, lambda *_: (time.sleep(1), sys.exit())); print(1); time.sleep(60)"
    )
    job, folder = bench.start("sh", "-c", f"{sys.executable} -uc '{saving}'; true")
    await bench.until(lambda: bench.log(folder))
    asked = time.time()
    bench.launcher.stop(job, 1, "cancelled", 30.0, folder)
    end = await bench.last()
    assert end.exit.signal == signal.SIGTERM
    assert end.exit.ended_at >= asked + 1


async def test_a_second_stop_ends_it_sooner_but_never_later(bench):
    job, folder = bench.start("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    await bench.until(lambda: bench.log(folder))
    bench.launcher.stop(job, 1, "cancelled", 600.0, folder)
    await bench.until((folder / "attempt-1/stop").exists)
    await asyncio.sleep(0.3)
    begun = time.monotonic()
    bench.launcher.stop(job, 1, "cancelled", 0.5, folder)
    await asyncio.sleep(0.1)
    bench.launcher.stop(job, 1, "cancelled", 600.0, folder)
    end = await bench.last()
    assert (end.exit.stopped, end.exit.signal) == ("cancelled", signal.SIGKILL)
    assert 0.4 < time.monotonic() - begun < 10
