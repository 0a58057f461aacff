"""What ends a job's processes, by each means that works here; and how it is found out what does."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jupyter_gpusched.core.messages import Exited, LaunchFailed, Vanished
from jupyter_gpusched.launch import attempt as files
from jupyter_gpusched.launch import means as probing
from jupyter_gpusched.launch.cgroups import cgroup_of, name_of
from jupyter_gpusched.launch.means import Hierarchy, Means, find_hierarchy, holes_in, probe, service_of
from jupyter_gpusched.runner import cgroup
from jupyter_gpusched.runner.born import fork_into
from jupyter_gpusched.runner.tree import children, start_time

from .conftest import a_job

HERE = probe(Path("/tmp"))
RUNNER = Path(cgroup.__file__).parent
WITHOUT_LIBFFI = (
    f"import sys\nsys.modules['_ctypes'] = None\nsys.path.append({str(RUNNER.parent)!r})\n"
    "from runner.supervision import main\nmain()\n"
)

needs_cgroups = pytest.mark.skipif(HERE.cgroups is None, reason=f"{HERE.no_cgroups}; root in a container has them")


@pytest.fixture(params=[pytest.param("cgroup", marks=needs_cgroups), "subreaper", "kept ready", "marker"])
def forced(request, bench, tmp_path, monkeypatch):
    """The workbench with one means: with a cgroup, by descent with a subreaper, or by the marker alone.

    ``kept ready`` is by descent, under a supervisor that was forked ahead of time.
    """
    if request.param == "kept ready":
        bench.keep_ready()
    if request.param == "cgroup":
        bench.launcher = bench.new_launcher(means=Means(cgroups=HERE.cgroups))
    if request.param == "marker":
        entry = tmp_path / "supervise.py"
        entry.write_text(WITHOUT_LIBFFI)
        monkeypatch.setattr("jupyter_gpusched.launch.spawn.SUPERVISOR", str(entry))
    bench.means = request.param
    return bench


@pytest.fixture
def with_cgroups(bench):
    bench.means = "cgroup"
    bench.launcher = bench.new_launcher(means=Means(cgroups=HERE.cgroups))
    return bench


@pytest.fixture
def bystander(tmp_path):
    """The user's own, with a tempting environment: another attempt's marker, this job's folder."""
    env = {"GPUSCHED_JOB_ID": "aaaaaaaa", "GPUSCHED_MARKER": "0" * 32, "HOME": str(tmp_path)}
    process = subprocess.Popen(["sleep", "600"], env=env, start_new_session=True)
    yield process
    process.kill()
    process.wait()


def lives(pid):
    return start_time(pid) is not None


def is_there(path):
    return os.path.exists(path)


# Children that ignore SIGTERM, INT and HUP: in the group, in a session of their own, left by their parent,
# and left by their parent without any environment.
TREE = """
import signal, subprocess, sys, time
ignore = "import signal, sys, os, time\\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\\n"
rest = "open(sys.argv[1] + str(os.getpid()), 'w').close(); time.sleep(600)"
sleeper = [sys.executable, "-c", ignore + rest, sys.argv[1]]
for n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)
orphan = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"
subprocess.Popen(sleeper)
subprocess.Popen(sleeper, start_new_session=True)
subprocess.run([sys.executable, "-c", orphan, *sleeper], start_new_session=True)
if len(sys.argv) > 2: subprocess.run(["env", "-i", sys.executable, "-c", orphan, *sleeper])
open(sys.argv[1] + "main", "w").close()
time.sleep(600)
"""


async def grown(bench, *, without_environment):
    """The tree above, once it is complete; its job, its folder and its pids."""
    there = bench.folder / "there"
    there.mkdir()
    job, folder = bench.python(TREE, f"{there}/", *(["all"] if without_environment else []))
    await bench.until(lambda: len(list(there.iterdir())) == 4 + without_environment)
    pids = [int(path.name) for path in there.iterdir() if path.name != "main"]
    return job, folder, [*pids, files.read_started(folder, 1)["main"]["pid"]]


async def test_each_means_ends_the_whole_tree_and_nothing_else(forced, bystander):
    # Without a subreaper, whoever drops his environment and his parent is beyond finding.
    job, folder, pids = await grown(forced, without_environment=forced.means != "marker")
    forced.launcher.stop(job, 1, "cancelled", 0.5, folder)
    end = await forced.last()
    assert [pid for pid in pids if lives(pid)] == []
    assert lives(bystander.pid)
    assert (end.exit.stopped, end.exit.signal, end.exit.survivors) == ("cancelled", signal.SIGKILL, ())


