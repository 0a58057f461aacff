"""The cooperative cap: PyTorch is asked to stay within the promise, in every kind of job, and no job is broken by it.

The torch of these tests is a module that writes down the call.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest

from jupyter_gpusched.launch.orders import STARTUP

TORCH = """
import json, os
def _say(*call):
    with open(os.environ["TORCH_CALLS"], "a") as file:
        file.write(json.dumps(call) + "\\n")
"""
CUDA = """
from torch import _say
_queued, _opened, _current = [], [], [0]
def device_count(): return len([one for one in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if one])
def is_initialized(): return bool(_opened)
def _lazy_call(call): _queued.append(call)
def current_device(): return _current[0]
def init():
    if not _opened:
        _opened.append(True)
        [call() for call in _queued]
def set_device(device):
    init()
    _current[0] = device
def set_per_process_memory_fraction(share, device): _say(share, device)
import os
"""
SHARE = round((4096 - 512) / 24564, 4)
TRAIN = "import torch.cuda; torch.cuda.init()"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on the job's PYTHONPATH with a torch, and the file of its calls."""
    package = tmp_path / "site" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(TORCH + "from . import cuda\n")
    (package / "cuda.py").write_text(CUDA)
    monkeypatch.setenv("TORCH_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}:{os.environ.get('PYTHONPATH', '')}".rstrip(":"))
    return tmp_path / "site"


def calls(site):
    path = site.parent / "calls"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def python(script=TRAIN, *options):
    return [sys.executable, *options, "-c", script]


def succeeded(client, spec):
    job_id = client.submit(spec)
    view = client.wait(job_id)
    assert view["phase"] == "succeeded", client.log(job_id).decode()
    return view, client.log(job_id).decode()


CHILD = """
import multiprocessing, sys, importlib.util
def train():
    import torch.cuda
    torch.cuda.init()
if __name__ == "__main__":
    assert importlib.util.find_spec("torch")
    child = multiprocessing.get_context("spawn").Process(target=train)
    child.start(); child.join(); sys.exit(child.exitcode)
"""


def test_a_script_and_its_spawned_children_are_capped_and_looking_for_torch_is_not_importing_it(site, client, command):
    script = site.parent / "train.py"
    script.write_text(CHILD)
    view, _ = succeeded(client, command() | {"argv": None, "path": str(script), "python": sys.executable, "vram": "4G"})
    assert calls(site) == [[SHARE, 0]]
    assert view["cap"] == "cooperative"


def test_a_command_with_two_cards_is_capped_on_each(site, client, command):
    succeeded(client, command(*python(), vram="4G", gpus=2))
    assert calls(site) == [[SHARE, 0], [SHARE, 1]]


@pytest.mark.parametrize(
    ("rank", "lines", "capped"),
    [
        ("1", TRAIN, [1]),
        ("", "import torch.cuda; torch.cuda.set_device(1); torch.cuda.set_device(1)", [1]),
        ("x", TRAIN, []),
        ("1", "import torch.cuda", []),
    ],
    ids=["its rank says which", "it chooses one", "nobody knows", "it uses none"],
)
def test_a_worker_with_several_cards_in_sight_opens_none_but_its_own(tmp_path, site, monkeypatch, rank, lines, capped):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    path = f"{STARTUP}:{site}"
    run_hook(tmp_path, {**os.environ, "PYTHONPATH": path, "LOCAL_RANK": rank, "GPUSCHED_CAP": "0.25,0.5"}, lines)
    assert calls(site) == [[(0.25, 0.5)[device], device] for device in capped]


