"""Which names a cell takes from its notebook and which it makes itself."""

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from jupyter_gpusched.cellnames import read

TRANSFORM = TransformerManager().transform_cell


def names(cell):
    return read(TRANSFORM(cell), TRANSFORM)


@pytest.mark.parametrize(
    ("cell", "needed"),
    [
        ("x = 1\nx + y", ["y"]),
        ("x = x + 1", ["x"]),
        ("n += 1", ["n"]),
        ("d[k] = v\no.a = w", ["d", "k", "v", "o", "w"]),
        ("if c:\n    x = 1\nelse:\n    x = 2\nx", ["c"]),
        ("if c:\n    raise E\nelse:\n    x = 2\nx", ["c", "E"]),
        ("for b in loader:\n    b", ["loader"]),
        ("with f() as (a, b):\n    r = a\nr, b", ["f"]),
        ("[q * w for q in d]", ["d", "w"]),
        ("y = [y for y in y]", ["y"]),
        ("del gone", ["gone"]),
        ("match cmd:\n    case [a] if a > lim:\n        a", ["cmd", "lim"]),
        ("async for i in s:\n    i\nawait h", ["s", "h"]),
        ("f'{x!r:>{w}}'", ["x", "w"]),
        ("class A(B):\n    k = m\n    def g(self):\n        return n", ["B", "m", "n"]),
        ("def f(a: T = dv):\n    return a + f(g)", ["dv", "T", "g"]),
        ("import os.path\nos.path.join(p)", ["p"]),
    ],
)
def test_a_name_that_is_used_before_it_is_bound_is_needed(cell, needed):
    assert sorted(names(cell).hard) == sorted(needed)


@pytest.mark.parametrize(
    "cell",
    [
        "if c:\n    x = 1\nx",
        "for x in c:\n    pass\nx",
        "def f():\n    return x\nx = 1",
        "from m import *\nx",
        "x = 1\ndel x\nx",
        "try:\n    x = c\nexcept c:\n    pass\nx",
        "%time print(x)",
        "%timeit -n 10 -r3 g(x)",
        "%time x = c\nprint(x)",
        "!echo $x",
        "y = !echo {x['a']}",
        "%%time\nprint(x)",
        "%%capture out\nprint(x)",
    ],
)
def test_a_name_that_is_perhaps_bound_by_the_cell_itself_is_brought_only_if_it_can(cell):
    found = names(cell)
    assert "x" in found.soft
    assert "x" not in found.hard


@pytest.mark.parametrize(
    "cell",
    [
        "x = 1\nx",
        "def x():\n    return x()",
        "lambda x: x",
        "try:\n    import x\nexcept ImportError:\n    x = None\nx",
        "def f(x):\n    return [x for x in x]",
        "[x for x in range(3)]",
        "print('x')",
        "(x := 1)\nx",
    ],
)
def test_a_name_that_the_cell_surely_binds_first_is_left_alone(cell):
    found = names(cell)
    assert "x" not in found.hard + found.soft


def test_names_bound_by_magics_and_globals_count_as_bound():
    assert {"a", "b", "c"} <= names("%time a = 1\ndef f():\n    global b\n    b = 2\nc = !ls").bound


def test_magics_are_listed_with_their_lines_even_inside_others():
    found = names("%%time\nx = 1\n%debug\n")
    assert [(magic.name, magic.line) for magic in found.magics] == [("time", 1), ("debug", 3)]
