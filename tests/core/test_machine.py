from dataclasses import replace
from typing import get_args

import pytest

from jupyter_gpusched.core.machine import TRANSITIONS, JobEvent, advance, backoff_s, diagram
from jupyter_gpusched.core.messages import (
    Amended,
    CancelRequested,
    Claimed,
    DependencyFailed,
    Evicted,
    Exited,
    GpuLost,
    HoldRequested,
    Launch,
    LaunchFailed,
    LetIn,
    MainEnded,
    Overrun,
    Placed,
    ReleaseRequested,
    SampleNow,
    Started,
    StopAttempt,
    Unblocked,
    Vanished,
    Voided,
)
from jupyter_gpusched.core.model import (
    Attempt,
    Claim,
    GrantState,
    IllegalTransition,
    Outcome,
    Phase,
    Priority,
    Request,
    Stop,
    Terms,
)
from tests.core.conftest import G, grant, job, record

NOW = 100.0


def terms(**more):
    fields = {"name": "new", "request": Request(vram=G), "priority": Priority.HIGH, "time_limit_s": 60.0}
    return Terms(**({**fields, "grace_s": 1.0, "retries": 2, "tags": ("a",)} | more))


def placed(the_job, at=1.0):
    number = the_job.attempt + 1
    return advance(the_job, Placed(the_job.id, (grant(the_job, attempt=number, since=at),)), at)[0]


def running(**more):
    return advance(placed(job(**more)), Started("aaaa0001", 1, 2.0), 2.0)[0]


def stopping(reason, **more):
    return replace(running(**more), phase=Phase.STOPPING, since=50.0, stop=Stop(reason, 50.0, 30.0, "bob"))


def in_phase(phase):
    ended = replace(running(), phase=phase, ended_at=9.0, grants=())
    return {
        Phase.QUEUED: job(),
        Phase.STARTING: placed(job()),
        Phase.RUNNING: running(),
        Phase.STOPPING: stopping("cancelled"),
    }.get(phase, ended)


def events(the_job):
    """One event of each type that speaks of the job's current attempt, and variants of those that branch."""
    number = the_job.attempt
    next_grant = grant(the_job, attempt=number + 1)
    return [
        Placed(the_job.id, (next_grant,)),
        Claimed(the_job.id, Claim(("GPU-0",), NOW)),
        Started(the_job.id, number, NOW),
        MainEnded(the_job.id, number, NOW),
        Exited(the_job.id, number, record(0)),
        Exited(the_job.id, number, record(1)),
        Exited(the_job.id, number, record(None, 15, stopped="timeout")),
        LaunchFailed(the_job.id, number, "launch_failed", "no such file"),
        Voided(the_job.id, number),
        Vanished(the_job.id, number, "the machine was restarted"),
        GpuLost(the_job.id, number, "GPU 0, the card fell off the bus"),
        Overrun(the_job.id, number, "it used 9.0G on GPU 0, where it had asked for 4.0G"),
        Evicted(the_job.id, number, "bob"),
        CancelRequested(the_job.id, "bob"),
        Amended(the_job.id, "ann", terms()),
        HoldRequested(the_job.id, "ann", "not yet"),
        ReleaseRequested(the_job.id, "ann"),
        Unblocked(the_job.id),
        LetIn(the_job.id),
        DependencyFailed(the_job.id, "parent01", "job parent01 (train.py), which failed"),
    ]


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("at", range(len(events(job()))))
def test_every_pair_of_phase_and_event_does_what_the_table_says(phase, at):
    before = in_phase(phase)
    event = events(before)[at]
    allowed = TRANSITIONS.get((phase, type(event)))
    if allowed is None:
        with pytest.raises(IllegalTransition):
            advance(before, event, NOW)
    else:
        assert advance(before, event, NOW)[0].phase in allowed
    assert before == in_phase(phase)


