"""A function as a job: it runs by the same rules as a cell."""

import pickle

import pytest

from jupyter_gpusched.core.model import Kind

from .conftest import notebook


@pytest.fixture
def call(cell):
    def run(source, *args, name="f", **options):
        function = notebook(source)[name]
        values = {"function": function, "args": args, "kwargs": {}}
        return cell(None, kind=Kind.FUNCTION, values=values, **options)

    return run


def test_what_is_shown_is_in_order(call):
    shown = "    print('a')\n    display(HTML('<b>'))\n    print('b')"
    ended = call(f"def f():\n    from IPython.display import HTML, display\n{shown}")
    assert ended.exit.code == 0
    assert ended.kinds() == ["stream", "display_data", "stream"]


@pytest.mark.parametrize("code", ["input()", "breakpoint()", "import getpass; getpass.getpass()"])
def test_asking_a_person_fails_at_once_and_says_why(call, code):
    ended = call(f"def f():\n    {code}", timeout=20)
    assert (ended.exit.reason, ended.exit.code) == ("stdin", 1)


def test_an_exit_has_its_own_code_and_no_value(call):
    ended = call("def f():\n    import sys\n    sys.exit(3)")
    assert ended.exit.code == 3
    assert not list((ended.folder / "results").iterdir())


def test_workers_find_the_function_and_what_it_uses(call):
    source = (
        "K = 3\ndef g(x): return K * x\n"
        "def f(n):\n    import multiprocessing as mp\n"
        "    with mp.get_context('spawn').Pool(2) as pool: return pool.map(g, range(n))"
    )
    assert call(source, 3, timeout=30).result("value") == [0, 3, 6]


def test_ipython_is_not_needed(call, tmp_path):
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "IPython.py").write_text("raise ImportError('not here')")
    env = {"PYTHONPATH": str(tmp_path / "none")}.items()
    assert call("def f():\n    print('plain')\n    return 1", env=env).result("value") == 1
    failed = call("def f(): return 1 / 0", env=env)
    assert (failed.exit.message, failed.kinds()) == ("ZeroDivisionError: division by zero", ["error"])
    asked = call("def f(): input()", env=env)
    assert asked.exit.reason == "stdin"


def test_an_exception_is_kept_with_its_text_and_attempt(call):
    ended = call("def f(): raise KeyError('k')")
    record = pickle.loads((ended.folder / "results" / "exception.pkl").read_bytes())
    assert (record["attempt"], record["type"]) == (1, "KeyError")
    assert record["text"].endswith("KeyError: 'k'\n")
    assert "runner" not in record["text"]
