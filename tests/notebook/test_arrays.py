"""Arrays and sweeps as a person meets them: cells, functions, scripts and notebooks, at a real host."""

from __future__ import annotations

import asyncio
import os
import pickle
from textwrap import dedent

import nbformat
import pytest

import jupyter_gpusched as gs
from jupyter_gpusched.core.model import BadRequest, UnknownJob

pytestmark = pytest.mark.usefixtures("host")


def defined(source):
    names = {"__name__": "__main__"}
    exec(dedent(source), names)
    return names


def cell(shell, line, source):
    return shell.run_cell_magic("gpujob", line, dedent(source))


def test_the_cells_of_a_sweep_see_its_values_as_variables(shell):
    shell.user_ns |= {"factor": 10, "seed": "the notebook's own", "os": os}
    runs = cell(shell, "--gpus 0 --out told --sweep lr=0.5,2 seed=1..2 --throttle 2", "told = (lr, seed, lr * factor)")
    assert isinstance(runs, gs.JobArray)
    assert runs.results() == [{"told": (lr, seed, lr * 10)} for lr in (0.5, 2) for seed in (1, 2)]
    assert [(row["lr"], row["seed"], row["phase"], row["exit_code"]) for row in runs.table()] == [
        (0.5, 1, "succeeded", 0), (0.5, 2, "succeeded", 0), (2, 1, "succeeded", 0), (2, 2, "succeeded", 0),
    ]  # fmt: skip
    assert {row["waited_s"] >= 0 and row["ran_s"] > 0 for row in runs.table()} == {True}
    assert runs.phases == {"succeeded": 4}
    assert runs[2].resubmit().result() == {"told": (2, 1, 20)}


def test_worker_processes_of_a_cell_see_the_values_too(shell):
    source = """
    import multiprocessing
    def scaled(x): return x * lr
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.map(scaled, [1, 2])
    """
    runs = cell(shell, "--gpus 0 --out found --sweep lr=3", source)
    assert runs.results() == [{"found": [3, 6]}]


def test_a_dry_run_says_how_many_jobs_it_would_be_and_the_names_of_the_sweep_are_not_missed(shell, capsys):
    assert cell(shell, "--gpus 0 --dry-run --sweep lr=0.5,2 seed=1..5", "print(lr, seed)") is None
    said = capsys.readouterr()
    assert "It would be 10 cell jobs, each with no GPU." in said.out
    assert "not found in this notebook" not in said.out + said.err


def test_waiting_for_a_sweep_raises_for_the_first_that_failed(shell):
    with pytest.raises(gs.JobFailed, match="ZeroDivisionError"):
        cell(shell, "--gpus 0 --wait --sweep n=1,0", "1 / n")


def test_a_quiet_sweep_shows_nothing_and_is_kept(shell, capsys):
    runs = cell(shell, "--gpus 0 --quiet --sweep n=1", "n")
    shell.display_formatter.format(runs)
    assert runs.id not in capsys.readouterr().out
    assert gs.array(runs.id) == runs


def test_a_line_magic_sweeps_over_a_script_and_acts_on_its_array(shell, tmp_path, capsys):
    (tmp_path / "t.py").write_text("import sys; print(sys.argv[1:])")
    blocker = gs.submit(["sleep", "60"], gpus=2, vram="24564M")
    runs = shell.run_line_magic("gpujob", "--vram 2G --sweep a=1..3 b=x t.py {a}-{b} {c}")
    shell.run_line_magic("gpuhold", f"{runs.id} --cause later")
    shell.run_line_magic("gpurelease", f"{runs.id}[1-2]")
    shell.run_line_magic("gpucancel", f"{runs.id}[2]")
    assert capsys.readouterr().out == "3 jobs held\n2 jobs released\n1 job cancelled\n"
    assert shell.run_line_magic("gpurelease", runs[0].id) == runs[0]
    assert repr(gs.map(defined("def f(x): return x")["f"], [1], gpus=0)).endswith(": 1 job>")
    blocker.cancel("0s")
    runs.wait()
    assert runs[1].logs() == "['2-x', '{c}']\n"
    assert runs.failed == [runs[2]]


def test_a_notebook_gets_the_values_as_parameters(tmp_path):
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("n = 0"), nbformat.v4.new_code_cell("print(n)")]
    )
    notebook.cells[0].metadata["tags"] = ["parameters"]
    path = tmp_path / "n.ipynb"
    nbformat.write(notebook, path)
    runs = gs.sweep(path, {"n": [4, 5]}, gpus=0).wait()
    assert runs.failed == []
    assert [run.notebook().content.cells[-1].outputs[0].text for run in runs] == ["4\n", "5\n"]