def test_every_edge_of_the_table_can_be_taken():
    starts = [in_phase(phase) for phase in Phase]
    starts += [replace(in_phase(phase), retries=1) for phase in (Phase.STARTING, Phase.RUNNING)]
    starts += [
        stopping(reason, retries=retries) for reason in ("timeout", "preempted", "stragglers") for retries in (0, 1)
    ]
    seen = set()
    for before in starts:
        extra = [Exited(before.id, before.attempt, record(None, 15, stopped="cancelled"))] if before.attempts else []
        for event in events(before) + extra:
            if (before.phase, type(event)) in TRANSITIONS:
                seen.add((before.phase, type(event), advance(before, event, NOW)[0].phase))
    assert seen == {(phase, event, to) for (phase, event), targets in TRANSITIONS.items() for to in targets}


def test_the_table_speaks_of_all_event_types_and_the_diagram_of_all_phases():
    assert {event for _, event in TRANSITIONS} == set(get_args(JobEvent))
    assert {name for start, _, end in diagram() for name in (start, end)} == {phase.value for phase in Phase}


@pytest.mark.parametrize("number", [0, 2])
def test_an_echo_of_another_attempt_is_illegal(number):
    for event in (Started, MainEnded):
        with pytest.raises(IllegalTransition):
            advance(in_phase(Phase.STARTING), event("aaaa0001", number, NOW), NOW)
    with pytest.raises(IllegalTransition):
        advance(running(), Exited("aaaa0001", number, record(0)), NOW)


@pytest.mark.parametrize("indices", [(), (0,), (0, 0), (0, 1, 2)])
def test_a_gang_is_placed_whole_or_not_at_all(indices):
    wide = job(gpus=2)
    with pytest.raises(IllegalTransition):
        advance(wide, Placed(wide.id, tuple(grant(wide, index) for index in indices)), NOW)


def test_a_placed_job_starts_its_next_attempt_and_gives_up_its_claim():
    waiting = replace(job(), claim=Claim(("GPU-0",), 1.0), not_before=3.0)
    given = grant(waiting)
    moved, instructions = advance(waiting, Placed(waiting.id, (given,)), NOW)
    assert (moved.phase, moved.claim, moved.not_before, moved.grants) == (Phase.STARTING, None, None, (given,))
    assert moved.attempts == (Attempt(1, (given,)),)
    assert instructions == [Launch(waiting.id, 1)]


def test_a_start_is_written_down_even_when_a_cancel_came_first():
    cancelled, _ = advance(placed(job()), CancelRequested("aaaa0001", "bob"), 5.0)
    moved, _ = advance(cancelled, Started("aaaa0001", 1, 4.0), 6.0)
    assert (moved.phase, moved.attempts[-1].started_at) == (Phase.STOPPING, 4.0)


def test_an_ended_attempt_keeps_its_grants_until_the_memory_is_freed():
    moved, instructions = advance(running(), Exited("aaaa0001", 1, record(0, at=99.0)), NOW)
    assert [(held.state, held.since) for held in moved.grants] == [(GrantState.RELEASING, NOW)]
    assert instructions == [SampleNow()]
    assert (moved.phase, moved.ended_at, moved.used_vram_mib) == (Phase.SUCCEEDED, 99.0, None)


def test_a_job_takes_the_words_of_its_last_attempt():
    moved, _ = advance(running(), Exited("aaaa0001", 1, record(7, reason="exit", message="exit code 7: oh")), NOW)
    last = moved.attempts[-1]
    assert (moved.reason, moved.message) == (last.reason, last.message) == ("exit", "exit code 7: oh")
    assert (last.outcome, last.exit_code, last.signal, last.started_at) == (Outcome.FAILED, 7, None, 2.0)


def test_a_start_that_was_never_reported_is_taken_from_the_exit_record():
    moved, _ = advance(placed(job()), Exited("aaaa0001", 1, record(0, started_at=1.5)), NOW)
    assert moved.attempts[-1].started_at == 1.5


@pytest.mark.parametrize(
    ("stop", "stopped", "code", "phase", "outcome"),
    [
        ("cancelled", None, 0, Phase.CANCELLED, Outcome.CANCELLED),
        ("cancelled", "cancelled", 143, Phase.CANCELLED, Outcome.CANCELLED),
        ("cancelled", "timeout", 143, Phase.CANCELLED, Outcome.CANCELLED),
        ("timeout", "timeout", 1, Phase.TIMEOUT, Outcome.TIMEOUT),
        ("stragglers", "stragglers", 0, Phase.SUCCEEDED, Outcome.SUCCEEDED),
        ("stragglers", "stragglers", 3, Phase.FAILED, Outcome.FAILED),
        ("stragglers", "timeout", 0, Phase.TIMEOUT, Outcome.TIMEOUT),
        ("preempted", "preempted", 143, Phase.QUEUED, Outcome.PREEMPTED),
    ],
)
def test_the_first_reason_to_stop_decides_how_a_job_ends(stop, stopped, code, phase, outcome):
    moved, _ = advance(stopping(stop), Exited("aaaa0001", 1, record(code, stopped=stopped)), NOW)
    assert (moved.phase, moved.attempts[-1].outcome) == (phase, outcome)


