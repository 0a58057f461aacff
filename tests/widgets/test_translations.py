"""The catalogues are complete, say what the sources say, and are found by JupyterLab."""

from __future__ import annotations

import importlib.util
import json
import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from jupyter_gpusched import translations

SCRIPT = Path(__file__).parents[2] / "labextension" / "catalogue.py"
SPEC = importlib.util.spec_from_file_location("catalogue", SCRIPT)
catalogue = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(catalogue)


@pytest.mark.parametrize("path", catalogue.CATALOGUES, ids=lambda path: path.parts[-3])
def test_every_text_of_the_front_end_is_translated(path):
    known = catalogue.read(path)
    missing = sorted(
        text
        for text in catalogue.texts() | catalogue.of_schemas() | {*catalogue.of_server()}
        if not all(known.get(text, [""]))
    )
    assert not missing, f"run python {SCRIPT} and fill in what it names"


@pytest.mark.parametrize("path", catalogue.CATALOGUES, ids=lambda path: path.parts[-3])
def test_a_translation_has_a_place_for_each_figure_of_its_text(path):
    for text, forms in catalogue.read(path).items():
        for form in forms:
            assert catalogue.placeholders(form) == catalogue.placeholders(text), text


@pytest.mark.parametrize("path", catalogue.CATALOGUES, ids=lambda path: path.parts[-3])
def test_texts_that_depend_on_a_number_have_two_forms_as_jupyterlab_demands_and_all_others_one(path):
    many = catalogue.plurals()
    for text, forms in catalogue.read(path).items():
        assert len(forms) >= 2 if text in many else len(forms) == 1, text


@pytest.mark.parametrize("path", catalogue.CATALOGUES, ids=lambda path: path.parts[-3])
def test_a_catalogue_lists_the_patterns_of_what_the_server_says(path):
    assert json.loads(path.read_text())[catalogue.LIST] == ["\n".join(catalogue.of_server())]


def test_the_places_of_a_pattern_are_numbered_as_they_come():
    for pattern in catalogue.of_server():
        numbers = [int(number) for number in re.findall(r"[<{](\d)[>}]", pattern)]
        assert numbers == list(range(1, len(numbers) + 1)), pattern


def test_the_patterns_say_what_the_sources_say():
    """Word by word: who changes what the server says changes the patterns."""
    package = SCRIPT.parents[1] / "jupyter_gpusched"
    spoken = set(re.findall(r"\w+", "".join(path.read_text() for path in package.rglob("*.py"))))
    for pattern in catalogue.of_server():
        unsaid = {
            word for word in re.findall(r"\b[a-z_]{4,}\b", pattern) if not {word, word.removesuffix("s")} & spoken
        }
        assert not unsaid, pattern


def test_chinese_is_one_of_the_languages_and_its_catalogue_says_so():
    (path,) = [path for path in catalogue.CATALOGUES if path.parts[-3] == "zh_CN"]
    head = json.loads(path.read_text())[""]
    assert (head["domain"], head["language"]) == ("jupyter_gpusched", "zh-CN")
    assert head["plural_forms"] == "nplurals=1; plural=0;"


def test_a_text_that_is_put_together_at_run_time_is_found_out(tmp_path):
    (tmp_path / "bad.ts").write_text("const words = trans.__(`so ${many}`);")
    with pytest.raises(catalogue.Unreadable, match=r"bad\.ts:1"):
        catalogue.texts(tmp_path)


def test_texts_with_quotation_marks_and_line_breaks_are_found(tmp_path):
    (tmp_path / "good.tsx").write_text("""trans.__("others' jobs"); trans._n(\n  'it\\'s %1', 'they are %1', n)""")
    assert catalogue.texts(tmp_path) == {"others' jobs", "it's %1"}


def test_jupyterlab_finds_our_words_with_and_without_the_chinese_pack_of_the_project():
    found = [entry for entry in entry_points(group="jupyterlab.locale") if entry.name == "jupyter_gpusched"]
    if not found:
        pytest.skip("the installation does not know our translations yet: pip install -e .")
    utils = pytest.importorskip("jupyterlab_server.translation_utils")
    words, trouble = utils.get_language_pack("zh_CN")
    assert not trouble
    assert words["jupyter_gpusched"]["running"] == ["运行中"]
    assert utils.get_language_packs()[0]["zh_CN"]["displayName"] == "Chinese (Simplified, China)"


def test_where_the_project_s_pack_is_installed_it_stays_the_pack(tmp_path, monkeypatch):
    module = tmp_path / "some_language_pack" / "__init__.py"
    module.parent.mkdir()
    module.write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert translations._pack("some_language_pack", "zh_CN").__file__ == str(module)
    own = Path(translations._pack("there_is_no_such_pack", "zh_CN").__file__).parent
    assert [path.name for path in own.rglob("*.json")] == ["jupyter_gpusched.json"]