def test_a_function_is_swept_over_its_arguments(tmp_path):
    power = defined("def power(base, exponent, plus=0): return base ** exponent + plus")["power"]
    runs = gs.sweep(power, {"exponent": "1..3", "plus": [0, 1]}, 2, gpus=0, throttle=3)
    assert runs.results() == [2, 3, 4, 5, 8, 9]
    with pytest.raises(BadRequest, match="cannot be called like this"):
        gs.sweep(power, {"nonsense": [1]}, 2, gpus=0)


def test_what_failed_is_repeated_and_what_succeeded_is_not(tmp_path):
    flag = tmp_path / "fixed"
    risky = defined("""
        import os
        def risky(n, flag):
            if n % 2 and not os.path.exists(flag): raise ValueError(n)
            return n
    """)["risky"]
    runs = gs.map(risky, range(4), kwargs={"flag": str(flag)}, gpus=0)
    told = runs.results(errors="return")
    assert told[0::2] == [0, 2]
    assert [type(error.__cause__) for error in told[1::2]] == [ValueError, ValueError]
    with pytest.raises(gs.JobFailed, match="ValueError: 1"):
        runs.results()
    assert [row["item"] for row in runs.table()] == [0, 1, 2, 3]
    flag.touch()
    again = runs.resubmit_failed()
    assert (again.results(), [row["index"] for row in again.table()]) == ([1, 3], [1, 3])
    assert [again[number].view["array_index"] for number in (1, 3, -1)] == [1, 3, 3]
    assert (again[1], again[3], again[2:], again[-2:]) == (*again, [again[3]], list(again))
    assert gs.array(again.id)[3] == gs.job(f"{again.id}[3]") == pickle.loads(pickle.dumps(again))[3]
    with pytest.raises(IndexError, match=r"has no element 0; its elements are \[1,3\]"):
        again[0]
    assert again.resubmit_failed() == []
    assert len(runs.resubmit_failed(name="other")) == 2  # they have still failed


def test_items_keep_the_classes_of_the_function(tmp_path):
    names = defined("""
        class Config:
            def __init__(self, n): self.n = n
        def use(config):
            assert isinstance(config, Config)
            return config.n
    """)
    runs = gs.map(names["use"], [names["Config"](n) for n in range(3)], gpus=0)
    assert runs.results() == [0, 1, 2]


def test_an_array_can_be_awaited_pickled_found_again_and_shown(tmp_path):
    runs = gs.map(defined("def f(x): return x")["f"], range(25), gpus=0, cpus=1, throttle=8)

    async def wait():
        return await runs

    assert asyncio.run(wait()) is runs
    assert pickle.loads(pickle.dumps(runs)) == gs.array(runs.id) == runs
    shown = runs._repr_mimebundle_()
    assert f"Array {runs.id} · f · 25 jobs: 25 succeeded" in shown["text/plain"]
    assert "5 more, .table() has all" in shown["text/html"]
    assert repr(runs.table()).count("\n") == 25
    assert "<table>" in runs.table()._repr_html_()
    assert len(runs[3:5]) == 2
    with pytest.raises(UnknownJob):
        gs.array("zzzzzzzz")


def test_results_and_outputs_of_an_array_are_those_of_its_elements(shell, capsys):
    runs = gs.map(defined("def f(x): print('seen', x); return x")["f"], range(2), gpus=0, cpus=1)
    assert shell.run_line_magic("gpuresult", runs.id) == [0, 1]
    assert shell.run_line_magic("gpuresult", f"{runs.id}[1]") == 1
    capsys.readouterr()
    runs.show()
    assert capsys.readouterr().out.splitlines() == [
        f"{runs.id}[0], job {runs[0].id}:",
        "seen 0",
        f"{runs.id}[1], job {runs[1].id}:",
        "seen 1",
    ]
    with pytest.raises(UnknownJob, match="is no job but an array"):
        shell.run_line_magic("gpulogs", runs.id)
    with pytest.raises(UnknownJob, match="zzzzzzzz"):
        shell.run_line_magic("gpuresult", "zzzzzzzz")


def test_a_table_becomes_a_data_frame(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = gs.sweep(["true"], {"n": [1, 2]}, gpus=0).wait().table().to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["n"]) == [1, 2]


def test_what_cannot_travel_is_named_by_its_place(tmp_path):
    import threading

    with pytest.raises(BadRequest, match="lock") as refused:
        gs.map(defined("def f(x): return x")["f"], [1, threading.Lock()], gpus=0)
    assert "items[1]" in refused.value.message or "`x`" in refused.value.message
    assert gs.jobs() == []
