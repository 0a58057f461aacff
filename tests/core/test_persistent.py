"""The persistent collections against the plain ones."""

from bisect import insort

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpusched.core.persistent import Line, Map

keys = st.text("abc", max_size=3)
steps = st.lists(st.tuples(st.dictionaries(keys, st.integers(), max_size=4), st.lists(keys, max_size=3)), max_size=8)


@given(steps)
def test_a_map_holds_what_a_dictionary_would_and_its_earlier_versions_stay(changes):
    now, plain = Map(), {}
    versions = []
    for wanted, drop in changes:
        put = {key: value for key, value in wanted.items() if key not in drop}
        versions.append((now, dict(plain)))
        now = now.changed(put, drop)
        plain = {key: value for key, value in {**plain, **put}.items() if key not in drop}
        assert (dict(now), len(now), list(now)) == (plain, len(plain), sorted(plain))
    assert all(dict(older) == then for older, then in versions)
    assert Map(plain) == now


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2000)), max_size=60), st.integers(0, 1500))
def test_a_line_is_sorted_whatever_joins_and_leaves(moves, crowd):
    plain = list(range(0, 2 * crowd, 2))
    line = Line(plain)
    for joins, item in moves:
        if joins:
            line = line.with_item(item)
            insort(plain, item)
        elif item in plain:
            line = line.without_item(item)
            plain.remove(item)
        else:
            with pytest.raises(KeyError):
                line.without_item(item)
    assert (list(line), len(line)) == (plain, len(plain))
    assert line == Line(reversed(plain))
    assert not plain or line.first == plain[0]


@given(st.sets(st.integers(0, 3000), max_size=900), st.randoms(use_true_random=False), st.floats(0.0, 1.0))
def test_several_leave_a_line_at_once(items, dice, part):
    gone = dice.sample(sorted(items), int(part * len(items)))
    assert list(Line(items).without(gone)) == sorted(items.difference(gone))
    with pytest.raises(KeyError):
        Line(items).without([*gone, 4000])


@given(
    st.lists(st.integers(0, 3000), max_size=900), st.lists(st.lists(st.integers(-10, 3010), max_size=700), max_size=4)
)
def test_several_join_a_line_at_once(items, crowds):
    line, plain = Line(items), list(items)
    for crowd in crowds:
        line = line.with_items(crowd)
        plain += crowd
        assert (list(line), len(line)) == (sorted(plain), len(plain))
        assert all(len(chunk) <= 512 for chunk in line._chunks)
    for item in plain:
        line = line.without_item(item)
    assert not line
