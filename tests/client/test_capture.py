"""What a cell brings along, and what is refused by name (cases 5 and 8)."""

import pickle
import socket
import sqlite3
import sys
import threading
import types

import cloudpickle
import pytest

from jupyter_gpusched import capture as capturing
from jupyter_gpusched import travel
from jupyter_gpusched.capture import capture
from jupyter_gpusched.core.model import BadRequest


def values_of(captured):
    envelope = pickle.loads(captured.payload)
    return cloudpickle.loads(envelope["values"])


def refused(cell, namespace, **more):
    with pytest.raises(BadRequest) as caught:
        capture(cell, namespace, None, **more)
    return caught.value


def test_free_names_travel_and_arrive_as_private_copies():
    data = [1, 2]
    captured = capture("f(data)", {"data": data, "f": lambda x: 3 * x[0], "unused": object()}, None)
    arrived = values_of(captured)
    assert set(captured.names) == {"data", "f"}
    assert arrived["f"](arrived["data"]) == 3
    assert arrived["data"] is not data


def test_what_two_names_share_stays_shared():
    shared = []
    arrived = values_of(capture("a, b", {"a": shared, "b": [shared]}, None))
    assert arrived["b"][0] is arrived["a"]


def test_modules_travel_by_import():
    assert values_of(capture("math.pi", {"math": __import__("math")}, None))["math"] is __import__("math")


def test_the_payload_says_which_python_wrote_it():
    envelope = pickle.loads(capture("x", {"x": 1}, None).payload)
    assert envelope["__gpusched__"] == 1
    assert envelope["python"] == list(sys.version_info[:2])


