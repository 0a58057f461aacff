"""Times of day in a zone: what the change of clocks leaves out or brings twice is refused with both choices."""

from __future__ import annotations

from datetime import date, datetime, timezone

import pytest

from jupyter_gpusched.core.model import BadRequest
from jupyter_gpusched.localtime import moment, own_zone, zone_of

BERLIN = zone_of("Europe/Berlin")
DAY = date(2026, 12, 4)


def utc(*parts):
    return datetime(*parts, tzinfo=timezone.utc).timestamp()


def at(text, zone=BERLIN, today=DAY):
    return moment(text, zone, today=today, field="from")


@pytest.mark.parametrize(
    ("text", "moment_"),
    [
        ("2026-12-04 13:00", utc(2026, 12, 4, 12)),
        ("2026-12-04T13:00:30", utc(2026, 12, 4, 12, 0, 30)),
        ("2026-07-01 13:00", utc(2026, 7, 1, 11)),
        ("13:00", utc(2026, 12, 4, 12)),
        ("9:05", utc(2026, 12, 4, 8, 5)),
        ("2026-12-04T13:00Z", utc(2026, 12, 4, 13)),
        ("2026-12-04 13:00-05:00", utc(2026, 12, 4, 18)),
    ],
)
def test_a_time_is_a_moment(text, moment_):
    assert at(text) == moment_


def test_a_time_that_the_clocks_leave_out_is_refused_with_the_hour_before_and_after():
    with pytest.raises(BadRequest) as refused:
        at("2026-03-29 02:30")
    assert "2026-03-29 02:30 does not exist in Europe/Berlin" in refused.value.message
    assert refused.value.hint == "Write 2026-03-29T01:30+01:00 or 2026-03-29T03:30+02:00."
    assert refused.value.field == "from"


def test_a_time_that_comes_twice_is_refused_with_both():
    with pytest.raises(BadRequest) as refused:
        at("2026-10-25 02:30")
    assert "2026-10-25 02:30 comes twice in Europe/Berlin" in refused.value.message
    first, second = "2026-10-25T02:30+02:00", "2026-10-25T02:30+01:00"
    assert refused.value.hint == f"Write {first} for the first or {second} for the second."
    assert at(second) - at(first) == 3600.0


@pytest.mark.parametrize("text", ["2026-03-29 01:59", "2026-03-29 03:00", "2026-10-25 01:59", "2026-10-25 03:00"])
def test_the_minutes_beside_a_change_of_clocks_are_as_good_as_others(text):
    assert datetime.fromtimestamp(at(text), BERLIN).strftime("%Y-%m-%d %H:%M") == text


def test_a_day_with_a_change_of_clocks_has_its_own_length():
    assert at("2026-03-30 00:00") - at("2026-03-29 00:00") == 23 * 3600
    assert at("2026-10-26 00:00") - at("2026-10-25 00:00") == 25 * 3600


@pytest.mark.parametrize(
    "text", ["", "soon", "25:00", "2026-12-04", "2026-13-01 10:00", "13:00 tomorrow", "99999-01-01 10:00"]
)
def test_what_is_no_time_is_refused_with_the_forms(text):
    with pytest.raises(BadRequest) as refused:
        at(text)
    assert "2026-12-04 13:00" in refused.value.hint


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../etc/passwd", "/etc/passwd", "a\0b"])
def test_an_unknown_zone_is_refused(name):
    with pytest.raises(BadRequest) as refused:
        zone_of(name)
    assert refused.value.field == "zone"


def test_the_own_zone_is_that_of_the_environment(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    assert own_zone() == "Europe/Berlin"
    monkeypatch.setenv("TZ", ":Asia/Tokyo")
    assert own_zone() == "Asia/Tokyo"
    monkeypatch.setenv("TZ", "CET-1CEST")
    assert own_zone() is None


@pytest.mark.parametrize("text", ["0001-01-01 00:00", "1969-12-31 12:00", "9999-12-31 23:59"])
def test_a_time_that_some_zone_could_not_say_is_refused(text):
    with pytest.raises(BadRequest, match="is not a time"):
        at(text)