async def test_each_means_ends_what_a_killed_supervisor_left(forced, bystander):
    _, folder, pids = await grown(forced, without_environment=forced.means == "cgroup")
    os.kill(files.read_claim(folder, 1)["pid"], signal.SIGKILL)
    end = await forced.last()
    assert isinstance(end, Vanished)
    assert "nothing of it runs any more" in end.message
    assert [pid for pid in pids if lives(pid)] == []
    assert lives(bystander.pid)


@needs_cgroups
async def test_a_new_host_ends_what_a_killed_supervisor_left_in_its_cgroup(with_cgroups, bystander):
    """Also whoever dropped environment and parents, which no other means finds; and it tidies up."""
    job, folder, pids = await grown(with_cgroups, without_environment=True)
    claim = files.read_claim(folder, 1)
    await with_cgroups.launcher.close()
    os.kill(claim["pid"], signal.SIGKILL)
    with_cgroups.launcher = with_cgroups.new_launcher()
    with_cgroups.launcher.adopt(job, 1, folder)
    assert isinstance(await with_cgroups.last(), Vanished)
    assert [pid for pid in pids if lives(pid)] == []
    assert not is_there(claim["cgroup"])
    assert lives(bystander.pid)


async def test_without_a_cgroup_an_escapee_is_not_signalled_by_guess(bench):
    """Started without an environment, its parent gone, the supervisor killed: nothing proves whose it is."""
    _, folder, pids = await grown(bench, without_environment=True)
    os.kill(files.read_claim(folder, 1)["pid"], signal.SIGKILL)
    await bench.last()
    escaped = [pid for pid in pids if lives(pid)]
    assert len(escaped) == 1
    os.kill(escaped[0], signal.SIGKILL)


@needs_cgroups
async def test_an_attempt_lives_in_its_cgroup_which_goes_with_it(with_cgroups):
    job, folder = with_cgroups.python(
        "import subprocess; subprocess.Popen(['sleep', '600']); subprocess.run(['env', '-i', 'setsid', 'sleep', '600'])"
    )
    await with_cgroups.started()
    claim = files.read_claim(folder, 1)
    home = claim["cgroup"]
    assert Path(home).name == name_of(job.id, 1, claim["marker"])
    await with_cgroups.until(lambda: len(cgroup.members(home)) == 3)
    assert claim["pid"] not in cgroup.members(home)
    assert with_cgroups.launcher.pids(job.id, 1) == frozenset(cgroup.members(home))
    with_cgroups.launcher.stop(job, 1, "cancelled", 5.0, folder)
    await with_cgroups.last()
    await with_cgroups.until(lambda: not is_there(home))


@needs_cgroups
@pytest.mark.parametrize("cwd", ["no such folder", "."])
async def test_an_attempt_that_cannot_be_started_leaves_no_cgroup(with_cgroups, cwd):
    for number in range(10):
        job = a_job(f"none{number:04}")
        _, folder = with_cgroups.start("no-such-program", job=job, cwd=str(with_cgroups.folder / cwd))
        assert isinstance(await with_cgroups.last(job), LaunchFailed)
        assert not is_there(files.read_claim(folder, 1)["cgroup"])


@needs_cgroups
def test_a_child_is_born_in_its_cgroup():
    home = f"{cgroup.own_cgroup(*HERE.cgroups)}/gpusched-born-{os.getpid()}"
    assert fork_into(home) is None  # there is none, and then no child either
    assert cgroup.make(home)
    try:
        pid = fork_into(home)
        if pid == 0:
            os.execv("/bin/sleep", ["sleep", "600"])
        if pid is None:
            pytest.skip("this kernel, or a filter in front of it, lets no child be born in a cgroup")
        assert list(cgroup.members(home)) == [pid]
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    finally:
        cgroup.remove(home)


@needs_cgroups
async def test_cgroups_that_a_job_makes_in_its_own_end_with_it(with_cgroups):
    code = (
        "import os, sys, time\nhere = sys.argv[1] + open('/proc/self/cgroup').read().split('0::')[1].split()[0]\n"
        "os.mkdir(here + '/mine')\nopen(here + '/mine/cgroup.procs', 'w').write('0')\nprint('in', flush=True)\n"
        "time.sleep(600)"
    )
    job, folder = with_cgroups.python(code, HERE.cgroups.mount)
    await with_cgroups.until(lambda: with_cgroups.log(folder))
    home = files.read_claim(folder, 1)["cgroup"]
    assert len(with_cgroups.launcher.pids(job.id, 1)) == len(cgroup.members(home)) == 1
    with_cgroups.launcher.stop(job, 1, "cancelled", 5.0, folder)
    end = await with_cgroups.last()
    assert end.exit.signal == signal.SIGTERM
    await with_cgroups.until(lambda: not is_there(home))


