"""Cells by a prepared process: a fork must look as a fresh start does, from inside and from outside."""

import json
import os
import re
import select
import signal
import sys
from dataclasses import replace

import pytest

from jupyter_gpusched.core.asked import Member
from jupyter_gpusched.core.messages import Exited
from jupyter_gpusched.core.model import Kind
from jupyter_gpusched.core.quantities import Mib
from jupyter_gpusched.launch import attempt as files
from jupyter_gpusched.launch import prepared
from jupyter_gpusched.runner.tree import bearers, children, read_proc, start_time

from .conftest import a_grant, a_job

OBSERVE = """
import builtins, faulthandler, gc, json, locale, os, resource, signal, subprocess, sys, threading, time, warnings
from pathlib import Path

def status(*names):
    return [line for line in Path("/proc/self/status").read_text().splitlines() if line.split(":")[0] in names]

def stream(file):
    told = {name: str(getattr(file, name, None)) for name in
            ("encoding", "errors", "newlines", "line_buffering", "write_through", "name", "mode", "closed")}
    return {**told, "type": type(file).__name__, "tty": file.isatty()}

def descriptors():
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            pass
    return {name: place for name, place in found.items() if not place.startswith("/proc")}

umask = os.umask(0)
os.umask(umask)
seen = {
    "sys.path": sys.path,
    "argv": [sys.argv, sys.orig_argv],
    "flags": str(sys.flags),
    "python": [sys.executable, sys.prefix, sys.base_prefix, sys.exec_prefix],
    "environ": dict(os.environ),
    "as others see it": [
        sorted(filter(None, Path("/proc/self/environ").read_text().split("\\0"))),
        list(filter(None, Path("/proc/self/cmdline").read_text().split("\\0"))),
        Path("/proc/self/comm").read_text(),
    ],
    "as children see it": sorted(subprocess.run(["env"], capture_output=True, text=True).stdout.splitlines()),
    "cwd": [os.getcwd(), str(Path().absolute())],
    "descriptors": descriptors(),
    "signals": {number: str(signal.getsignal(number)).split(" at ")[0] for number in signal.valid_signals()},
    "signals, by the kernel": status("SigBlk", "SigIgn", "SigCgt", "NoNewPrivs", "Seccomp"),
    "umask": umask,
    "main": [__name__, __file__, sys.modules["__main__"].__file__, sorted(k for k in globals() if k.startswith("__"))],
    "threads": [sorted(t.name for t in threading.enumerate()), threading.current_thread() is threading.main_thread(),
                threading.get_native_id() == os.getpid(), threading.main_thread().native_id == os.getpid()],
    "session": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
    "streams": [stream(file) for file in
                (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__)],
    "standard input": sys.__stdin__.read(),
    "hooks": [str(hook).split(" at ")[0] for hook in
              (sys.excepthook, sys.unraisablehook, threading.excepthook, sys.breakpointhook, builtins.input)],
    "finders": [str(finder).split(" at ")[0] for finder in (*sys.meta_path, *sys.path_hooks)],
    "limits": [resource.getrlimit(number) for number in range(16)],
    "scheduling": [os.nice(0), sorted(os.sched_getaffinity(0)), Path("/proc/self/oom_score_adj").read_text()],
    "locale": [locale.setlocale(locale.LC_ALL), sys.getfilesystemencoding(), time.tzname],
    "interpreter": [sys.getrecursionlimit(), sys.getswitchinterval(), gc.isenabled(), gc.get_threshold(),
                    gc.get_freeze_count(), faulthandler.is_enabled(), sys.gettrace(), sys.getprofile()],
    "warnings": [str(each) for each in warnings.filters],
    "depth": len(__import__("inspect").stack()),
    "ipython": [type(get_ipython()).__name__, get_ipython().execution_count, get_ipython().profile_dir.location],
    "modules": sorted(name for name in sys.modules if not name.startswith("_gpusched")),
}
print("SEEN" + json.dumps(seen, default=str))
"""

MODULES_AHEAD = {"cloudpickle", "IPython", "_socket"}
"""Loaded in a prepared process (with what they need of the standard library), whether a cell needs them or not."""