def test_a_cell_a_function_and_a_notebook_are_capped(site, client, command):
    def train():
        import torch.cuda

        torch.cuda.init()

    base = {key: value for key, value in command().items() if key != "argv"} | {"vram": "4G", "python": sys.executable}
    succeeded(client, base | {"source": TRAIN})
    payload = base64.b64encode(cloudpickle.dumps((train, (), {}))).decode()
    succeeded(client, base | {"kind": "function", "payload": payload})
    cell = {"cell_type": "code", "source": TRAIN, "metadata": {}, "outputs": [], "execution_count": None, "id": "a"}
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    note = site.parent / "note.ipynb"
    note.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": [cell]}))
    succeeded(client, base | {"path": str(note)})
    assert calls(site) == [[SHARE, 0]] * 3


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"cap": False}, "off"),
        ({"env": {"GPUSCHED_CAP": "off"}}, "cooperative"),
        ({"vram": None}, None),
        ({"gpus": 0, "vram": None}, None),
    ],
    ids=["--no-cap", "GPUSCHED_CAP=off", "a whole card", "no card"],
)
def test_there_is_no_cap_where_none_is_wanted_or_needed(site, client, command, fields, shown):
    spec = command(*python(), vram="4G")
    env = spec["env"] | fields.get("env", {})
    view, _ = succeeded(client, {**spec, **fields, "env": env})
    assert calls(site) == []
    assert view["cap"] == shown


def test_the_users_own_sitecustomize_runs_in_either_order_and_the_path_is_the_users(site, client, command):
    (site / "sitecustomize.py").write_text("import sys; sys.flags_of_the_user = 7\n")
    show = "import sys, json; print(sys.flags_of_the_user, sys.modules['sitecustomize'].__file__)\n" + TRAIN
    _, log = succeeded(client, command(*python(show), vram="4G"))
    assert log == f"7 {site / 'sitecustomize.py'}\n"
    assert calls(site) == [[SHARE, 0]]
    _, log = succeeded(
        client, command(*python("import sys; print([p for p in sys.path if 'startup' in p])"), vram="4G")
    )
    assert log == "[]\n"


def test_a_job_that_submits_a_job_does_not_hand_its_own_cap_on(site, client, command):
    spec = command(*python(), vram="8G")
    spec["env"] |= {"GPUSCHED_CAP": "0.0123", "PYTHONPATH": f"{STARTUP}:{spec['env']['PYTHONPATH']}"}
    succeeded(client, spec)
    assert calls(site) == [[round((8192 - 512) / 24564, 4), 0]]


def test_interpreters_that_ignore_the_environment_run_without_the_cap(site, client, command):
    for option in ("-I", "-S", "-E"):
        _, log = succeeded(client, command(*python("print('fine')", option), vram="4G"))
        assert log == "fine\n"
    assert calls(site) == []


@pytest.mark.parametrize(
    "broken",
    [
        "raise ImportError('no CUDA here')", "set_per_process_memory_fraction = None", "def is_initialized(): 1 / 0",
        "def _lazy_call(call): raise RuntimeError", "del device_count", "del _lazy_call, is_initialized",
        "del set_device",
    ],
)  # fmt: skip
def test_whatever_fails_in_torch_breaks_no_job(site, client, command, broken):
    (site / "torch" / "cuda.py").write_text(CUDA + broken + "\n")
    (site / "torch" / "__init__.py").write_text(TORCH + "try:\n    from . import cuda\nexcept ImportError:\n    pass\n")
    _, log = succeeded(client, command(*python("import torch; print('fine')"), vram="4G"))
    assert log == "fine\n"
    assert calls(site) == ([[SHARE, 0]] if broken.startswith("del _lazy") else [])


def run_hook(tmp_path, env, code="import sys; print(len(sys.path))"):
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": STARTUP, **env}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("value", ["", "off", "x,y", "-1", "nan", "2", "0.5,,"])
def test_a_value_that_makes_no_sense_is_no_cap(tmp_path, value):
    (tmp_path / "torch.py").write_text("cuda = None\n")
    found = run_hook(
        tmp_path, {"GPUSCHED_CAP": value}, "import sys; print([f for f in sys.meta_path if 'Torch' in str(f)])"
    )
    assert found == "[]\n"


def test_two_versions_of_the_hook_on_the_path_end(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text(Path(STARTUP, "sitecustomize.py").read_text())
    assert run_hook(tmp_path, {"PYTHONPATH": f"{STARTUP}:{other}:{STARTUP}", "GPUSCHED_CAP": "0.5"})
