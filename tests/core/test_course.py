"""Story 4, a course: sixty students, four cards of 11 GB, and limits that the teacher set in one file."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpusched.core.explain import waiting_all
from jupyter_gpusched.core.ledger import check_fits
from jupyter_gpusched.core.limits import Limits
from jupyter_gpusched.core.messages import Drained, Resumed
from jupyter_gpusched.core.model import NeverFits, Phase
from jupyter_gpusched.core.policies import NAMED
from jupyter_gpusched.core.quota import LimitReached, check_queue, check_terms, longest_time_s
from tests.core.conftest import SETTINGS, G, World, card, job

STUDENTS = [f"student{n:02}" for n in range(60)]
LIMITS = Limits({"running_jobs": 1, "queued_jobs": 10, "longest_time_s": 600.0, "vram_share": 0.1})
RUN_S = 20.0


@pytest.fixture
def course():
    return World(
        *(card(n, total=11 * G) for n in range(4)),
        settings=replace(SETTINGS, cpus=72, limits=LIMITS, policy=NAMED["fair"]),
    )


def homework(student, number, at=0.0):
    return replace(job(f"{student[-2:]}job{number:03}", vram=2 * G, at=at), owner=student, name="homework.ipynb")


def run(course, until):
    """Let time pass; jobs end after ``RUN_S``."""
    while course.now < until and course.state.jobs:
        for job_id, at in list(course.started_at.items()):
            if job_id in course.state.jobs and course.phase(job_id) is Phase.RUNNING and course.now >= at + RUN_S:
                course.end(job_id)
        course.sleep(1.0)


def test_sixty_submissions_within_a_minute_and_nobody_gets_two_before_everybody_had_one(course):
    submitted = {}
    for second, student in enumerate(STUDENTS):
        submitted[student[-2:]] = course.now
        course.submit(*(homework(student, number, course.now) for number in range(2)))
        course.sleep(1.0)
        if second == 30:
            assert len(course.running()) == 20, "five of 2G on each card of 11G"
            words = waiting_all(course.state, course.now)
            assert all("starts with the next pass" not in said for said in words.values())
    run(course, 600.0)
    assert len(course.started_at) == 120, "everything ran"
    firsts, seconds = (
        {job_id[:2]: at for job_id, at in course.started_at.items() if job_id.endswith(end)} for end in "01"
    )
    for who, at in seconds.items():
        passed = [one for one, first in firsts.items() if submitted[one] < at < first]
        assert not passed, f"{who} got a second at {at} while {passed} waited for a first"


def test_what_a_card_can_never_hold_or_a_limit_forbids_is_refused_at_once(course):
    state = course.state
    with pytest.raises(NeverFits) as never:
        check_fits(replace(homework("student01", 1).request, vram=12 * G), state.gpus.values(), state.settings)
    assert "11.0G" in never.value.hint
    with pytest.raises(LimitReached, match=r"may have 4\.4G of GPU memory at a time"):
        check_terms(
            replace(homework("student01", 1), request=replace(homework("student01", 1).request, vram=5 * G)), state
        )
    with pytest.raises(LimitReached, match="10 waiting jobs"):
        check_queue("student01", (), state, waiting=10, joining=1)
    assert longest_time_s(homework("student01", 1), state) == 600.0, "a loop that never ends, ends then"


def test_a_drained_machine_takes_homework_and_goes_on_without_loss(course):
    course.submit(homework("student01", 1))
    course.tell(Drained("teacher", "maintenance"))
    course.submit(homework("student02", 1))
    assert "teacher has drained this machine: maintenance" in waiting_all(course.state, course.now)["02job001"]
    run(course, 60.0)
    assert course.phase("01job001") is Phase.SUCCEEDED
    course.tell(Resumed("teacher", "done"))
    assert course.phase("02job001") is Phase.RUNNING
