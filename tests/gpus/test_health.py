"""Health of a card from reading to reading, on values alone."""

from jupyter_gpusched.gpus.causes import SILENT, Trouble
from jupyter_gpusched.gpus.health import Health, judge

LOST = Trouble("GPU_IS_LOST", "GPU is lost")
MISMATCH = Trouble("LIB_RM_VERSION_MISMATCH", "mismatch")


def run(*steps):
    health, told = Health(), []
    for at, trouble in steps:
        health = judge(health, trouble, at)
        told.append(health.status)
    return told, health


def test_a_card_that_answers_is_ok():
    assert run((1, None), (2, None))[0] == ["ok", "ok"]


def test_a_card_that_fails_is_unknown_until_it_answers():
    assert run((1, SILENT), (2, MISMATCH), (3, None))[0] == ["unknown", "unknown", "ok"]


def test_the_time_is_that_of_the_first_failure_and_the_cause_that_of_the_last():
    _, health = run((1, SILENT), (2, MISMATCH))
    assert health.since == 1
    assert "reboot" in health.cause


def test_a_card_that_was_lost_and_answers_is_as_it_answers():
    """That it gets no jobs nevertheless is the core's: ``tests/core/test_quarantine.py``."""
    assert run((1, LOST), (2, MISMATCH), (3, None))[0] == ["lost", "unknown", "ok"]
