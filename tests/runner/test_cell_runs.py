"""A cell as a job: what it can do, how it ends, and what it leaves."""

import signal
import sys

import cloudpickle
import pytest

from .conftest import notebook, packed


def test_ipython_syntax_works_as_in_a_kernel(cell):
    ended = cell('%time x=1\nawait __import__("asyncio").sleep(0)\ny = !echo hi\nprint(x, y[0])')
    assert ended.exit.code == 0
    assert ended.log.endswith("1 hi\n")


def test_magics_that_a_kernel_accepts_are_harmless(cell):
    ended = cell("%load_ext autoreload\n%autoreload 2\n%matplotlib inline\nprint('on')")
    assert (ended.exit.code, ended.log) == (0, "on\n")


def test_autoreload_loaded_by_an_earlier_cell_is_there(cell):
    assert cell("%autoreload 2\nprint('on')").log == "on\n"


@pytest.mark.parametrize(
    ("source", "code"),
    [("import sys; sys.exit(3)", 3), ("exit(4)", 4), ("quit()\nprint(1)", 0), ("import sys; sys.exit()", 0)],
)
def test_a_cell_that_exits_ends_with_its_own_code(cell, source, code):
    ended = cell(source)
    assert (ended.exit.code, ended.log) == (code, "")


def test_an_exit_with_words_prints_them(cell):
    ended = cell("import sys; sys.exit('no data')")
    assert (ended.exit.code, ended.log) == (1, "no data\n")


def test_an_exception_is_an_error_output_and_its_last_line_the_message(cell):
    ended = cell('print("before")\nraise ValueError("boom")')
    assert (ended.exit.code, ended.exit.message) == (1, "ValueError: boom")
    assert ended.kinds() == ["stream", "error"]
    assert ended.outputs[-1]["evalue"] == "boom"
    assert "----> 2 raise ValueError" in ended.log


def test_a_syntax_error_fails_the_cell(cell):
    ended = cell("def f(:\n    pass")
    assert (ended.exit.code, ended.outputs[-1]["ename"]) == (1, "SyntaxError")


def test_a_signal_is_that_signal_and_keeps_what_was_printed(cell):
    ended = cell('import os, signal; print("x"); os.kill(os.getpid(), signal.SIGSEGV)')
    assert (ended.exit.signal, ended.exit.code) == (signal.SIGSEGV, None)
    assert ended.text().startswith("x\n")


def test_a_failing_shell_escape_does_not_fail_the_cell(cell):
    ended = cell('!false\nprint("after")')
    assert (ended.exit.code, ended.log) == (0, "after\n")


@pytest.mark.parametrize(
    "source",
    [
        'input("name? ")',
        "import getpass; getpass.getpass()",
        "from getpass import getpass; getpass()",
        "breakpoint()",
        "import pdb; pdb.set_trace()",
    ],
)
def test_asking_a_person_fails_at_once_and_says_why(cell, source):
    ended = cell(source, timeout=20)
    assert ended.exit.code == 1
    assert "a background job cannot read input" in ended.exit.message


def test_standard_input_is_empty_for_shell_escapes_too(cell):
    assert cell('!read -p "ok? " x || echo nothing').log.endswith("nothing\n")


def test_an_uncaught_error_in_a_finished_cell_leaves_no_results(cell):
    ended = cell("model = 1\nraise ValueError", outputs=["model"])
    assert not list((ended.folder / "results").iterdir())


def test_results_come_out(cell):
    ended = cell("class Model: w = 5\nmodel = Model()\nloss = [0.5]", outputs=["model", "loss"])
    assert ended.exit.code == 0
    assert (ended.result("model").w, ended.result("loss")) == (5, [0.5])


def test_a_result_that_cannot_travel_fails_the_job_and_keeps_the_others(cell):
    ended = cell("import threading\nlock = threading.Lock()\nloss = 0.5", outputs=["lock", "missing", "loss"])
    assert ended.exit.code == 1
    assert ended.log.splitlines()[-1].startswith("gpusched: output 'lock' (_thread.lock) cannot be pickled")
    assert "output 'missing' is not there" in ended.log
    assert ended.result("loss") == 0.5


def test_captured_values_arrive(cell):
    values = notebook("import math\nscale = 3\ndef area(r): return scale * r\nclass P: k = 7")
    ended = cell("print(area(2), math.pi > 3, P().k)", values={name: values[name] for name in ("area", "math", "P")})
    assert ended.log == "6 True 7\n"


def test_captured_functions_see_what_the_cell_redefines(cell):
    values = notebook("rate = 1\ndef helper(): return rate\ndef use(): return helper() * 10")
    ended = cell("rate = 5\ndef helper(): return rate + 1\nprint(use())", values={"use": values["use"]})
    assert ended.log == "60\n"


def test_the_source_of_what_the_cell_defines_can_be_had(cell):
    ended = cell(
        "import inspect\nclass A:\n    x = 1\ndef f(): pass\nprint(inspect.getsource(A), inspect.getsource(f))"
    )
    assert ended.log == "class A:\n    x = 1\n def f(): pass\n\n"


def test_a_bare_pickle_of_values_is_accepted(cell):
    assert cell("print(x)", payload=cloudpickle.dumps({"x": 4})).log == "4\n"


def test_modules_beside_the_notebook_are_found_by_captured_values(cell, tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/beside.py").write_text("def f(): return 'beside'")
    sys.path.insert(0, str(tmp_path / "lib"))
    try:
        import beside

        payload = packed({"f": beside.f}, sys_path=[str(tmp_path / "lib")])
    finally:
        sys.path.remove(str(tmp_path / "lib"))
    assert cell("print(f())", payload=payload).log == "beside\n"


def test_values_of_another_python_are_refused_unread(cell):
    ended = cell("print(x)", payload=packed({"x": 1}, python=(3, 8)))
    assert ended.exit.code == 1
    assert "come from Python 3.8" in ended.log
    assert "--python" in ended.log


def test_values_that_the_interpreter_cannot_load_name_what_is_missing(cell):
    payload = cloudpickle.dumps({"x": 1}).replace(b"}", b"cno_such_module\nthing\n}", 1)
    ended = cell("print(x)", payload=payload)
    assert ended.exit.code == 1
    assert "cannot be loaded" in ended.log


def test_the_working_folder_comes_first_on_the_path_and_nothing_of_ours_is_on_it(cell, tmp_path):
    (tmp_path / "records.py").write_text("whose = 'mine'")
    (tmp_path / "runner.py").write_text("whose = 'mine'")
    ended = cell(
        "import records, runner, sys\nprint(records.whose, runner.whose, [p for p in sys.path if 'runner' in p])"
    )
    assert ended.log == "mine mine []\n"


def test_the_umask_of_the_user_holds_for_the_jobs_own_files(cell, tmp_path):
    cell("open('made', 'w').close()")
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask():
    import os

    mask = os.umask(0)
    os.umask(mask)
    return mask
