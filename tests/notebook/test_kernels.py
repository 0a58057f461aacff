"""What a person does in a notebook, in real kernels, with nothing started by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_notebook
from waiting import wait_for

from jupyter_gpusched.client import Client

LOAD = "%load_ext jupyter_gpusched"


@pytest.fixture(autouse=True)
def simulated(monkeypatch):
    monkeypatch.setenv("GPUSCHED_SIMULATE", "2x24564M")


def run(folder: Path, *cells: str, errors: bool = False) -> Any:
    """Execute cells in a fresh kernel that works in ``folder``; returns the notebook."""
    notebook = new_notebook(cells=[new_code_cell(source) for source in (LOAD, *cells)])
    NotebookClient(notebook, timeout=90, allow_errors=errors, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def text(cell: Any) -> str:
    """What a cell shows as plain text."""
    parts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    return "".join(parts)


def _kind(output: Any) -> str:
    rich = (mime for mime in ("image/png", "text/html") if mime in output.get("data", {}))
    return next(rich, output.get("name", output.output_type))


def error(cell: Any) -> Any:
    return next(output for output in cell.outputs if output.output_type == "error")


def test_a_cell_becomes_a_job_and_comes_back_with_its_output_and_results(tmp_path):
    notebook = run(
        tmp_path,
        "factor = 6\ndef times(x):\n    return x * factor",
        "%%gpujob --vram 4G --out answer\n"
        "import os\nanswer = times(7)\nprint('card', os.environ['CUDA_VISIBLE_DEVICES'])",
        "job = _\njob.wait().status",
        "job.result()",
        "print(job.logs())",
    )
    card = notebook.cells[2].outputs[0]
    assert set(card.data) >= {"application/vnd.gpusched.job+json", "text/html", "text/plain"}
    job_id = card.data["application/vnd.gpusched.job+json"]["id"]
    assert job_id in card.data["text/plain"]
    assert job_id in card.data["text/html"]
    assert text(notebook.cells[3]) == "'succeeded'"
    assert text(notebook.cells[4]) == "{'answer': 42}"
    assert "card GPU-" in text(notebook.cells[5])


def test_plots_tables_progress_bars_and_errors_are_shown_in_order(tmp_path):
    notebook = run(
        tmp_path,
        "%%gpujob --vram 1G\n"
        "import matplotlib.pyplot as plt, pandas as pd\n"
        "from tqdm import tqdm\n"
        "print('first')\n"
        "plt.plot([1, 2]); plt.show()\n"
        "for _ in tqdm(range(50), desc='épochs'): pass\n"
        "display(pd.DataFrame({'a': [1]}))\n"
        "1 / 0",
        "job = _\njob.wait().status",
        "job.show()",
    )
    assert text(notebook.cells[2]) == "'failed'"
    outputs = notebook.cells[3].outputs
    kinds = [
        next((m for m in ("image/png", "text/html") if m in o.get("data", {})), o.get("name", o.output_type))
        for o in outputs
    ]
    assert kinds == ["stdout", "image/png", "stderr", "text/html", "error"] or kinds[:4] == [
        "stdout", "image/png", "stderr", "text/html",
    ]  # fmt: skip
    assert "100%" in outputs[2].text
    shown = json.dumps(outputs[4])
    assert "ZeroDivisionError" in shown


def test_folder_and_environment_are_those_at_submission(tmp_path):
    """Case 4: %cd and %env count; what happens in the kernel afterwards does not."""
    (tmp_path / "nb").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.csv").write_text("content")
    notebook = run(
        tmp_path / "nb",
        "%gpujob --gpus 2 --quiet ! while [ ! -e ../gate ]; do sleep 0.05; done",
        "%cd ../data",
        "%env STAGE=one",
        "%%gpujob --gpus 2\nimport os; print(os.getcwd(), os.environ['STAGE'], open('x.csv').read())",
        "job = _\njob.status",
        "%env STAGE=two",
        "open('../gate', 'w').close()",
        "print(job.wait().logs())",
    )
    assert text(notebook.cells[5]) == "'queued'"
    assert text(notebook.cells[8]).strip() == f"{tmp_path / 'data'} one content"


def test_a_folder_that_is_gone_at_the_start_fails_the_job_with_its_path(tmp_path, host, command, client):
    folder = tmp_path / "gone"
    folder.mkdir()
    blockers = client.submit_many([command("sleep", "60", vram="24564M")] * 2)
    job_id = client.submit(command("true", cwd=str(folder)))
    folder.rmdir()
    for blocker in blockers:
        client.cancel(blocker, grace="0s")
    view = client.wait(job_id)
    assert (view["phase"], view["reason"]) == ("failed", "cwd_missing")
    assert str(folder) in view["message"]


def test_what_cannot_travel_stops_run_all_and_queues_nothing(tmp_path):
    """Case 8, as a user meets it: a readable refusal that names variable and type."""
    notebook = run(
        tmp_path,
        "import threading\nlock = threading.Lock()",
        "%%gpujob --vram 1G\nprint(lock)",
        "import jupyter_gpusched as gs\nlen(gs.jobs())",
        errors=True,
    )
    refused = error(notebook.cells[2])
    assert "lock" in refused.evalue
    assert text(notebook.cells[3]) == "0"
    with pytest.raises(CellExecutionError):
        run(tmp_path, "import threading\nlock = threading.Lock()", "%%gpujob --vram 1G\nprint(lock)")


REFUSED = {
    "%%gpujob --vram 4\nprint(1)": "4096M",
    "%%gpujob --vrm 4G\nprint(1)": "--vram",
    "%%gpujob --vram 99G\nprint(1)": "24564 MiB",
    "%%gpujob --vram 1G\nx = 1\ny = = 2": "Line 2",
    "%%gpujob --vram 1G\n\n  \n": "empty",
    "%%gpujob --vram 1G\nx = 1\ny = 2\n%debug": "Line 3",
    "%%gpujob --vram 1G --notify me\nprint(1)": "not available",
    "%%gpujob --vram 1G --out nothing\nprint(1)": "nothing",
    "%gpujob --vram 1G missing.py": "missing.py",
    "%gpujob --vram 1G": "nothing to run",
    "%gpulease --vram 1G": "not available",
    "%gpulogs abcdefgh": "abcdefgh",
}


def test_bad_input_is_refused_at_once_and_says_what_to_do(tmp_path):
    notebook = run(tmp_path, *REFUSED, "import jupyter_gpusched as gs\nlen(gs.jobs())", errors=True)
    for cell, named in zip(notebook.cells[1:], REFUSED.values(), strict=False):
        refused = error(cell)
        assert named in "\n".join([refused.evalue, *refused.traceback]), cell.source
        assert len(refused.traceback) <= 6, cell.source  # no traceback noise
    assert text(notebook.cells[-1]) == "0"


def test_a_script_and_a_shell_line_run_as_jobs(tmp_path):
    (tmp_path / "train.py").write_text("import sys; print('trained', sys.argv[1:])")
    notebook = run(
        tmp_path,
        "%gpujob --vram 1G train.py --epochs 3",
        "print(_.wait().logs())",
        "%gpujob --vram 1G ! echo $GPUSCHED_GPUS | tr 1 x",
        "print(_.wait().logs())",
    )
    assert "trained ['--epochs', '3']" in text(notebook.cells[2])
    assert text(notebook.cells[4]).strip() == "x"


def test_output_is_there_after_the_kernel_that_submitted_is_gone(tmp_path):
    """Case 13: twenty lines, none twice, from a fresh kernel; the saved notebook names the job."""
    submitting = new_notebook(cells=[
        new_code_cell(LOAD),
        new_code_cell("%%gpujob --vram 1G\nimport time\nfor n in range(1, 21):\n    print(n)\n    time.sleep(0.1)"),
    ])  # fmt: skip
    client = NotebookClient(submitting, timeout=60, resources={"metadata": {"path": str(tmp_path)}})
    with client.setup_kernel():
        for number, cell in enumerate(submitting.cells):
            client.execute_cell(cell, number)
        card = submitting.cells[1].outputs[0].data
        job_id = card["application/vnd.gpusched.job+json"]["id"]
        host = Client.connect()
        wait_for(lambda: host.log(job_id).count(b"\n") >= 5, "the job does not print")
    saved = tmp_path / "saved.ipynb"
    nbformat.write(submitting, saved)
    assert job_id in json.dumps(json.loads(saved.read_text())["cells"][1]["outputs"][0]["data"]["text/plain"])
    notebook = run(tmp_path, f"%gpulogs {job_id} -f", f"import jupyter_gpusched as gs\ngs.job('{job_id}').status")
    assert text(notebook.cells[1]).split() == [str(n) for n in range(1, 21)]
    assert text(notebook.cells[2]) == "'succeeded'"


def test_the_kernel_may_be_killed_and_the_job_goes_on(tmp_path, host, client):
    script = tmp_path / "submit.py"
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script.write_text(
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        f"shell.run_line_magic('load_ext', 'jupyter_gpusched')\n"
        f"gate = {str(gate)!r}\n"
        "shell.run_cell('gate = ' + repr(gate))\n"
        "shell.run_cell('%%gpujob --vram 1G --quiet\\nopen(gate).read(); print(1)').raise_error()\n"
        "print(shell.user_ns['_'].id, flush=True)\n"
        "import time; time.sleep(600)\n"
    )
    kernel = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        assert kernel.stdout is not None
        job_id = kernel.stdout.readline().split()[-1]
        wait_for(lambda: client.job(job_id)["phase"] == "running", "the job does not start")
    finally:
        kernel.kill()
        kernel.wait()
    gate.write_text("")
    assert client.wait(job_id)["phase"] == "succeeded"


def test_waiting_and_following_can_be_interrupted_and_the_job_goes_on(tmp_path):
    notebook = run(
        tmp_path,
        "%gpujob --vram 1G ! while [ ! -e gate ]; do sleep 0.05; done",
        "job = _\nimport os, signal, threading\n"
        "interrupt = lambda: os.kill(os.getpid(), signal.SIGINT)\nthreading.Timer(1, interrupt).start()\n"
        "try:\n    job.wait()\nexcept KeyboardInterrupt:\n    print('interrupted', job.status)",
        "threading.Timer(1, interrupt).start()\n%gpulogs {job.id} -f",
        "job.status",
        "open('gate', 'w').close()\njob.wait().status",
        errors=True,
    )
    assert "interrupted running" in text(notebook.cells[2])
    assert text(notebook.cells[4]) == "'running'"
    assert text(notebook.cells[5]) == "'succeeded'"


def test_the_quiet_form_shows_no_id_and_no_time(tmp_path):
    """Case 16: nothing in it changes from run to run."""
    first, second = (run(tmp_path, "%%gpujob --vram 1G --quiet\nprint(1)").cells[1].outputs for _ in range(2))
    assert first == second


def test_a_job_can_be_awaited_and_cancelled(tmp_path):
    notebook = run(
        tmp_path,
        "%gpujob --vram 1G ! sleep 60",
        "job = _\njob.cancel(grace='0s')\n(await job).status",
    )
    assert text(notebook.cells[2]) == "'cancelled'"


def test_jupyter_execute_runs_a_notebook_with_jobs(tmp_path):
    notebook = new_notebook(cells=[new_code_cell(LOAD), new_code_cell("%%gpujob --vram 1G --wait\nprint('in a job')")])
    path = tmp_path / "note.ipynb"
    nbformat.write(notebook, path)
    subprocess.run(
        [sys.executable, "-m", "jupyter", "execute", "--inplace", str(path)],
        check=True,
        capture_output=True,
        timeout=90,
    )
    assert "in a job" in path.read_text()


def test_a_script_runs_in_the_interpreter_that_was_asked_for_and_draws_into_files(tmp_path, client, command):
    """Case 3: a venv with matplotlib and without matplotlib-inline, submitted from where a kernel set its backend."""
    other = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(other)], check=True)
    packages = next(other.glob("lib/python*/site-packages"))
    (packages / "here.pth").write_text(sysconfig.get_path("purelib"))
    (packages / "sitecustomize.py").write_text("import sys; sys.modules['matplotlib_inline'] = None\n")
    (tmp_path / "draw.py").write_text(
        "import sys, shutil, matplotlib.pyplot as plt\n"
        "plt.plot([1]); plt.show(); plt.savefig('a.png')\n"
        "print(sys.executable, shutil.which('python'))\n"
    )
    spec = command(path="draw.py", python=str(other / "bin" / "python"))
    del spec["argv"]
    spec["env"]["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    job_id = client.submit(spec)
    assert client.wait(job_id)["phase"] == "succeeded", client.log(job_id)
    assert client.log(job_id).decode().split() == [str(other / "bin" / "python")] * 2
    assert (tmp_path / "a.png").exists()