def test_a_time_limit_is_kept_by_the_supervisor_alone():
    limited = replace(running(), time_limit_s=90.0)
    moved, _ = advance(limited, Exited("aaaa0001", 1, record(None, 15, stopped="timeout")), NOW)
    assert (moved.phase, moved.reason) == (Phase.TIMEOUT, "timeout")
    assert "1m30s" in moved.message


def test_a_failed_attempt_is_tried_again_as_often_as_asked_and_rests_longer_each_time():
    current, rests = job(retries=2), []
    for number in (1, 2, 3):
        current = placed(replace(current, not_before=None))
        current, _ = advance(current, Exited(current.id, number, record(1)), NOW)
        rests.append(current.not_before and current.not_before - NOW)
    assert rests[:2] == [5.0, 10.0]
    assert (current.phase, len(current.attempts), current.reason) == (Phase.FAILED, 3, "exit")
    assert backoff_s(100) == 300.0


@pytest.mark.parametrize("reason", ["stdin", "cwd_missing"])
def test_what_would_fail_the_same_way_is_not_tried_again(reason):
    moved, _ = advance(running(retries=3), Exited("aaaa0001", 1, record(1, reason=reason)), NOW)
    assert moved.phase is Phase.FAILED


def test_a_cancelled_job_is_never_tried_again():
    moved, _ = advance(stopping("cancelled", retries=3), Exited("aaaa0001", 1, record(1)), NOW)
    assert (moved.phase, moved.message) == (Phase.CANCELLED, "cancelled by bob")


def test_a_failed_launch_leaves_nothing_behind_and_is_not_tried_again():
    moved, _ = advance(placed(job(retries=3)), LaunchFailed("aaaa0001", 1, "cwd_missing", "no folder /x"), NOW)
    assert (moved.phase, moved.reason, moved.message) == (Phase.FAILED, "cwd_missing", "no folder /x")
    assert moved.grants == ()
    assert not moved.live


def test_an_attempt_that_never_began_returns_the_job_without_costing_a_retry():
    moved, _ = advance(placed(job(retries=1)), Voided("aaaa0001", 1), NOW)
    assert (moved.phase, moved.grants, moved.not_before) == (Phase.QUEUED, (), None)
    assert (moved.attempts[0].outcome, moved.attempts[0].reason) == (Outcome.LOST, "never_started")
    again, _ = advance(placed(moved), Exited("aaaa0001", 2, record(1)), NOW)
    assert again.phase is Phase.QUEUED


def test_a_cancel_that_wins_against_the_start_leaves_no_start_time():
    cancelled, _ = advance(placed(job()), CancelRequested("aaaa0001", "bob"), 5.0)
    moved, _ = advance(cancelled, Voided("aaaa0001", 1), 6.0)
    assert (moved.phase, moved.attempts[-1].started_at, moved.ended_at) == (Phase.CANCELLED, None, 6.0)


def test_an_attempt_that_nobody_can_judge_is_lost_even_when_it_was_cancelled():
    moved, instructions = advance(stopping("cancelled"), Vanished("aaaa0001", 1, "power was cut"), NOW)
    assert (moved.phase, moved.message, instructions) == (Phase.LOST, "power was cut", [SampleNow()])
    assert moved.grants[0].state is GrantState.RELEASING


def test_a_queued_job_is_cancelled_at_once():
    waiting = replace(job(), claim=Claim(("GPU-0",), 1.0), not_before=500.0)
    moved, instructions = advance(waiting, CancelRequested(waiting.id, "bob"), NOW)
    assert (moved.phase, moved.claim, moved.not_before, moved.ended_at) == (Phase.CANCELLED, None, None, NOW)
    assert (moved.reason, moved.message, instructions) == ("cancelled", "cancelled by bob", [])


