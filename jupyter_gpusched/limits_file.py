"""The administrator's limits as a file: TOML with `[everybody]`, `[groups.NAME]` and `[users.NAME]`.

Read whole or refused, naming the line: a word that is not understood must not leave somebody
without a limit. What the limits mean is ``core.limits``'.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .core.limits import NAMES, PRIORITIES, RLIMITS, Limits, Words
from .core.model import BadRequest
from .core.quantities import MEMORY_FORMS, TIME_FORMS, parse_mib, parse_seconds

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

UNLIMITED = "unlimited"
_SECTIONS = ("everybody", "groups", "users")


class BadLimits(BadRequest):
    """The file cannot be used; the message names the line."""

    code = "bad_limits"


def read_limits(path: str) -> Limits:
    """The limits in this file; none where no file is named. Raises ``BadLimits``."""
    if not path:
        return Limits()
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise BadLimits(
            f"{path} cannot be read: {error}.", hint="It is named by the setting GpuSched.limits."
        ) from None
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadLimits(f"{path}: {error}.", hint="It is TOML; see the how-to on a shared machine.") from None
    return _Reader(path, text).limits(raw)


class _Reader:
    def __init__(self, path: str, text: str) -> None:
        self._path, self._lines = path, text.splitlines()

    def limits(self, raw: Mapping[str, Any]) -> Limits:
        for section in raw:
            if section not in _SECTIONS:
                raise self._wrong((), section, f"there is no section {section!r}", "Known: everybody, groups, users.")
        named = {kind: self._named(kind, raw.get(kind, {})) for kind in ("groups", "users")}
        return Limits(self._words(("everybody",), raw.get("everybody", {})), named["groups"], named["users"])

    def _named(self, kind: str, raw: Any) -> dict[str, Words]:
        if not isinstance(raw, dict) or not all(isinstance(one, dict) for one in raw.values()):
            raise self._wrong((), kind, f"{kind} are given each by a section", f"Write [{kind}.NAME].")
        return {name: self._words((kind, name), words) for name, words in raw.items()}

    def _words(self, section: tuple[str, ...], raw: Any) -> Words:
        if not isinstance(raw, dict):
            raise self._wrong((), section[0], f"{section[0]} is a section", f"Write [{section[0]}].")
        found = {}
        for name, value in raw.items():
            read = _READERS.get(name)
            if read is None:
                raise self._wrong(section, name, f"there is no limit {name!r}", f"Known: {', '.join(_READERS)}.")
            try:
                found[_FIELDS[name]] = None if value == UNLIMITED and name != "rlimits" else read(value)
            except BadRlimit as error:
                key = f"rlimits.{error.name}" if error.name else "rlimits"
                raise self._wrong(section, key, f"rlimits: {error}", error.hint) from None
            except ValueError as error:
                raise self._wrong(section, name, f"{name}: {error}", f"Or write {UNLIMITED!r}.") from None
        return found

    def _wrong(self, section: tuple[str, ...], name: str, what: str, hint: str) -> BadLimits:
        return BadLimits(f"{self._path}, line {self._line(section, name)}: {what}.", hint=hint)

    def _line(self, section: tuple[str, ...], name: str) -> int:
        """Where a key of a section stands; where that cannot be told, the section, or the beginning."""
        here: tuple[str, ...] = ()
        of_section = 1
        for number, line in enumerate(self._lines, start=1):
            head = re.match(r"\s*\[+(.+?)\]+\s*(#.*)?$", line)
            if head:
                here = tuple(part.strip("\"' ") for part in re.findall(r"\"[^\"]*\"|'[^']*'|[^.]+", head[1]))
                of_section = number if here == section else of_section
                if not section and here[:1] == (name,):
                    return number
            key = re.match(r"\s*[\"']?([^\"'=\s.]+)[\"']?\s*[=.]", line)
            if key and key[1] == name and here == section:
                return number
            if here == section and re.match(rf"\s*{re.escape(name)}\s*=", line):
                return number
        outer, _, inner = name.partition(".")
        if inner:  # in a table of its own, else in the line of the outer one
            nested = self._line((*section, outer), inner)
            return nested if nested > 1 else self._line(section, outer)
        return of_section


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 10**9:
        raise ValueError(f"{value!r} is not a whole number from 0 on")
    return value


def _share(value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 1:
        raise ValueError(f"{value!r} is not a part of the whole, such as 0.25")
    return float(value)


def _priorities(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(one in PRIORITIES for one in value):
        raise ValueError(f'{value!r} is not a list of some of "low", "normal", "high"')
    return tuple(priority for priority in PRIORITIES if priority in value)


class BadRlimit(ValueError):
    """A resource limit that cannot be used; ``name`` is its own."""

    def __init__(self, name: str, what: str, hint: str) -> None:
        super().__init__(what)
        self.name, self.hint = name, hint


def _rlimits(value: Any) -> dict[str, int | None]:
    if not isinstance(value, dict):
        raise BadRlimit("", f"{value!r} is not a table", "Write rlimits = { nofile = 4096, core = 0 }.")
    found: dict[str, int | None] = {}
    for name, amount in value.items():
        unit = RLIMITS.get(name)
        if unit is None:
            raise BadRlimit(name, f"there is no resource limit {name!r}", f"Known: {', '.join(RLIMITS)}.")
        try:
            found[name] = None if amount == UNLIMITED and name != "nofile" else _RLIMIT_READERS[unit](amount)
        except ValueError as error:
            also = "" if name == "nofile" else f" Or write {UNLIMITED!r}."
            raise BadRlimit(name, f"{name}: {error}", f"It is a {_RLIMIT_FORMS[unit]}.{also}") from None
        if name == "nofile" and amount > (most := _most_open_files()):
            raise BadRlimit(name, f"nofile: this machine allows {most} at most", "See /proc/sys/fs/nr_open.")
    return found


def _bytes(value: Any) -> int:
    return 0 if value == 0 and not isinstance(value, bool) else parse_mib(value) * 2**20


def _most_open_files() -> int:
    try:
        return int(Path("/proc/sys/fs/nr_open").read_text())
    except (OSError, ValueError):
        return 10**9


_RLIMIT_READERS: dict[str, Callable[[Any], int]] = {
    "bytes": _bytes,
    "seconds": lambda value: math.ceil(parse_seconds(value)),
    "count": _count,
}
_RLIMIT_FORMS = {
    "bytes": f"size such as {MEMORY_FORMS}, or 0",
    "seconds": f"span of processor time such as {TIME_FORMS}",
    "count": "whole number",
}

_READERS: dict[str, Callable[[Any], Any]] = {
    "running_jobs": _count,
    "queued_jobs": _count,
    "gpus": _count,
    "vram_share": _share,
    "cpus": _count,
    "memory": parse_mib,
    "longest_time": parse_seconds,
    "priorities": _priorities,
    "rlimits": _rlimits,
}
_FIELDS = {name: name if name in NAMES else f"{name}_s" for name in _READERS}
