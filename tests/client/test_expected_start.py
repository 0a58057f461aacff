"""When a job will probably start, in words and in the local time of whoever reads it."""

import time

import pytest

from jupyter_gpusched.card import job_text
from jupyter_gpusched.describe import details, expected, gpu_notes, sentence
from tests.client.conftest import a_gpu, a_view


@pytest.fixture(autouse=True)
def berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


AT = 1_772_457_600.0  # 2026-03-02 14:20 in Berlin
WAITS = a_view(estimated_start=AT, estimated_start_range=[AT - 1800, AT + 3000])


def test_the_hour_is_enough_for_today():
    assert expected(WAITS, AT - 3600) == "starts at about 14:20 (13:50 to 15:10)"


def test_the_day_is_told_where_it_is_another():
    assert expected(WAITS, AT - 86400) == "starts at about Mon 14:20 (Mon 13:50 to Mon 15:10)"
    assert expected(WAITS, AT - 10 * 86400).startswith("starts at about 2026-03-02 14:20 (")


def test_nothing_is_said_where_nothing_is_known():
    assert expected(a_view(), AT) is None
    assert "starts" not in sentence(a_view())


def test_cards_tables_and_details_have_it():
    for told in (sentence(WAITS), job_text(WAITS), details(WAITS)):
        assert "14:20" in told
        assert "number 1 in the queue" in told


def test_a_card_says_for_whom_it_is_kept():
    one = {"user": "ann", "start": AT - 4800, "end": AT + 9600, "cause": "demo", "active": False, "reaching_in": 2}
    assert gpu_notes([a_gpu(1, reservations=[one])], AT - 6000).endswith(
        "GPU 1: reserved for ann 13:00 to 17:00 (demo); 2 other jobs may still run there"
    )
    nobodys = {**one, "user": None, "cause": None, "active": True, "reaching_in": 0}
    assert "reserved for work outside the queue until 17:00" in gpu_notes([a_gpu(1, reservations=[nobodys])], AT)


def test_a_range_within_one_minute_is_none():
    assert expected({**WAITS, "estimated_start_range": [AT, AT + 20]}, AT) == "starts at about 14:20"
