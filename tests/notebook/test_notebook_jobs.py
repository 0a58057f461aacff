"""Notebooks as jobs: real kernels over ipc, outputs as they come, a notebook that is kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from waiting import wait_for

import jupyter_gpusched as gs

pytestmark = pytest.mark.usefixtures("host")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(*cells, name="report.ipynb", **metadata):
    made = [cell if isinstance(cell, dict) else new_code_cell(cell) for cell in cells]
    nbformat.write(new_notebook(cells=made, metadata=metadata), name)
    return name


def tagged(source, *tags):
    return new_code_cell(source, metadata={"tags": list(tags)})


def outputs(job):
    return [cell.outputs for cell in job.notebook().content.cells if cell.cell_type == "code"]


def text(cell_outputs):
    return "".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell_outputs)


def test_a_notebook_runs_in_a_kernel_and_is_kept_with_its_outputs(tmp_path):
    path = write(
        new_markdown_cell("# Title"),
        "import os\nprint('card', os.environ['CUDA_VISIBLE_DEVICES'][:4], os.getcwd())",
        "import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()\n!echo from the shell",
        "6 * 7",
    )
    before = Path(path).read_bytes()
    job = gs.submit(path, vram="1G")
    assert job.wait().status == "succeeded", job.logs()
    notebook = job.result()
    nbformat.validate(notebook.content)
    first, second, third = outputs(job)
    assert text(first) == f"card GPU- {tmp_path}\n"
    assert [output.output_type for output in second] == ["display_data", "stream"]
    assert "image/png" in second[0].data
    assert third[0].data["text/plain"] == "42"
    assert [cell.execution_count for cell in notebook.content.cells[1:]] == [1, 2, 3]
    assert Path(notebook.path).parent.name == "results"
    assert notebook.save("copy.ipynb").is_file()
    assert Path(path).read_bytes() == before
    assert "from the shell" in job.logs()


def test_parameters_are_put_after_the_cell_with_their_defaults():
    path = write("print('first')", tagged("n = 1\nname = 'x'", "parameters"), "print(n, name, more)")
    job = gs.submit(path, vram="1G", parameters={"n": 3, "name": 'a "b"', "more": [1.5, None, {"k": True}]})
    assert job.wait().status == "succeeded", job.logs()
    cells = job.notebook().content.cells
    assert cells[2].metadata.tags == ["injected-parameters"]
    assert text(cells[3].outputs) == "3 a \"b\" [1.5, None, {'k': True}]\n"


def test_a_given_value_that_the_notebook_sets_itself_afterwards_is_told():
    path = write("epochs = 1\nrate = rate * 2", "depth = 3\nif epochs == 1: print(epochs)")
    job = gs.submit(path, vram="1G", parameters={"epochs": 2, "rate": 0.5}).wait()
    assert "gpusched: the notebook itself sets epochs in a cell after" in job.logs()
    assert "sets rate" not in job.logs()
    path = write(tagged("epochs = 1", "parameters"), "print(epochs)")
    assert gs.submit(path, vram="1G", parameters={"epochs": 2}).wait().logs() == "2\n"


def test_parameters_of_an_earlier_run_give_way():
    path = write(tagged("n = 5", "injected-parameters"), "print(n)")
    job = gs.submit(path, vram="1G", parameters={"n": 6}).wait()
    assert [cell.source for cell in job.notebook().content.cells] == ["# Parameters\nn = 6", "print(n)"]
    assert text(outputs(job)[1]) == "6\n"


def test_the_first_cell_that_fails_ends_the_job_with_its_number():
    job = gs.submit(write("x = 1", "print('before')\n1 / 0", "print('never')"), vram="1G")
    with pytest.raises(gs.JobFailed, match=r"code cell 2 of 3 failed: ZeroDivisionError: division by zero") as failed:
        job.result()
    assert "notebook()" in failed.value.hint
    _, second, third = outputs(job)
    assert [output.output_type for output in second] == ["stream", "error"]
    assert third == []
    assert "----> 2 1 / 0" in job.logs()


def test_tags_let_a_cell_fail_or_be_passed_over():
    path = write(tagged("1 / 0", "raises-exception"), tagged("print('no')", "skip-execution"), "print('end')")
    job = gs.submit(path, vram="1G").wait()
    assert job.status == "succeeded"
    assert [text(cell) for cell in outputs(job)[1:]] == ["", "end\n"]


def test_outputs_come_while_a_cell_runs_and_a_cancelled_job_keeps_what_it_had(client):
    job = gs.submit(write("print('one')", "print('two', flush=True)\nimport time\ntime.sleep(600)", "3"), vram="1G")

    def shown():
        return [line["cell"] for line in client.outputs(job.id)[0]]

    wait_for(lambda: shown() == [1, 2], "the outputs do not come while the cell runs")
    assert job.status == "running"
    job.cancel()
    assert job.wait(timeout=30).status == "cancelled"
    assert [text(cell) for cell in outputs(job)] == ["one\n", "two\n", ""]


def test_a_cancelled_notebook_has_its_grace_to_save():
    source = """
