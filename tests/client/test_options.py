"""The options of a job: units at once, errors by name."""

import pytest

from jupyter_gpusched.core.model import BadRequest, NotAvailable
from jupyter_gpusched.options import OptionParser, add_job_options, option_of, parse
from jupyter_gpusched.wire import JobSpec


def a_parser():
    parser = OptionParser(prog="gpujob", add_help=False, allow_abbrev=False)
    add_job_options(parser)
    parser.add_argument("--wait", action="store_true")
    return parser


def refused(*words):
    with pytest.raises(BadRequest) as caught:
        parse(words, a_parser())
    return caught.value


def test_every_option_becomes_its_json_field():
    words = "--name n --vram 4G --gpus 2 --cpus 3 --mem 16G --exclusive --gpu-model A100 --prefer 0,1 --priority high"
    words += " --time 2h --retries 1 --on-oom retry --no-cap --grace 0s --in a,b --in c --out d"
    words += " --cwd x --python p --tag t --key k"
    assert parse(words.split(), a_parser()).fields == {
        "name": "n",
        "vram": "4G",
        "gpus": 2,
        "cpus": 3,
        "memory": "16G",
        "exclusive": True,
        "gpu_model": "A100",
        "preferred_gpus": ["0", "1"],
        "priority": "high",
        "time_limit": "2h",
        "retries": 1,
        "on_oom": "retry",
        "cap": False,
        "grace": "0s",
        "inputs": ["a", "b", "c"],
        "outputs": ["d"],
        "cwd": "x",
        "python": "p",
        "tags": ["t"],
        "idempotency_key": "k",
    }


def test_every_field_that_asks_for_something_has_an_option():
    parser = a_parser()
    what_runs = {"kind", "argv", "path", "args", "parameters", "source", "payload", "notebook", "item", "sweep"}
    for field in set(JobSpec.__struct_fields__) - what_runs:
        assert option_of(field) in parser.long_options()


def test_nothing_given_is_nothing_sent():
    asked = parse([], a_parser())
    assert asked.fields == {}
    assert asked.own == {"wait": False}


def test_everything_after_the_first_other_word_is_left_alone():
    asked = parse(["--vram", "4G", "train.py", "--vram", "9", "--unknown"], a_parser())
    assert asked.rest == ["train.py", "--vram", "9", "--unknown"]


def test_two_dashes_end_the_options():
    assert parse(["--wait", "--", "--odd", "name"], a_parser()).rest == ["--odd", "name"]


def test_an_option_with_an_equals_sign_is_the_same():
    assert parse(["--vram=4G", "x"], a_parser()).fields == {"vram": "4G"}


@pytest.mark.parametrize("text", ["4", "4g b", "-1G", "0", "0G", "nan", "1e99G", ""])
def test_a_bad_amount_is_refused_naming_the_option_and_the_forms(text):
    error = refused("--vram", text)
    assert error.message.startswith("--vram: ")
    assert error.field == "vram"
    assert "4096M" in error.message
    assert error.hint == "For example --vram 4G."


@pytest.mark.parametrize("text", ["4G", "4GB", "4GiB", "4096M", "0.5G"])
def test_the_documented_amounts_are_accepted(text):
    assert parse(["--vram", text], a_parser()).fields == {"vram": text}


def test_a_bad_time_names_the_option():
    assert refused("--time", "90").message.startswith("--time: ")


@pytest.mark.parametrize("words", [("--gpus", "one"), ("--gpus", "-1"), ("--retries", "1.5"), ("--cpus", "0")])
def test_a_bad_count_names_the_option(words):
    assert refused(*words).message.startswith(words[0] + ":")


def test_a_bad_variable_name_is_refused():
    assert refused("--out", "model,1x").field == "outputs"


def test_an_unknown_option_is_refused_with_a_suggestion():
    error = refused("--vramm", "4G")
    assert "--vramm" in error.message
    assert error.hint == "Did you mean --vram?"


def test_an_abbreviated_option_is_unknown():
    assert "--vra" in refused("--vra", "4G").message


def test_an_option_without_its_value_is_refused():
    assert "--vram needs a value" in refused("--vram").message


def test_a_bad_choice_says_which_there_are():
    assert "high" in refused("--priority", "urgent").message


def test_variables_are_read_as_key_and_value():
    assert parse(["--env", "A=1", "--env", "B=x=y"], a_parser()).env == {"A": "1", "B": "x=y"}
    assert refused("--env", "A").field == "env"


def test_parameters_are_json_or_pythons_constants_or_text():
    words = ["a=1", "b=0.5", "c=true", "d=None", "e=abc", 'f=[1, "x"]', "g=x=y", "h=NaN", 'i="1"']
    parsed = parse([word for text in words for word in ("--param", text)], a_parser())
    assert parsed.fields["parameters"] == {
        "a": 1, "b": 0.5, "c": True, "d": None, "e": "abc", "f": [1, "x"], "g": "x=y", "h": "NaN", "i": "1",
    }  # fmt: skip
    assert refused("--param", "n").field == "parameters"


@pytest.mark.parametrize(
    "words",
    [("--notify", "me")],
)
def test_an_option_of_a_later_version_is_refused_as_not_available(words):
    error = refused(*words)
    assert isinstance(error, NotAvailable)
    assert words[0] in error.message
