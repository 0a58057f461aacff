"""Two collections that are never changed in place, cheap to copy with a small change.

``Map`` is a dictionary in a tree of small buckets, ``Line`` a sorted sequence in chunks: a change
copies one branch or chunk, so that its cost hardly grows with what they hold. They know
nothing of jobs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Generic, TypeVar, overload

V = TypeVar("V")
T = TypeVar("T")
D = TypeVar("D")

_WIDTH = 32
_MASK = _WIDTH - 1
_SHIFT = 5
_EMPTY: dict[str, Any] = {}
_CHUNK = 256

_Branch = tuple[dict[str, V], ...]


_ALL = (1 << 2 * _SHIFT) - 1
_NO_BRANCHES: tuple[_Branch[Any], ...] = ((_EMPTY,) * _WIDTH,) * _WIDTH


class Map(Mapping[str, V]):
    """Text to values. It is iterated over in the order of its keys, whatever its history."""

    __slots__ = ("_branches", "_size")

    def __init__(self, items: Mapping[str, V] | None = None) -> None:
        self._branches: tuple[_Branch[V], ...] = _NO_BRANCHES
        self._size = 0
        if items:
            filled = self.changed(items)
            self._branches, self._size = filled._branches, filled._size

    def changed(self, put: Mapping[str, V], drop: Iterable[str] = ()) -> Map[V]:
        """This map with some keys set and others gone; a key to drop need not be there."""
        fresh: dict[int, dict[str, V]] = {}
        branches = self._branches
        size = self._size
        for key, value in put.items():
            at = hash(key) & _ALL
            bucket = fresh.get(at)
            if bucket is None:
                bucket = fresh[at] = branches[at >> _SHIFT][at & _MASK].copy()
            size += key not in bucket
            bucket[key] = value
        for key in drop:
            at = hash(key) & _ALL
            if key not in fresh.get(at, branches[at >> _SHIFT][at & _MASK]):
                continue
            if at not in fresh:
                fresh[at] = branches[at >> _SHIFT][at & _MASK].copy()
            del fresh[at][key]
            size -= 1
        if not fresh:
            return self
        opened: dict[int, list[dict[str, V]]] = {}
        for at, bucket in fresh.items():
            number = at >> _SHIFT
            branch = opened.get(number)
            if branch is None:
                branch = opened[number] = list(branches[number])
            branch[at & _MASK] = bucket
        row = list(branches)
        for number, branch in opened.items():
            row[number] = tuple(branch)
        after: Map[V] = Map.__new__(Map)
        after._branches, after._size = tuple(row), size
        return after

    def __getitem__(self, key: str) -> V:
        at = hash(key)
        return self._branches[at >> _SHIFT & _MASK][at & _MASK][key]

    @overload
    def get(self, key: str, /) -> V | None: ...
    @overload
    def get(self, key: str, /, default: V | D) -> V | D: ...
    def get(self, key: str, /, default: Any = None) -> Any:
        at = hash(key)
        return self._branches[at >> _SHIFT & _MASK][at & _MASK].get(key, default)

    def __contains__(self, key: object) -> bool:
        at = hash(key)
        return key in self._branches[at >> _SHIFT & _MASK][at & _MASK]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(key for branch in self._branches for bucket in branch for key in bucket))

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"Map({dict(self)!r})"


class Line(Generic[T]):
    """Comparable things in order."""

    __slots__ = ("_chunks", "_size")

    def __init__(self, items: Iterable[T] = ()) -> None:
        ranked: list[Any] = sorted(items)
        self._chunks: tuple[tuple[T, ...], ...] = tuple(
            tuple(ranked[at : at + _CHUNK]) for at in range(0, len(ranked), _CHUNK)
        )
        self._size = len(ranked)

    def with_item(self, item: T) -> Line[T]:
        if not self._chunks:
            return self._of(((item,),), 1)
        at = min(self._chunk_of(item), len(self._chunks) - 1)
        chunk: list[Any] = list(self._chunks[at])
        insort(chunk, item)
        parts = (tuple(chunk),) if len(chunk) <= 2 * _CHUNK else (tuple(chunk[:_CHUNK]), tuple(chunk[_CHUNK:]))
        return self._of((*self._chunks[:at], *parts, *self._chunks[at + 1 :]), self._size + 1)

    def with_items(self, items: Iterable[T]) -> Line[T]:
        """Where many come at once, all from the first of them on is put up anew, unless that is far more than they."""
        many: list[Any] = sorted(items)
        if not many:
            return self
        at = min(self._chunk_of(many[0]), max(0, len(self._chunks) - 1))
        if len(many) == 1 or sum(map(len, self._chunks[at:])) > 16 * len(many):
            line = self
            for item in many:
                line = line.with_item(item)
            return line
        rest = sorted([*chain.from_iterable(self._chunks[at:]), *many])
        parts = (tuple(rest),) if len(rest) <= 2 * _CHUNK else Line(rest)._chunks
        return self._of((*self._chunks[:at], *parts), self._size + len(many))

    def without_item(self, item: T) -> Line[T]:
        """Raises ``KeyError`` for something that does not stand here."""
        at = self._chunk_of(item)
        chunk: tuple[Any, ...] = self._chunks[at] if at < len(self._chunks) else ()
        place = bisect_left(chunk, item)
        if place == len(chunk) or chunk[place] != item:
            raise KeyError(item)
        rest = chunk[:place] + chunk[place + 1 :]
        kept = (rest,) if rest else ()
        return self._of((*self._chunks[:at], *kept, *self._chunks[at + 1 :]), self._size - 1)

    def without(self, items: Iterable[T]) -> Line[T]:
        """Raises ``KeyError`` if something does not stand here."""
        gone = set(items)
        if len(gone) * 8 < self._size:
            line = self
            for item in gone:
                line = line.without_item(item)
            return line
        rest = [item for item in self if item not in gone]
        if len(rest) + len(gone) != self._size:
            raise KeyError(gone.difference(self))
        return Line(rest)

    @property
    def first(self) -> T:
        return self._chunks[0][0]

    def __iter__(self) -> Iterator[T]:
        for chunk in self._chunks:
            yield from chunk

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Line) and self._size == other._size and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Line({list(self)!r})"

    def _chunk_of(self, item: Any) -> int:
        """The chunk in which the item stands or would stand."""
        chunks: Any = self._chunks
        return bisect_left(chunks, item, key=lambda chunk: chunk[-1])

    @staticmethod
    def _of(chunks: tuple[tuple[Any, ...], ...], size: int) -> Line[Any]:
        line: Line[Any] = Line.__new__(Line)
        line._chunks, line._size = chunks, size
        return line
