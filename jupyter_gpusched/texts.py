"""Which texts of a submission can be written down, handed to a program, or read as Python.

Refuses what cannot, naming the field; knows nothing of what a field means.
"""

from __future__ import annotations

import ast
import os
import re
import warnings

from .core.model import BadRequest, Work

LONGEST_WORD = 128 * 1024
"""Linux takes no argument and no variable longer than 32 pages."""

LONGEST_READ = 200_000
"""Characters of a cell that are looked at for faults of syntax before it is queued."""

_IPYTHON = re.compile(r"^[ \t]*(?:[%!?,;/]|>>>|In \[)|\?[ \t]*$|=[ \t]*[!%]", re.MULTILINE)


def is_text(text: str) -> bool:
    """Whether it can be written down: half of a surrogate pair has no place in UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def refuse_what_is_no_text(field: str, value: object) -> None:
    """What no file and no program can be given, however deep it lies in a field."""
    unseen = [value]
    while unseen:
        item = unseen.pop()
        if isinstance(item, dict):
            unseen += [*item.keys(), *item.values()]
        elif isinstance(item, (list, tuple)):
            unseen += item
        elif isinstance(item, str):
            if not is_text(item):
                raise BadRequest(
                    f"{field}: {item[:60]!a} is not text: it has half a character, or bytes that are not UTF-8.",
                    field=field,
                    hint="Give text in UTF-8; rename a file whose name is not.",
                )
            if "\0" in item:
                raise BadRequest(f"{field}: a text may not hold a zero character.", field=field)


def refuse_what_no_program_takes(work: Work) -> None:
    """The kernel starts no program whose words or variables are too long; then nothing would run."""
    words = {"argv": [*work.argv, work.shell or ""], "path": [work.path or ""], "args": list(work.args)}
    words["env"] = [f"{name}={value}" for name, value in work.env.items()]
    total = 0
    for field, texts in words.items():
        for text in texts:
            size = len(os.fsencode(text)) + 1
            total += size + 8
            if size > LONGEST_WORD:
                what = f"the variable {text.partition('=')[0]}" if field == "env" else "one of its texts"
                raise BadRequest(
                    f"{field}: {what} has {size // 1024} KiB; no program takes more than {LONGEST_WORD // 1024} KiB.",
                    field=field,
                    hint="Put long text into a file and give its name, or leave the variable out.",
                )
    if total > _all_words():
        field = max(words, key=lambda name: sum(map(len, words[name])))
        raise BadRequest(
            f"{field}: words and variables have {total // 1024} KiB together; "
            f"no program takes more than {_all_words() // 1024} KiB.",
            field=field,
            hint="Put long lists into a file and give its name, or leave variables out.",
        )


def _all_words() -> int:
    """Bytes that argument list and environment may have together, with room for what each attempt adds."""
    return min(os.sysconf("SC_ARG_MAX"), 6 * 2**20) - 64 * 1024


def refuse_no_python(source: str) -> None:
    """A cell that cannot be read is refused at once; one that may hold IPython's own syntax is left to the job."""
    if len(source) > LONGEST_READ or source.lstrip("\r\n")[:1].isspace() or _IPYTHON.search(source):
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as error:
        raise BadRequest(
            f"source: line {error.lineno}: {error.msg}.", field="source", hint="Correct the cell and submit it again."
        ) from None
    except (ValueError, OverflowError, RecursionError, MemoryError):
        return