def test_a_running_job_is_cancelled_with_its_own_grace_unless_another_is_given():
    for given, expected in ((None, 30.0), (2.0, 2.0), (0.0, 0.0)):
        moved, instructions = advance(running(), CancelRequested("aaaa0001", "bob", given), NOW)
        assert instructions == [StopAttempt("aaaa0001", 1, "cancelled", expected)]
        assert moved.stop == Stop("cancelled", NOW, expected, "bob")


@pytest.mark.parametrize("reason", ["cancelled", "timeout", "stragglers"])
def test_a_second_cancel_changes_nothing(reason):
    before = stopping(reason)
    assert advance(before, CancelRequested("aaaa0001", "eve", 0.0), NOW) == (before, [])


@pytest.mark.parametrize("reason", ["preempted", "gpu_lost"])
def test_a_job_that_would_be_tried_again_is_not_once_its_owner_has_cancelled_it(reason):
    cancelled, told = advance(stopping(reason), CancelRequested("aaaa0001", "eve"), NOW)
    assert told == []
    for end in (Exited("aaaa0001", 1, record(None, 15, stopped="preempted")), Voided("aaaa0001", 1)):
        assert advance(cancelled, end, NOW)[0].phase is Phase.CANCELLED


def test_an_eviction_says_for_whom_and_leads_back_into_the_queue():
    before = running(retries=0)
    evicted, told = advance(before, Evicted("aaaa0001", 1, "bob"), NOW)
    assert (evicted.phase, evicted.stop) == (Phase.STOPPING, Stop("preempted", NOW, before.grace_s, "bob"))
    assert told == [StopAttempt("aaaa0001", 1, "preempted", before.grace_s)]
    for end in (Exited("aaaa0001", 1, record(0)), Voided("aaaa0001", 1)):
        again, _ = advance(evicted, end, NOW)
        last = again.attempts[-1]
        assert (again.phase, again.not_before, last.outcome) == (Phase.QUEUED, None, Outcome.PREEMPTED)
        assert last.message.startswith("ended to make room for a more urgent job of bob; the ")
        assert last.message.endswith("; it is queued again")


def test_what_the_attempts_asked_for_is_kept_when_their_grants_are_gone():
    moved, _ = advance(placed(job(vram=3 * G)), Voided("aaaa0001", 1), NOW)
    assert moved.attempts[0].gpus[0].promised == 3 * G


def test_an_amended_job_has_the_new_terms_and_keeps_its_age():
    before = replace(job(at=3.0), claim=Claim(("GPU-0",), 5.0))
    after, told = advance(before, Amended(before.id, "ann", terms()), NOW)
    assert told == []
    assert (after.name, after.request, after.priority, after.tags) == ("new", Request(vram=G), Priority.HIGH, ("a",))
    assert (after.time_limit_s, after.grace_s, after.retries) == (60.0, 1.0, 2)
    assert (after.submitted_at, after.since, after.phase) == (before.submitted_at, before.since, before.phase)


def test_cards_stay_kept_for_an_amended_job_only_while_it_asks_for_the_same():
    before = replace(job(), claim=Claim(("GPU-0",), 5.0))
    renamed = terms(request=before.request)
    assert advance(before, Amended(before.id, "ann", renamed), NOW)[0].claim == before.claim
    assert advance(before, Amended(before.id, "ann", terms()), NOW)[0].claim is None


@pytest.mark.parametrize(
    ("grace_s", "shortened"), [(None, False), (25.0, False), (20.0, False), (5.0, True), (0.0, True)]
)
def test_a_second_cancel_that_names_a_grace_that_ends_sooner_shortens_what_is_left(grace_s, shortened):
    before = stopping("cancelled")  # since 50, with 30 s: at 60 there are 20 s left
    moved, instructions = advance(before, CancelRequested("aaaa0001", "eve", grace_s), 60.0)
    if shortened:
        assert moved.stop == replace(before.stop, grace_s=10.0 + grace_s)
        assert instructions == [StopAttempt("aaaa0001", 1, "cancelled", grace_s)]
    else:
        assert (moved, instructions) == (before, [])
