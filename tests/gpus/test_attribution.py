"""Whose memory is on a card, on values alone: nothing is attributed that is not proven."""

from jupyter_gpusched.gpus.attribution import LINGERING_MIB, Past, Process, attribute
from tests.gpus.conftest import use

CARD = "GPU-0"


def shares(processes, used, *grants, past=None, **more):
    return attribute(processes, used, grants, past or Past(), **more)


def proc(pid, mib, low=None, **more):
    return Process(pid, mib, mib if low is None else low, **more)


def test_a_job_has_what_its_process_tree_has_and_the_rest_is_foreign():
    seen = shares([proc(10, 500), proc(11, 700), proc(20, 900, user="eve")], 2100, use(CARD, pids={10, 11, 12}))
    assert seen.by_job == {"aaaaaaaa": 1200}
    assert [(one.pid, one.vram, one.user) for one in seen.foreign] == [(20, 900, "eve")]


def test_the_smaller_of_two_readings_counts_for_a_job():
    assert shares([proc(10, 500, low=300)], 500, use(CARD, pids={10})).by_job == {"aaaaaaaa": 300}


def test_a_job_that_is_not_listed_uses_nothing_yet():
    assert shares([], 0, use(CARD, pids={10})).by_job == {"aaaaaaaa": 0}


def test_what_cannot_be_told_is_left_out_and_never_nought():
    unknown = Process(10, None, None)
    assert shares([unknown], 500, use(CARD, pids={10})).by_job == {}
    assert shares(None, 500, use(CARD, pids={10})).by_job == {}
    assert shares([Process(20, None, None)], 500).foreign[0].vram is None


def test_where_the_driver_speaks_of_other_pids_an_unlisted_job_is_unknown():
    """Case 30: pids of another namespace, or none at all."""
    stranger = proc(71234, 900, here=False)
    assert shares([stranger], 900, use(CARD, pids={10})).by_job == {}
    assert shares([], 900, use(CARD, pids={10}), own_namespace=True).by_job == {}


def test_once_a_job_was_listed_the_driver_is_known_to_speak_of_our_pids():
    first = shares([proc(10, 500)], 500, use(CARD, pids={10}), own_namespace=True)
    later = shares([], 0, use(CARD, pids={10}), past=first.past, own_namespace=True)
    assert later.by_job == {"aaaaaaaa": 0}


def ended_after(processes, used, *, unlisted=0):
    """What is seen of a job that had 20000 MiB as pid 10 and has ended."""
    idle = shares([], unlisted)
    before = shares([proc(10, 20000)], 20000 + unlisted, use(CARD, pids={10}), past=idle.past)
    return shares(processes, used, use(CARD, alive=False), past=before.past)


def test_an_ended_job_has_nothing_once_the_card_shows_it():
    assert ended_after([], 0).by_job == {"aaaaaaaa": 0}


def test_memory_that_stays_under_the_pid_of_an_ended_job_is_still_its():
    """Case 18."""
    seen = ended_after([proc(10, 20000, here=False)], 20000)
    assert seen.by_job == {"aaaaaaaa": 20000}
    assert seen.foreign == ()


def test_memory_that_stays_under_nobodys_pid_is_still_the_ended_jobs():
    assert ended_after([], 20000).by_job == {"aaaaaaaa": 20000}
    assert ended_after([], 20300, unlisted=300).by_job == {"aaaaaaaa": 20000}


def test_a_little_more_for_the_driver_itself_keeps_nobody_waiting():
    assert ended_after([], LINGERING_MIB).by_job == {"aaaaaaaa": 0}


def test_a_stranger_that_comes_meanwhile_is_not_taken_for_the_ended_job():
    assert ended_after([proc(20, 20000)], 20000).by_job == {"aaaaaaaa": 0}


def test_a_process_that_ends_just_before_its_supervisor_leaves_its_trace():
    first = shares([proc(10, 20000)], 20000, use(CARD, pids={10}), past=shares([], 0).past)
    gap = shares([], 20000, use(CARD, pids=set()), past=first.past)
    assert shares([], 20000, use(CARD, alive=False), past=gap.past).by_job == {"aaaaaaaa": 20000}


def test_two_ended_jobs_share_what_is_left_and_nothing_is_counted_twice():
    both = [use(CARD, "a", pids={10}), use(CARD, "b", pids={11})]
    before = shares([proc(10, 4000), proc(11, 4000)], 8000, *both, past=shares([], 0).past)
    seen = shares([], 5000, use(CARD, "a", alive=False), use(CARD, "b", alive=False), past=before.past)
    assert sum(seen.by_job.values()) == 5000


def test_of_a_host_that_was_restarted_nothing_is_known_and_the_grant_may_go():
    assert shares([proc(10, 900, here=False)], 900, use(CARD, alive=False)).by_job == {}


def test_what_is_not_followed_any_more_is_forgotten():
    before = shares([proc(10, 500)], 500, use(CARD, pids={10}))
    assert before.past.traces
    assert not shares([], 0, past=before.past).past.traces


def test_an_earlier_attempt_that_has_not_let_go_is_told_apart_from_the_one_that_runs():
    first = shares([proc(10, 6000)], 6000, use(CARD, pids={10}), past=shares([], 0).past)
    both = [use(CARD, alive=False), use(CARD, pids={11}, attempt=2)]
    seen = shares([proc(10, 6000, here=False), proc(11, 500)], 6500, *both, past=first.past)
    assert (seen.by_job, seen.by_earlier) == ({"aaaaaaaa": 500}, {"aaaaaaaa": 6000})
    after = shares([proc(11, 700)], 700, *both, past=seen.past)
    assert (after.by_job, after.by_earlier) == ({"aaaaaaaa": 700}, {"aaaaaaaa": 0})


# --- memory of nobody ---------------------------------------------------------------------


def test_what_no_process_has_belongs_to_nobody():
    assert shares([proc(20, 900)], 3900).nobodys == 3000


def test_where_the_driver_lists_nobody_or_speaks_of_other_pids_nobodys_memory_cannot_be_told():
    assert shares(None, 3900).nobodys is None
    assert shares([], 3900, own_namespace=True).nobodys is None
    assert shares([Process(20, None, None)], 3900).nobodys is None


def test_memory_of_a_pid_that_has_ended_belongs_to_nobody_where_we_see_all_pids():
    ended = proc(4711, 900, here=False)
    matched = Past(matched=True)
    assert shares([ended], 900, past=matched).nobodys == 900
    assert shares([ended], 900, past=matched, own_namespace=True).nobodys == 0


def test_what_an_ended_job_left_is_its_until_its_time_is_over():
    """Case 18."""
    before = shares([proc(10, 2000)], 2000, use(CARD, pids={10})).past
    ended = shares([], 2000, use(CARD, alive=False), past=before)
    assert (ended.by_job, ended.nobodys) == ({"aaaaaaaa": 2000}, 0)
    assert shares([], 2000, past=ended.past).nobodys == 2000
