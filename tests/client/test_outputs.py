"""Output lines folded into notebook outputs, and bounded."""

import nbformat

from jupyter_gpusched.outputs import MOST_BYTES, MOST_LINES, bounded, fold


def stream(text, name="stdout"):
    return {"output_type": "stream", "name": name, "text": text}


def display(text, display_id=None):
    line = {"output_type": "display_data", "data": {"text/plain": text}, "metadata": {}}
    return line | ({"transient": {"display_id": display_id}} if display_id else {})


def update(text, display_id):
    return display(text, display_id) | {"output_type": "update_display_data"}


def test_adjacent_parts_of_one_stream_become_one():
    assert fold([stream("a"), stream("b"), stream("e", "stderr"), stream("c")]) == [
        stream("ab"),
        stream("e", "stderr"),
        stream("c"),
    ]


def test_order_is_kept_and_the_result_is_valid_nbformat():
    error = {"output_type": "error", "ename": "E", "evalue": "boom", "traceback": ["tb"]}
    result = {"output_type": "execute_result", "data": {"text/plain": "1"}, "metadata": {}, "execution_count": 1}
    outputs = fold([stream("a"), display("d", "x"), result, error])
    assert [output["output_type"] for output in outputs] == ["stream", "display_data", "execute_result", "error"]
    cell = nbformat.v4.new_code_cell(outputs=[nbformat.from_dict(output) for output in outputs])
    nbformat.validate(nbformat.v4.new_notebook(cells=[cell]))


def test_an_update_changes_every_display_of_its_id_in_place():
    outputs = fold([display("one", "a"), display("other", "b"), display("one", "a"), update("two", "a")])
    assert [output["data"]["text/plain"] for output in outputs] == ["two", "other", "two"]


def test_clear_output_removes_what_was_there():
    line = {"output_type": "clear_output", "wait": False}
    assert fold([stream("a"), line, stream("b")]) == [stream("b")]
    assert fold([stream("a"), line]) == []


def test_clear_output_with_wait_keeps_the_old_until_something_new_comes():
    line = {"output_type": "clear_output", "wait": True}
    assert fold([stream("a"), line]) == [stream("a")]
    assert fold([stream("a"), line, stream("b")]) == [stream("b")]


def test_short_outputs_are_not_touched():
    outputs = [stream("a\n"), display("d")]
    assert bounded(outputs, how_to_get_the_rest="look") == outputs


def test_a_long_stream_keeps_its_last_lines_and_says_how_to_get_the_rest():
    note, kept = bounded([stream("".join(f"{n}\n" for n in range(1000)))], how_to_get_the_rest="ask for it")
    assert kept["text"].splitlines() == [str(n) for n in range(1000 - MOST_LINES, 1000)]
    assert "ask for it" in note["text"]


def test_one_endless_line_is_bounded_in_bytes():
    _, kept = bounded([stream("é" * 200_000)], how_to_get_the_rest="look")
    assert 0 < len(kept["text"].encode()) <= MOST_BYTES


def test_the_bound_holds_for_a_stream_in_many_parts():
    parts = [stream(f"{n}\n", name) for n in range(2000) for name in ("stdout", "stderr")]
    kept = bounded(parts, how_to_get_the_rest="look")[1:]
    assert len(kept) == 2 * MOST_LINES
    assert kept[-1]["text"] == "1999\n"


def test_of_many_displays_the_newest_stay():
    kept = bounded([display(str(n)) for n in range(500)], how_to_get_the_rest="look")
    assert "400 displays" in kept[0]["text"]
    assert kept[-1]["data"]["text/plain"] == "499"


def test_cleared_output_of_one_cell_leaves_the_other_cells_of_a_notebook_alone():
    lines = [
        {"output_type": "stream", "name": "stdout", "text": "one\n", "cell": 1},
        {"output_type": "stream", "name": "stdout", "text": "gone\n", "cell": 2},
        {"output_type": "clear_output", "wait": True, "cell": 2},
        {"output_type": "stream", "name": "stdout", "text": "two\n", "cell": 2},
    ]
    assert [(output["cell"], output["text"]) for output in fold(lines)] == [(1, "one\n"), (2, "two\n")]
