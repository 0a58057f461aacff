"""The words of the front end that want translating, and what each catalogue lacks of them.

``python labextension/catalogue.py`` writes into every catalogue under ``jupyter_gpusched/locale`` an
empty entry for each new text and takes out what no source uses any more; a test fails on empty ones.
The catalogues are JupyterLab's: JSON objects of texts and their plural forms.

What the server says in sentences of its own is translated by patterns, those of ``sentences.txt``: each is a text
like the others, and one more entry lists them all, since a page can ask a catalogue only for what it names.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

HERE = Path(__file__).parent
CATALOGUES = sorted((HERE.parent / "jupyter_gpusched" / "locale").glob("*/LC_MESSAGES/jupyter_gpusched.json"))

_LITERAL = r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\""""
_CALL = re.compile(r"\btrans\.(?:__|_n)\(\s*")
_PLURAL_CALL = re.compile(r"\btrans\._n\(\s*")
_TEXT = re.compile(_LITERAL)
_ESCAPE = re.compile(r"\\(.)")
LIST = "sentences of the server"
"""The entry that lists the patterns."""

_SPOKEN = {"title", "description", "jupyter.lab.setting-icon-label"}


class Unreadable(ValueError):
    """A text that is put together at run time: no catalogue can hold it."""


def plurals(folder: Path = HERE / "src") -> set[str]:
    """Those of the texts that depend on a number. JupyterLab takes an entry for one only if it has two forms at least,
    also of a language that has one."""
    return texts(folder, _PLURAL_CALL)


def texts(folder: Path = HERE / "src", calls: re.Pattern[str] = _CALL) -> set[str]:
    """What the sources say through ``trans``; of plural texts the singular, which is their key."""
    found = set()
    for source in sorted(folder.glob("*.ts*")):
        text = source.read_text()
        for call in calls.finditer(text):
            literal = _TEXT.match(text, call.end())
            if literal is None:
                line = text.count("\n", 0, call.start()) + 1
                raise Unreadable(f"{source.name}:{line}: the text of a translation must be a plain string")
            found.add(_ESCAPE.sub(r"\1", literal[0][1:-1]))
    return found


def of_schemas(folder: Path = HERE / "schema") -> set[str]:
    """What the settings editor shows of our settings."""

    def found(part: object) -> set[str]:
        if isinstance(part, dict):
            own = {text for name, text in part.items() if name in _SPOKEN and isinstance(text, str)}
            return own.union(*map(found, part.values()))
        return set().union(*map(found, part)) if isinstance(part, list) else set()

    return found(json.loads((folder / "plugin.json").read_text()))


def of_server(source: Path = HERE / "sentences.txt") -> list[str]:
    """The patterns in their order."""
    return [line for line in source.read_text().splitlines() if line and not line.startswith("# ")]


def read(catalogue: Path) -> dict[str, list[str]]:
    """The texts of a catalogue with what they become."""
    entries = json.loads(catalogue.read_text())
    for name in ("", LIST):
        entries.pop(name, None)
    return entries


def placeholders(text: str) -> set[str]:
    return set(re.findall(r"%\d|<\d>|\{\d\}", text))


def _update(catalogue: Path) -> list[str]:
    head = json.loads(catalogue.read_text())[""]
    known = read(catalogue)
    many = plurals()

    def forms_of(text: str) -> list[str]:
        forms = known.get(text, [""])
        return [forms[0]] * 2 if text in many and len(forms) == 1 else forms

    entries = {text: forms_of(text) for text in sorted(texts() | of_schemas() | {*of_server()})}
    listed = {LIST: ["\n".join(of_server())]}
    catalogue.write_text(json.dumps({"": head} | listed | entries, ensure_ascii=False, indent=2) + "\n")
    return [text for text, forms in entries.items() if not all(forms)]


if __name__ == "__main__":
    for path in CATALOGUES:
        for missing in _update(path):
            print(f"{path.parts[-3]}: {missing!r} is not translated yet")  # noqa: T201