def test_folders_that_the_session_added_to_the_search_path_travel_even_without_variables(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    assert str(tmp_path) in pickle.loads(capture("import mine", {}, None).payload)["sys_path"]


def test_a_cell_that_needs_nothing_has_no_payload(monkeypatch):
    monkeypatch.setattr(sys, "path", [""])
    assert capture("print(1)", {}, None).payload is None


@pytest.mark.parametrize(
    ("make", "type_name", "way_out"),
    [
        (threading.Lock, "_thread.lock", "inside the cell"),
        (lambda: (i for i in [1]), "generator", "x = list(x)"),
        (lambda: sqlite3.connect(":memory:"), "sqlite3.Connection", "open the connection inside the cell"),
        (socket.socket, "socket.socket", "open the socket inside the cell"),
    ],
)
def test_what_cannot_travel_is_refused_with_name_type_and_way_out(make, type_name, way_out):
    value = make()
    error = refused("x", {"x": value})
    assert f"`x` ({type_name})" in error.message
    assert way_out in error.hint
    if hasattr(value, "close"):
        value.close()


def test_every_variable_that_cannot_travel_is_named_at_once():
    error = refused("a, b", {"a": threading.Lock(), "b": (i for i in [1])})
    assert "`a`" in error.message
    assert "`b`" in error.message


def test_a_lock_deep_inside_an_object_is_named_with_its_place():
    trainer = types.SimpleNamespace(config={"steps": [1, threading.Lock()]})
    error = refused("trainer", {"trainer": trainer})
    assert "`trainer` (types.SimpleNamespace)" in error.message
    assert "`trainer.config['steps'][1]` is a _thread.lock" in error.message


def test_a_lock_that_a_function_uses_is_named():
    namespace = {"lock": threading.Lock()}
    exec("def step():\n    return lock", namespace)
    assert "`lock` used by `step` is a _thread.lock" in refused("step()", namespace).message


def test_a_value_whose_own_pickling_fails_is_refused_not_raised():
    class Stubborn:
        def __reduce__(self):
            raise RuntimeError("I stay here")

    assert "I stay here" in refused("x", {"x": Stubborn()}).message


def test_an_open_text_file_travels_as_a_copy_with_a_warning(tmp_path):
    path = tmp_path / "data.txt"
    path.write_text("42")
    with path.open() as file:
        captured = capture("file.read()", {"file": file}, None)
    assert "private copy" in captured.warnings[0]
    assert values_of(captured)["file"].read() == "42"


def test_an_open_binary_file_is_refused(tmp_path):
    path = tmp_path / "data.bin"
    path.write_bytes(b"42")
    with path.open("rb") as file:
        assert "_io.BufferedReader" in refused("file.read()", {"file": file}).message


def test_too_much_data_is_refused_with_its_size_and_the_largest_variables(monkeypatch):
    for module in (capturing, travel):
        monkeypatch.setattr(module, "LARGEST_PAYLOAD", 2**20)
    error = refused("big, small", {"big": bytearray(3 * 2**20), "small": 1})
    assert "3 MiB, at most 1 MiB" in error.message
    assert error.message.index("`big` (bytearray, 3 MiB)") < error.message.index("`small`")
    assert "file" in error.hint


def test_a_name_that_is_perhaps_bound_by_the_cell_is_left_out_if_it_cannot_travel():
    captured = capture("def f():\n    return x + y\nx = 1", {"x": threading.Lock(), "y": 2}, None)
    assert captured.names == ("y",)


def test_names_of_ipython_itself_are_never_captured():
    namespace = {name: threading.Lock() for name in ("In", "Out", "get_ipython", "exit", "_", "__", "_i1", "_3", "_dh")}
    assert capture("In, Out, get_ipython, exit, _, __, _i1, _3, _dh", namespace, None).names == ()


def test_functions_that_use_magics_travel(shell):
    shell.run_cell("def listing():\n    return get_ipython()")
    assert capture("listing()", shell.user_ns, shell).names == ("listing",)


def test_without_capture_only_the_named_inputs_travel():
    assert capture("a, b", {"a": 1, "b": 2}, None, inputs=["b"], automatic=False).names == ("b",)


def test_an_input_that_does_not_exist_is_refused():
    error = refused("1", {}, inputs=["nothing"])
    assert error.field == "inputs"
    assert "`nothing`" in error.message


def test_an_output_that_the_cell_never_assigns_is_refused():
    error = refused("x = 1", {"y": 2}, outputs=["y"])
    assert error.field == "outputs"
    assert "`y`" in error.message


@pytest.mark.parametrize("cell", ["x = 1", "for x in [1]: pass", "x.append(1)", "from math import *", "x = !ls"])
def test_an_output_that_the_cell_may_assign_or_brings_along_is_accepted(cell):
    capture(cell, {"x": []}, None, outputs=["x"])


def test_a_syntax_error_is_refused_with_its_line():
    error = refused("a = 1\nb = = 2\n", {})
    assert "Line 2" in error.message
    assert "`b = = 2`" in error.message


def test_a_return_outside_a_function_is_a_syntax_error_too():
    assert "Line 3" in refused("a = 1\n\nreturn a\n", {}).message


def test_an_expression_too_deep_to_compile_is_refused_in_words():
    assert "cannot be compiled" in refused("x = " + "+".join(["1"] * 50_000), {}).message


def test_a_very_long_expression_that_compiles_is_searched_for_names():
    assert capture("x = " + "+".join(["a"] * 900), {"a": 1}, None).names == ("a",)


def test_without_capture_nothing_travels_even_with_folders_on_the_path(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    assert capture("x", {"x": 1}, None, automatic=False).payload is None


def test_top_level_await_and_ipython_syntax_are_fine():
    cell = '%time x=1\nawait __import__("asyncio").sleep(0)\ny = !echo hi\nprint(x, y[0])'
    assert capture(cell, {}, None).names == ()


@pytest.mark.parametrize("cell", ["", "  \n\n", "# only a comment\n"])
def test_an_empty_cell_is_refused(cell):
    assert "empty" in refused(cell, {}).message


@pytest.mark.parametrize("magic", ["debug", "pdb", "gui"])
def test_a_magic_that_needs_a_person_is_refused_with_its_line(magic):
    error = refused(f"x = 1\ny = 2\n%{magic}\n", {})
    assert "Line 3" in error.message
    assert f"%{magic}" in error.message


def test_the_line_of_a_refused_magic_is_counted_as_typed():
    assert "Line 3" in refused("!echo \\\n  a\n%debug\n", {}).message


def test_a_cell_magic_that_needs_a_person_is_refused():
    assert "Line 1" in refused("%%debug\nx = 1\n", {}).message