@needs_cgroups
async def test_no_cgroup_is_left_by_many_short_attempts(with_cgroups):
    """The kernel may still count a process that has been collected."""
    homes = []
    for number in range(40):
        job = a_job(f"shrt{number:04}")
        _, folder = with_cgroups.start("true", job=job)
        await with_cgroups.last(job)
        homes.append(files.read_claim(folder, 1)["cgroup"])
    await with_cgroups.until(lambda: not [home for home in homes if is_there(home)])


@needs_cgroups
async def test_a_cgroup_that_cannot_be_entered_costs_nothing(bench, tmp_path):
    bench.launcher = bench.new_launcher(means=Means(cgroups=Hierarchy(str(tmp_path / "no such mount"), "/")))
    bench.start("sh", "-c", "exit 3")
    assert (await bench.last()).exit.code == 3


def test_a_claim_cannot_name_another_attempts_cgroup(tmp_path):
    marker = "abcdefghij"
    mine = tmp_path / name_of("aaaaaaaa", 1, marker)
    other = tmp_path / name_of("bbbbbbbb", 1, marker)
    for folder in (mine, other):
        folder.mkdir()
        (folder / "cgroup.procs").touch()
    assert cgroup_of({"cgroup": str(mine)}, "aaaaaaaa", 1, marker) == str(mine)
    disguise = tmp_path / "elsewhere" / mine.name
    disguise.parent.mkdir()
    disguise.symlink_to(other)
    for said in (str(other), f"{other}/../{other.name}", str(disguise), None, 7, "/", str(mine) + "/"):
        assert cgroup_of({"cgroup": said}, "aaaaaaaa", 1, marker) is None
    assert cgroup_of({"cgroup": str(mine)}, "aaaaaaaa", 2, marker) is None
    assert cgroup_of({"cgroup": str(mine)}, "aaaaaaaa", 1, None) is None


# Finding out


MODERN = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)
IN_CONTAINER = "900 800 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
ODD = "30 23 0:26 / /mnt/my\\040cgroups rw - cgroup2 cgroup2 rw\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (MODERN, Hierarchy("/sys/fs/cgroup", "/")),
        (HYBRID, Hierarchy("/sys/fs/cgroup/unified", "/")),
        (IN_CONTAINER, Hierarchy("/sys/fs/cgroup", "/docker/abc")),
        (ODD, Hierarchy("/mnt/my cgroups", "/")),
        ("22 1 0:20 / / rw - ext4 /dev/sda rw\n", None),
        ("", None),
    ],
)
def test_cgroups_are_found_where_they_are_mounted(text, found):
    assert find_hierarchy(text) == found


@pytest.mark.parametrize(
    ("membership", "unit"),
    [
        ("0::/system.slice/jupyter.service\n", "jupyter.service"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/jupyter.service\n", "jupyter.service"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-u5.scope\n", None),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", None),
        ("0::/user.slice/user-1000.slice/user@1000.service/init.scope\n", None),
        ("5:memory:/x\n1:name=systemd:/system.slice/jupyterhub.service\n0::/\n", "jupyterhub.service"),
        ("0::/\n", None),
        ("", None),
    ],
)
def test_the_service_that_a_server_belongs_to_is_told_from_sessions_and_scopes(membership, unit):
    assert service_of(membership) == unit


def left_trials():
    """Cgroups of trials that are over; other hosts may be trying theirs."""
    if HERE.cgroups is None:
        return []
    found = [path.name for path in Path(cgroup.own_cgroup(*HERE.cgroups)).glob("gpusched-trial-*")]
    return [name for name in found if start_time(int(name.split("-")[2])) is None]