class Cells:
    """The workbench for cells: the first is started anew, later ones by the process that is prepared meanwhile."""

    def __init__(self, bench):
        self.bench = bench
        self.count = 0
        bench.launcher = bench.new_launcher(prepared=1)
        self.env = {"PATH": os.environ["PATH"], "HOME": str(bench.folder), "IPYTHONDIR": str(bench.folder / "ipython")}

    def start(self, source, *, job=None, kind=Kind.CELL, **work):
        self.count += 1
        job = job or a_job(f"cell{self.count:04}", kind=kind)
        return self.bench.start(job=job, source=source, **{"env": self.env, "python": sys.executable, **work})

    async def run(self, source, **work):
        """Run a cell to its end; returns its last event, its log and its folder."""
        job, folder = self.start(source, **work)
        end = await self.bench.last(job, timeout=60)
        return end, self.bench.log(folder), folder

    @property
    def nurseries(self):
        return [kept.nursery for kept in self.bench.launcher.prepared._kept.values()]

    async def prepared(self):
        """Wait until a spare is there; its pid."""

        def found():
            doors = [door for nursery in self.nurseries for door, _ in nursery._spares]
            return doors and len(select.select(doors, [], [], 0)[0]) == len(doors)

        await self.bench.until(found, timeout=60)
        return [pid for nursery in self.nurseries for pid in children(nursery._process.pid)]

    async def warmed(self, source="pass", **work):
        await self.run(source, **work)
        return await self.prepared()


@pytest.fixture
def cells(bench, monkeypatch):
    monkeypatch.setattr(prepared, "START_AFTER_S", 0.0)
    return Cells(bench)


def by(folder):
    return files.read_claim(folder, 1)["pid"]


def without(text, *words):
    for number, word in enumerate(words):
        text = text.replace(word, f"<{number}>")
    return text


def seen(log, folder):
    claim = files.read_claim(folder, 1)
    text = without(log[log.index("SEEN") + 4 :], folder.name, claim["marker"])
    return json.loads(text)


SHARE = replace(a_grant("cell0001"), total=Mib(8192))


@pytest.mark.parametrize("grants", [(), (SHARE,)], ids=["without a card", "with a share of a card"])
async def test_a_fork_looks_as_a_fresh_start_does(cells, grants):
    gpus = len(grants)
    jobs = [a_job(f"cell000{n}", kind=Kind.CELL, gpus=gpus, grants=grants) for n in (1, 2)]
    _, cold, first = await cells.run(OBSERVE, job=jobs[0])
    spares = await cells.prepared()
    _, warm, second = await cells.run(OBSERVE, job=jobs[1])
    assert by(first) not in spares
    assert by(second) in spares
    fresh, forked = seen(cold, first), seen(warm, second)
    more = set(forked.pop("modules")) - set(fresh.pop("modules"))
    for what in fresh:
        assert forked[what] == fresh[what], what
    assert ("GPUSCHED_CAP" in fresh["environ"], "_AfterTorch" in str(fresh["finders"])) == (bool(grants), bool(grants))
    assert {name.partition(".")[0] for name in more} - MODULES_AHEAD - set(sys.stdlib_module_names) == set()