import signal, time
def save(*_):
    print("saved", flush=True)
    raise KeyboardInterrupt
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(600)
"""
    job = gs.submit(write(source, "print('never')"), vram="1G", grace="20s")
    wait_for(lambda: "ready" in job.logs(), "the cell does not run")
    assert job.cancel().wait(timeout=30).status == "cancelled"
    assert [text(cell) for cell in outputs(job)] == ["ready\nsaved\n", ""]


def test_a_notebook_that_has_not_begun_has_no_outputs_and_says_so(client, command):
    client.submit_many([command("sleep", "600", vram="24564M")] * 2)
    job = gs.submit(write("1"), vram="1G")
    with pytest.raises(gs.core.model.BadRequest, match="is queued: it has no output notebook yet"):
        job.notebook()


def test_a_killed_job_keeps_the_cells_that_were_done(own_environment):
    job = gs.submit(
        write("print('one')", "import os, time\nopen('pid', 'w').write(str(os.getppid()))\ntime.sleep(600)"), vram="1G"
    )
    pid = int(wait_for(lambda: Path("pid").exists() and Path("pid").read_text(), "the second cell does not run"))
    os.kill(pid, 9)
    assert job.wait(timeout=30).view["signal"] == 9
    assert text(outputs(job)[0]) == "one\n"


@pytest.mark.parametrize(("number", "word"), [(11, "SIGSEGV"), (9, "SIGKILL")])
def test_a_kernel_that_dies_ends_the_job_as_it_ended(number, word):
    job = gs.submit(write("print('ok')", f"import os\nos.kill(os.getpid(), {number})", "print('never')"), vram="1G")
    view = job.wait(timeout=40).view
    assert (view["phase"], view["signal"]) == ("failed", number)
    assert word in view["message"]
    assert "the kernel ended in code cell 2 of 3 by signal" in job.logs()
    assert text(outputs(job)[0]) == "ok\n"


def test_exit_ends_the_notebook_well():
    job = gs.submit(write("print('ok')\nexit()", "print('never')"), vram="1G").wait()
    assert (job.status, text(outputs(job)[1])) == ("succeeded", "")


def test_asking_a_person_fails_at_once():
    job = gs.submit(write("input('name? ')"), vram="1G").wait(timeout=40)
    assert (job.status, job.view["reason"]) == ("failed", "stdin")


def test_the_notebook_runs_as_it_was_at_submission(client, command):
    path = write("print('as submitted')")
    blockers = client.submit_many([command("sleep", "600", vram="24564M")] * 2)
    job = gs.submit(path, vram="1G")
    write("print('edited later')")
    for blocker in blockers:
        client.cancel(blocker, "0s")
    assert text(outputs(job.wait())[0]) == "as submitted\n"


def test_no_port_of_the_kernels_channels_is_opened_and_its_sockets_are_in_a_private_folder():
    source = """
import ipykernel.connect, json, os, stat
fds = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
links = [os.readlink(fd) for fd in fds if os.path.lexists(fd)]
mine = {link[8:-1] for link in links if link.startswith("socket:[")}
lines = [line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/net/{name}").readlines()[1:]]
ports = {int(line[1].split(":")[1], 16) for line in lines if line[9] in mine}
ports.discard(get_ipython().kernel.iopub_thread._pipe_port)  # ipykernel's own, for what forked children print
info = json.loads(ipykernel.connect.get_connection_info())
print(ports, info["transport"], stat.S_IMODE(os.stat(os.path.dirname(info["ip"])).st_mode) & 0o077)
"""
    job = gs.submit(write(source), vram="1G").wait()
    assert text(outputs(job)[0]) == "set() ipc 0\n", job.logs()


def test_a_kernel_that_is_not_there_is_replaced_for_python_and_refused_for_others():
    gone = write("1", kernelspec={"name": "my-old-env", "language": "python", "display_name": "Old"})
    assert gs.submit(gone, vram="1G").wait().status == "succeeded"
    other = write("1", kernelspec={"name": "ir-of-mine", "language": "R", "display_name": "R"})
    job = gs.submit(other, vram="1G").wait()
    assert job.status == "failed"
    assert "kernel 'ir-of-mine' (r) is not installed" in job.view["message"]


def test_the_kernel_of_the_notebook_is_used_where_it_is_known(tmp_path):
    spec = tmp_path / "jupyter" / "data" / "kernels" / "special"
    spec.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    content = {"argv": argv, "display_name": "Special", "language": "python", "env": {"SPECIAL": "yes"}}
    (spec / "kernel.json").write_text(json.dumps(content))
    path = write(
        "import os; print(os.environ['SPECIAL'])",
        kernelspec={"name": "special", "language": "python", "display_name": "S"},
    )
    assert text(outputs(gs.submit(path, vram="1G").wait())[0]) == "yes\n"


def test_progress_bars_and_displays_that_change_end_as_a_person_would_see_them():
    path = write(
        "from IPython.display import clear_output, display\nhandle = display('old', display_id=True)\nprint('kept')",
        "handle.update('new')\nprint('gone')\nclear_output()\nprint('left')",
        "from tqdm.auto import tqdm\nfor _ in tqdm(range(5)): pass",
    )
    job = gs.submit(path, vram="1G").wait()
    first, second, third = outputs(job)
    assert first[0].data["text/plain"] == "'new'"
    assert text(second) == "left\n"
    assert "5/5" in text(third)
    assert "application/vnd.jupyter.widget-view+json" not in json.dumps(third)


def test_a_notebook_from_the_terminal(tmp_path):
    path = write(tagged("n = 1", "parameters"), "print(n * 2)")
    submit = [sys.executable, "-m", "jupyter_gpusched.cli", "submit", "--vram", "1G", "--param", "n=21", "--wait", path]
    done = subprocess.run(submit, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert gs.job(done.stdout.strip()).logs() == "42\n"


def test_the_notebook_of_another_job_is_refused_in_words():
    with pytest.raises(gs.core.model.BadRequest, match="no notebook job"):
        gs.submit(["true"], vram="1G").notebook()
