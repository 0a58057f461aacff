"""What ``lr=0.1,0.01 seed=1..5`` means, and what becomes of a submission with it."""

import pytest

from jupyter_gpusched.core.model import BadRequest
from jupyter_gpusched.options import OptionParser, add_array_options, add_job_options, parse, read_array
from jupyter_gpusched.submission import read_job, read_spec
from jupyter_gpusched.sweeps import applied, combinations, read, values_of


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.1,0.01", [0.1, 0.01]),
        ("1..5", [1, 2, 3, 4, 5]),
        ("5..1..2", [5, 3, 1]),
        ("-2..2", [-2, -1, 0, 1, 2]),
        ("0..100..50,7", [0, 50, 100, 7]),
        ("1e-4", [1e-4]),
        ("adam,sgd", ["adam", "sgd"]),
        ("'a,b',\"c\"", ["a,b", "c"]),
        ("True,false,None", [True, False, None]),
        ("007,1_000", ["007", 1000]),
        ("a b, c", ["a b", "c"]),
        ("", []),
        ("(1,'a'b", ["(1", "'a'b"]),
        ("'0.1..0.5',../data,a..z", ["0.1..0.5", "../data", "a..z"]),
    ],
)
def test_values_are_literals_where_they_are_and_text_otherwise(text, values):
    found = list(values_of(text))
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lr="], "not NAME=VALUES"),
        (["lr"], "not NAME=VALUES"),
        (["1x=2"], "not NAME=VALUES"),
        (["lr=1", "lr=2"], "given twice"),
        (["lr=1,"], "ends with a comma"),
        (["n=1..1000000"], "too many values"),
        (["n=1..5..0"], "never gets on"),
        (["lr=0.1..0.5"], r"0\.1\.\.0\.5 is no range: ranges are of whole numbers"),
        (["lr=1e-4..1e-2"], "is no range"),
        (["lr=7,0..1..0.1"], r"0\.\.1\.\.0\.1 is no range"),
        (["n=1..5..-1"], "is no range"),
    ],
)
def test_what_is_no_sweep_is_refused(words, said):
    with pytest.raises(BadRequest, match=said) as refused:
        read(words)
    assert refused.value.field == "sweep"


def test_all_combinations_are_made_the_last_variable_changing_fastest():
    assert combinations({"a": [1, 2], "b": ["x", "y"]}) == [
        {"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"},
    ]  # fmt: skip
    with pytest.raises(BadRequest, match="10100 combinations are too many"):
        combinations({"a": range(101), "b": range(100)})
    with pytest.raises(BadRequest, match="no combination"):
        combinations({"a": []})


def spec(**fields):
    return read_spec({"sweep": {"lr": 0.1, "opt": "a b"}, **fields})


def test_values_stand_where_words_name_them_and_other_braces_stay():
    put = applied(spec(path="t.py", args=["--lr={lr}", '{"lr": 1}', "{other}", "{lr}{lr}"], name="run-{lr}"))
    assert put.args == ["--lr=0.1", '{"lr": 1}', "{other}", "0.10.1"]
    assert put.name == "run-0.1"
    assert applied(spec(argv=["x", "{opt}"])).argv == ["x", "a b"]
    assert applied(spec(argv="echo {opt} > out-{lr}")).argv == "echo 'a b' > out-0.1"
    assert applied(spec(path="n.ipynb", parameters={"lr": 1, "k": 2})).parameters == {"lr": 0.1, "k": 2, "opt": "a b"}


@pytest.mark.parametrize(
    "sweep", [{"a-b": 1}, {"class": 1}, {"x": [1]}, {"lr": 1, "LR": 2}, {"ü": 1}]
)  # fmt: skip
def test_names_and_values_that_no_variable_can_have_are_refused(sweep):
    with pytest.raises(BadRequest) as refused:
        applied(read_spec({"argv": ["true"], "sweep": sweep}))
    assert refused.value.field == "sweep"


def test_without_a_name_elements_are_named_by_what_all_run():
    job, work, _ = read_job(
        {"path": "t.py", "args": ["{lr}"], "sweep": {"lr": 2}, "gpus": 0}, job_id="a", owner="a", now=0.0, home="/"
    )
    assert (job.name, job.sweep, work.args) == ("t.py", (("lr", 2),), ("2",))
    job, _, _ = read_job(
        {"argv": ["echo", "{lr}"], "sweep": {"lr": 2}, "gpus": 0}, job_id="a", owner="a", now=0.0, home="/"
    )
    assert job.name == "echo {lr}"


def parsed(*words):
    parser = OptionParser(add_help=False, allow_abbrev=False)
    add_job_options(parser)
    add_array_options(parser)
    return parse(words, parser)


def test_all_words_after_sweep_that_look_like_a_variable_belong_to_it():
    asked = parsed("--sweep", "lr=0.1,0.01", "seed=1..2", "--vram", "4G", "--throttle", "3", "train.py", "x=1")
    assert read_array(asked.own) == ({"lr": [0.1, 0.01], "seed": [1, 2]}, 3)
    assert asked.fields == {"vram": "4G"}
    assert asked.rest == ["train.py", "x=1"]
    again = parsed("--sweep=lr=1", "b=2", "--sweep", "c=3", "--", "d=4")
    assert read_array(again.own) == ({"lr": [1], "b": [2], "c": [3]}, None)
    assert again.rest == ["d=4"]


def test_a_throttle_is_for_sweeps():
    with pytest.raises(BadRequest, match="--throttle"):
        read_array(parsed("--throttle", "3", "train.py").own)
    with pytest.raises(BadRequest, match="whole number"):
        read_array(parsed("--sweep", "a=1", "--throttle", "0", "train.py").own)