async def test_what_is_prepared_after_a_job_with_a_card_sees_none_and_has_none_open(cells):
    """Whatever a library loaded there would look for: only the fork that becomes a job is shown its card."""
    job = a_job("cell0001", kind=Kind.CELL, gpus=1, grants=(SHARE,))
    _, log, _ = await cells.run("import os; print('card', os.environ['CUDA_VISIBLE_DEVICES'])", job=job)
    assert f"card {SHARE.gpu}" in log
    spares = await cells.prepared()
    (nursery,) = cells.nurseries
    for pid in (nursery._process.pid, *spares):
        environ = dict(word.split(b"=", 1) for word in read_proc(f"{pid}/environ").split(b"\0") if word)
        assert environ[b"CUDA_VISIBLE_DEVICES"] == b""
        assert SHARE.gpu.encode() not in b"".join(environ.values())
        assert not re.search(rb"libcuda|libcudart|libnvidia|/dev/nvidia", read_proc(f"{pid}/maps"))
        opened = [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
        assert not [place for place in opened if place.startswith("/dev/nvidia")]


async def test_its_own_environment_is_what_everybody_sees(cells):
    spares = await cells.warmed()
    job, folder = cells.start("import time; print('here', flush=True); time.sleep(600)")
    await cells.bench.until(lambda: "here" in cells.bench.log(folder), timeout=60)
    claim = files.read_claim(folder, 1)
    assert claim["pid"] in spares
    main = files.read_started(folder, 1)["main"]["pid"]
    assert list(bearers(f"GPUSCHED_MARKER={claim['marker']}".encode())) == [main]
    assert b"\0ROOM=" not in read_proc(f"{main}/environ")
    assert b"GPUSCHED_MARKER" not in read_proc(f"{claim['pid']}/environ")
    cells.bench.launcher.stop(job, 1, "cancelled", 5.0, folder)
    await cells.bench.last(job)


async def test_its_children_are_found_after_its_supervisor_was_killed(cells):
    spares = await cells.warmed()
    source = (
        "import os, time\n"
        "if os.fork() == 0:\n    os.setsid()\n    print('child', flush=True)\n    time.sleep(600)\n"
        "os.system('setsid sleep 600 &')\nprint('main', flush=True)\ntime.sleep(600)"
    )
    job, folder = cells.start(source)
    await cells.bench.until(lambda: {"child", "main"} <= set(cells.bench.log(folder).split()), timeout=60)
    claim = files.read_claim(folder, 1)
    assert claim["pid"] in spares
    marker = f"GPUSCHED_MARKER={claim['marker']}".encode()
    assert len(bearers(marker)) == 3
    os.kill(claim["pid"], signal.SIGKILL)
    await cells.bench.last(job)
    assert bearers(marker) == {}


RANDOM = (
    "import random, uuid, tempfile, secrets, multiprocessing as m\n"
    "print(random.random(), uuid.uuid4(), uuid.uuid1(), tempfile.mktemp(), secrets.token_hex(8),"
    " m.current_process().authkey.hex())"
)


async def test_no_two_forks_draw_the_same_numbers(cells):
    await cells.warmed(RANDOM)
    drawn = []
    for _ in range(2):
        spares = await cells.prepared()
        _, log, folder = await cells.run(RANDOM)
        assert by(folder) in spares
        drawn.append(log.split())
    assert all(one != other for one, other in zip(*drawn, strict=True))


WORKERS = """
import multiprocessing as m
def f(x):
    return x + 1
print(m.get_context("spawn").Pool(1).map(f, [41]), m.get_context("fork").Pool(1).map(f, [1]))
"""


@pytest.mark.parametrize(
    ("source", "code", "words"),
    [
        ("1/0", 1, "ZeroDivisionError: division by zero"),
        ("raise SystemExit(7)", 7, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", 1, "KeyboardInterrupt"),
        ("import atexit; atexit.register(print, 'at the end')", 0, "at the end"),
        (
            WORKERS,
            0,
            "[42] [2]",
        ),
        ("words = !echo shell\n%time print(words)", 0, "['shell']"),
    ],
)
async def test_it_runs_and_ends_as_a_fresh_one(cells, source, code, words):
    cold, told, _ = await cells.run(source)
    spares = await cells.prepared()
    warm, log, folder = await cells.run(source)
    assert by(folder) in spares
    assert (warm.exit.code, warm.exit.signal, warm.exit.reason) == (cold.exit.code, cold.exit.signal, cold.exit.reason)
    assert warm.exit.code == code
    assert words in log
    assert len(log.splitlines()) == len(told.splitlines())


async def test_a_signal_ends_it_as_that_signal(cells):
    await cells.warmed()
    end, _, _ = await cells.run("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert (end.exit.code, end.exit.signal) == (None, signal.SIGSEGV)


@pytest.mark.parametrize("change", ["environment", "folder", "kind"])
async def test_what_is_not_alike_is_started_anew(cells, tmp_path, change):
    spares = await cells.warmed()
    other = tmp_path / "other"
    other.mkdir()
    work = {
        "environment": {"env": cells.env | {"MORE": "1"}},
        "folder": {"cwd": str(other)},
        "kind": {"kind": Kind.COMMAND, "argv": ("true",)},
    }[change]
    end, _, folder = await cells.run("pass", **work)
    assert end.exit.code == 0
    assert by(folder) not in spares


async def test_elements_of_a_sweep_are_alike_and_each_has_its_own_values(cells):
    told = (
        "import os; print({n: v for n, v in os.environ.items() if n.startswith(('GPUSCHED_SWEEP', 'GPUSCHED_ARRAY'))})"
    )
    first, second = (
        a_job(f"cell000{n}", kind=Kind.CELL, member=Member("aaaaaaaa", n), sweep=(("lr", 0.1 * n),)) for n in (1, 2)
    )
    await cells.run(told, job=first)
    spares = await cells.prepared()
    _, log, folder = await cells.run(told, job=second)
    assert by(folder) in spares
    seen = {"GPUSCHED_SWEEP_LR": "0.2", "GPUSCHED_ARRAY_ID": "aaaaaaaa", "GPUSCHED_ARRAY_INDEX": "2"}
    assert json.loads(log.replace("'", '"')) == seen


async def test_an_installed_package_is_seen_at_once(cells, tmp_path):
    """What was loaded may be of the version before: a change on disk is the end of what was prepared."""
    site = tmp_path / "site"
    site.mkdir()
    cells.env["PYTHONPATH"] = str(site)
    spares = await cells.warmed()
    nursery = cells.nurseries[0]._process.pid
    (site / "sitecustomize.py").write_text("print('customised')\n")
    end, log, folder = await cells.run("import sitecustomize; print(sitecustomize.__file__)")
    assert end.exit.code == 0
    assert log.split() == ["customised", str(site / "sitecustomize.py")]
    assert by(folder) in spares  # it is the same supervisor, but it has executed Python
    await cells.bench.until(lambda: start_time(nursery) is None)


@pytest.mark.parametrize(
    "customised",
    [
        "import threading, time; threading.Thread(target=time.sleep, args=[600], daemon=True).start()",
        "import signal; signal.signal(signal.SIGUSR1, print)",
        "import os; descriptor = os.open('/dev/null', os.O_RDONLY)",
        "import sys, types; sys.modules['torch'] = types.ModuleType('torch')",
        "raise SystemExit(3)",
    ],
)
async def test_what_must_not_be_forked_is_not_prepared(cells, tmp_path, customised):
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(f"import os, sys\nif '--prepared' in sys.orig_argv:\n    {customised}\n")
    cells.env["PYTHONPATH"] = str(site)
    await cells.run("pass")
    await cells.bench.until(lambda: cells.nurseries)
    (nursery,) = cells.nurseries
    await cells.bench.until(lambda: nursery._process is None or nursery._process.poll() is not None, timeout=60)
    end, log, _ = await cells.run("print('ran')")
    assert (end.exit.code, log) == (0, "ran\n")


async def test_the_least_used_gives_way_and_an_idle_one_ends(cells, tmp_path, monkeypatch):
    await cells.warmed()
    (first,) = cells.nurseries
    pid = first._process.pid
    other = tmp_path / "other"
    other.mkdir()
    await cells.run("pass", cwd=str(other))
    await cells.bench.until(lambda: not cells.bench.launcher.prepared._coming)
    assert cells.nurseries == [first]  # which was used a moment ago
    monkeypatch.setattr(prepared, "KEPT_S", 0.0)
    monkeypatch.setattr(prepared, "IDLE_S", 0.5)
    await cells.run("pass", cwd=str(other))
    await cells.bench.until(lambda: start_time(pid) is None)
    await cells.bench.until(lambda: not cells.nurseries)
    assert len(cells.bench.events_of(Exited)) == 3


async def test_nothing_is_prepared_where_none_is_wanted(cells):
    cells.bench.launcher = cells.bench.new_launcher()
    await cells.run("pass")
    assert not cells.bench.launcher.prepared._coming
    assert not cells.nurseries