def test_the_probe_leaves_nothing_behind(tmp_path):
    before = set(children(os.getpid()))
    found = probe(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert set(children(os.getpid())) == before
    assert found.holes == holes_in(tmp_path)
    assert left_trials() == []


@pytest.mark.parametrize("broken", ["make", "enter", "kill"])
def test_where_a_trial_fails_there_are_no_cgroups_and_the_reason_is_told(tmp_path, monkeypatch, broken):
    """As in a container whose cgroups cannot be written, with a stranger's cgroup, and on an old kernel."""
    reasons = {"make": "no cgroup can be made", "enter": "no process can be moved", "kill": "no cgroup.kill"}
    trial = tmp_path / "trial.py"
    text = Path(probing._TRIAL).read_text().replace("\nPATIENCE_S = 3.0", "\nPATIENCE_S = 0.2")
    text = text.replace("os.path.dirname(os.path.dirname(os.path.abspath(__file__)))", repr(str(RUNNER.parent)))
    trial.write_text(text.replace("\nmain()\n", f"\ncgroup.{broken} = lambda _: None\nmain()\n"))
    monkeypatch.setattr(probing, "_TRIAL", str(trial))
    found = probe(Path("/tmp"))
    assert found.cgroups is None
    assert reasons[broken] in found.no_cgroups or HERE.cgroups is None
    assert "by descent" in found.ending
    assert left_trials() == []


def test_cgroups_can_be_turned_off():
    assert probe(Path("/tmp"), cgroups=False).cgroups is None


# Services of systemd, by a systemctl and a systemd-run that stand in for the real ones


SERVICE = "0::/user.slice/user-0.slice/user@0.service/app.slice/jupyter.service\n"
WORKS = """#!{python}
import os, sys
words = sys.argv[1:]
open({log!r}, "a").write(" ".join(words[:words.index("--")]) + chr(10))
words = words[words.index("--") + 1:]
if words == ["cat", "/proc/self/cgroup"]:
    print("0::/user.slice/user-0.slice/user@0.service/app.slice/run-u7.scope")
else:
    os.execvp(words[0], words)
"""
FAILS = "#!/bin/sh\necho 'Failed to connect to bus: No medium found' >&2\nexit 1\n"
STAYS = '#!/bin/sh\nwhile test "$1" != --; do shift; done\nshift\nprintf \'' + SERVICE.replace("\n", "\\n") + "'\n"


@pytest.fixture
def in_service(tmp_path, monkeypatch):
    """A process that systemd runs as a service; ``program(text)`` puts a ``systemd-run`` on its PATH."""
    booted, proc, path = tmp_path / "systemd", tmp_path / "proc", tmp_path / "bin"
    for folder in (booted, proc, path):
        folder.mkdir()
    monkeypatch.setattr(probing, "_SYSTEMD", booted)
    (proc / "cgroup").write_text(SERVICE)
    (proc / "mountinfo").write_text("")
    environ = {"PATH": f"{path}:{os.environ['PATH']}"}
    monkeypatch.setenv("PATH", environ["PATH"])

    def program(text, kill_mode="control-group"):
        for name, content in (("systemd-run", text), ("systemctl", f"#!/bin/sh\necho {kill_mode}\n")):
            if content is not None:
                (path / name).write_text(content.replace("{python}", sys.executable).replace("{log!r}", repr(str(log))))
                (path / name).chmod(0o755)
        return probe(tmp_path, environ, proc=proc)

    log = tmp_path / "asked"
    program.log = log
    return program


def test_a_service_is_left_by_a_scope_where_a_trial_works(in_service):
    found = in_service(WORKS)
    assert found.scope[:3] == ("systemd-run", "--user", "--scope")
    assert (found.ends_with_server, found.notices) == (None, [])


@pytest.mark.parametrize(("text", "why"), [(FAILS, "Failed to connect to bus"), (STAYS, "left it inside")])
def test_where_the_trial_fails_it_is_said_that_jobs_end_with_the_server_and_what_to_do(in_service, text, why):
    found = in_service(text)
    assert found.scope is None
    assert "jupyter.service" in found.ends_with_server
    assert why in found.ends_with_server
    assert "enable-linger" in found.notices[0]
    assert "KillMode=process" in found.notices[0]


def test_a_service_without_systemd_run_ends_its_jobs(in_service, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    found = in_service(None)
    assert "systemd-run" in found.ends_with_server


def test_a_service_that_ends_only_its_main_process_need_not_be_left(in_service):
    found = in_service(FAILS, kill_mode="process")
    assert (found.scope, found.ends_with_server) == (None, None)


async def test_supervisors_are_started_in_the_scope_and_followed_as_ever(in_service, bench):
    found = in_service(WORKS)
    in_service.log.unlink()
    bench.launcher = bench.new_launcher(means=found)
    job, folder = bench.start("sh", "-c", "echo there; sleep 600")
    await bench.until(lambda: bench.log(folder))
    assert in_service.log.read_text().startswith("--user --scope --quiet --collect")
    bench.launcher.stop(job, 1, "cancelled", 5.0, folder)
    assert (await bench.last()).exit.stopped == "cancelled"


async def test_a_scope_that_fails_later_fails_no_job(in_service, bench):
    """The user's bus went away after the trial."""
    found = in_service(WORKS)
    in_service(FAILS)
    bench.launcher = bench.new_launcher(means=found)
    for number in (1, 2):
        job, folder = bench.start("echo", "ran", job=a_job(f"job{number:05}"))
        end = await bench.last(job)
        assert isinstance(end, Exited), end
        assert bench.log(folder) == "ran\n"
    assert not bench.events_of(LaunchFailed)


# Ends by the kernel for lack of host memory


COUNTER = "low 0\nhigh 0\nmax 3\noom 1\noom_kill {}\n"
VICTIM = """
import os, signal, sys
open(sys.argv[1], "w").write(sys.argv[2])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("after", "reason"), [(3, "host_oom"), (2, "signal_9")])
async def test_an_end_by_the_memory_limit_of_the_group_is_recognised(bench, tmp_path, after, reason):
    counter = tmp_path / "memory.events"
    counter.write_text(COUNTER.format(2))
    bench.launcher = bench.new_launcher(means=Means(oom_counters=(str(counter), "/no/such/file")))
    bench.python("import time; time.sleep(0.5)\n" + VICTIM, str(counter), COUNTER.format(after))
    end = await bench.last()
    assert (end.exit.signal, end.exit.reason) == (9, reason)
    assert "host memory" in end.exit.message
    assert "it had used at most" in end.exit.message


async def test_a_killed_job_of_a_limited_group_is_not_blamed_when_it_was_stopped(bench, tmp_path):
    counter = tmp_path / "memory.events"
    counter.write_text(COUNTER.format(0))
    bench.launcher = bench.new_launcher(means=Means(oom_counters=(str(counter),)))
    job, folder = bench.start("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    await bench.until(lambda: bench.log(folder))
    counter.write_text(COUNTER.format(1))
    bench.launcher.stop(job, 1, "cancelled", 0.0, folder)
    assert (await bench.last()).exit.reason == "cancelled"


# Stops


async def test_a_cancel_with_less_grace_shortens_the_end_of_a_job_over_its_time(bench):
    """The time limit has begun to end it with its own, long grace; its user wants it gone now."""
    code = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    job, folder = bench.start("sh", "-c", code, job=a_job(time_limit_s=0.5, grace_s=600.0))
    await bench.until((folder / "attempt-1/stop").exists)
    begun = time.monotonic()
    bench.launcher.stop(job, 1, "cancelled", 0.2, folder)
    end = await bench.last()
    assert (end.exit.stopped, end.exit.signal) == ("timeout", signal.SIGKILL)
    assert time.monotonic() - begun < 15


BORN_MEANWHILE = f"""
import os, sys
sys.path.append({str(RUNNER.parent)!r})
from runner import supervision
real, looks = supervision.tree, []
def tree(*words):
    looks.append(1)
    found = real(*words)
    return {{p: s for p, s in found.items() if supervision.parent(p) == os.getpid()}} if len(looks) == 1 else found
supervision.tree = tree
supervision.main()
"""


async def test_whoever_is_forked_while_the_signals_are_sent_gets_one_too(bench, tmp_path, monkeypatch):
    """The first look at the tree misses the child, as one that comes a moment later: nobody sits out the grace."""
    entry = tmp_path / "supervise.py"
    entry.write_text(BORN_MEANWHILE)
    monkeypatch.setattr("jupyter_gpusched.launch.spawn.SUPERVISOR", str(entry))
    job, folder = bench.start("sh", "-c", "sleep 600 & echo ready; wait", job=a_job(grace_s=600.0))
    await bench.until(lambda: bench.log(folder))
    bench.launcher.stop(job, 1, "cancelled", 600.0, folder)
    end = await bench.last()
    assert (end.exit.stopped, end.exit.signal) == ("cancelled", signal.SIGTERM)


async def test_what_a_job_starts_to_save_its_work_is_left_alone_in_the_grace(bench):
    saved = bench.folder / "saved"
    helper = f"import time; time.sleep(1.0); open({str(saved)!r}, 'w').write('all of it')"
    code = (
        "import signal, subprocess, sys, time\n"
        f"def save(*_): subprocess.run([sys.executable, '-c', {helper!r}]); sys.exit(0)\n"
        "signal.signal(15, save)\nprint('ready', flush=True)\ntime.sleep(600)"
    )
    job, folder = bench.python(code, job=a_job(grace_s=30.0))
    await bench.until(lambda: bench.log(folder))
    bench.launcher.stop(job, 1, "cancelled", 30.0, folder)
    end = await bench.last()
    assert saved.read_text() == "all of it"
    assert end.exit.code == 0
