"""Worker processes of a cell find its definitions, and never run the cell again."""

import ast

import pytest

from jupyter_gpusched.runner.worker import define, is_definition, plain_python

from .conftest import notebook

POOL = 'import multiprocessing as mp\nprint(mp.get_context("{method}").Pool(2).map({function}, [1, 2, 3]))'


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_workers_find_functions_of_the_cell(cell, method):
    pool = POOL.format(method=method, function="f").replace("\n", "\n    ")
    ended = cell(f'def f(x): return x*x\nif __name__ == "__main__":\n    {pool}', timeout=30)
    assert ended.log == "[1, 4, 9]\n"


def test_workers_have_captured_names_without_a_guard_and_beside_magics(cell):
    values = notebook("offset = 10\ndef helper(x): return x + offset")
    source = "%matplotlib inline\n!echo once\nFACTOR = 2\nprint('ran')\ndef f(x): return helper(x) * FACTOR\n"
    ended = cell(source + POOL.format(method="spawn", function="f"), values={"helper": values["helper"]}, timeout=30)
    assert ended.log == "once\nran\n[22, 24, 26]\n"


def test_a_captured_function_itself_runs_in_workers(cell):
    values = notebook("offset = 10\ndef helper(x): return x + offset")
    ended = cell(POOL.format(method="spawn", function="helper"), values={"helper": values["helper"]}, timeout=30)
    assert ended.log == "[11, 12, 13]\n"


def test_a_cell_under_a_timing_magic_serves_workers_too(cell):
    ended = cell("%%time\ndef f(x): return -x\n" + POOL.format(method="spawn", function="f"), timeout=30)
    assert ended.log.startswith("[-1, -2, -3]\n")


MADE = """import math, re, threading, collections
class Box:
    def __init__(self, x): self.x = x
W = math.sqrt(16)
WORD = re.compile("a+")
class Sized:
    w = W
box = Box(2)
sized = Sized()
CONFIG = {}
CONFIG["lr"] = float(1)
lock = threading.Lock()
scale = sum([5])
later = W + 1
def total(x, w=W):
    with open(__file__): pass
    assert sized.w == 4
    return w + x + later + box.x + CONFIG["lr"] + isinstance(box, Box) + len(WORD.match("aa")[0])
def f(x): return total(x) * helper()
def locked(): return lock
def unconcerned(): guard = 1; return guard
guard = threading.Lock()
print("once")
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_have_the_values_that_the_cell_made(cell, method):
    values = notebook("scale = 1\ndef helper(): return scale")
    ended = cell(MADE + POOL.format(method=method, function="f"), values={"helper": values["helper"]}, timeout=40)
    told, *rest = ended.log.splitlines()[1:]
    assert ended.log.startswith("once\n")
    assert told.startswith("gpusched: worker processes will not have `lock` (TypeError: cannot pickle")
    assert rest == ["[80.0, 85.0, 90.0]"]


def test_an_error_in_a_worker_shows_the_line_of_the_cell(cell):
    source = "def f(x):\n    raise ValueError(x)  # here\n" + POOL.format(method="spawn", function="f")
    ended = cell(source, timeout=30)
    assert ended.exit.code == 1
    assert "line 2, in f\n    raise ValueError(x)  # here" in ended.log


def test_what_workers_print_is_among_the_outputs(cell):
    ended = cell("def f(x): print('from', x)\n" + POOL.format(method="spawn", function="f"), timeout=30)
    assert sorted(ended.text().splitlines()) == ["[None, None, None]", "from 1", "from 2", "from 3"]


@pytest.mark.parametrize(
    "text",
    [
        "import torch",
        "def f(): pass",
        "class A: pass",
        "SIZE = 4 * 1024",
        "NAMES: list[str] = ['a', f'b{1}']",
        "ROOT = Path('data')",
        "half = lambda x: x / 2",
        "try:\n    import cupy as np\nexcept ImportError:\n    import numpy as np\n    GPU = False",
        "if sys.version_info > (3, 10):\n    X = 1\nelse:\n    X = 2",
    ],
)
def test_definitions_are_repeated_in_workers(text):
    assert is_definition(ast.parse(text).body[0])


@pytest.mark.parametrize(
    "text",
    [
        "train()",
        "model = load()",
        "x += 1",
        "for i in range(3): pass",
        "with open('x') as f: pass",
        "if True:\n    train()",
        "X = [f() for f in fs]",
        "x = (y := 3)",
        "del x",
    ],
)
def test_work_is_never_repeated_in_workers(text):
    assert not is_definition(ast.parse(text).body[0])


def test_a_definition_that_needs_the_jobs_own_values_is_left_out_with_a_word(capsys):
    names = {}
    define("x = model.size\n@model.register\ndef f(): pass\ndef g(): return 1", "cell", names)
    assert names["g"]() == 1
    assert "line 3 of the cell is not known here: NameError" in capsys.readouterr().err


def test_a_cell_magic_of_another_language_is_left_alone():
    transformed = "get_ipython().run_cell_magic('bash', '', 'echo x\\n')\n"
    assert plain_python(transformed, str) == transformed
