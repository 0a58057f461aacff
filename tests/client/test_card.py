"""What a notebook shows of jobs and cards."""

import json
from html.parser import HTMLParser

import pytest

from jupyter_gpusched.card import MIME, GpuTable, JobTable, job_bundle
from jupyter_gpusched.describe import gpus_table

EVIL = "<script>alert(1)</script>"


class Tags(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.tags, self.text = [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.text.append(data)


def test_the_text_holds_id_and_phase_and_the_way_back_in_two_lines(a_view):
    text = job_bundle(a_view())["text/plain"]
    assert len(text.splitlines()) <= 2
    assert "abcd1234" in text
    assert "queued" in text
    assert "%gpulogs abcd1234 -f" in text


def test_the_html_can_be_read_without_a_kernel_and_says_how_to_re_attach(a_view):
    text = "".join(Tags(job_bundle(a_view())["text/html"]).text)
    assert "abcd1234" in text
    assert "queued" in text
    assert "needs 6.0G on 1 GPU" in text
    assert "%gpulogs abcd1234 -f" in text
    assert 'jupyter_gpusched.job("abcd1234").show()' in text


@pytest.mark.parametrize("field", ["name", "waiting", "notebook"])
def test_nothing_that_a_user_wrote_becomes_html(a_view, field):
    parsed = Tags(job_bundle(a_view(**{field: EVIL}))["text/html"])
    assert "script" not in parsed.tags


def test_the_end_of_a_failed_job_is_told_and_escaped(a_view):
    view = a_view(phase="failed", exit_code=1, message=f"ValueError: {EVIL}", started_at=1.0, ended_at=5.0)
    parsed = Tags(job_bundle(view)["text/html"])
    assert "script" not in parsed.tags
    assert f"exit code 1: ValueError: {EVIL}" in "".join(parsed.text)


def test_simulated_cards_are_marked_in_text_and_html(a_view):
    for simulated in (True, False):
        bundle = job_bundle(a_view(simulated=simulated))
        assert ("SIMULATED" in bundle["text/plain"]) is simulated
        assert ("SIMULATED" in bundle["text/html"]) is simulated


def test_the_json_part_is_small_json_with_the_id(a_view):
    part = job_bundle(a_view())[MIME]
    assert part["id"] == "abcd1234"
    assert len(json.dumps(part)) < 4096


def test_a_stale_card_says_so(a_view):
    bundle = job_bundle(a_view(), stale=True)
    assert "last known" in bundle["text/plain"]
    assert "Last known" in bundle["text/html"]


def test_a_name_cannot_obey_the_terminal(a_view):
    assert "\x1b" not in job_bundle(a_view(name="\x1b[31mred\nline"))["text/plain"]


def test_the_job_table_has_a_line_for_each_job(a_view):
    shown = JobTable([a_view("aaaa1111", name=EVIL), a_view("bbbb2222", phase="running", started_at=1.0)])
    assert [line.split()[:2] for line in repr(shown).splitlines()[1:]] == [
        ["aaaa1111", "queued"],
        ["bbbb2222", "running"],
    ]
    assert "script" not in Tags(shown._repr_html_()).tags


def test_old_figures_of_a_card_are_said_to_be_old_and_who_has_memory_outside_the_queue_is_named(a_gpu):
    foreign = {"kind": "foreign", "job_id": None, "user": EVIL, "pid": 812, "vram_mib": 12288, "since": 900.0,
               "notebook": None}  # fmt: skip
    fresh, old = a_gpu(holders=[foreign]), a_gpu(1, sampled_at=985.0, unattributed_mib=2048)
    unread = a_gpu(2, used_mib=None, sampled_at=0.0)
    notes = gpus_table([fresh, old, unread], now=1000.0).splitlines()[4:]
    assert notes == [
        f"GPU 0: outside the queue: 12.0G, process 812 of {EVIL}, for 1m40s",
        "GPU 1: these figures are 15s old",
        "GPU 1: outside the queue: 2.0G that no process admits to",
    ]
    assert "script" not in Tags(GpuTable([fresh])._repr_html_()).tags


def test_the_table_of_cards_names_who_holds_how_much_since_when_and_of_own_jobs_and_those_of_all_to_an_admin_the_job(
    a_gpu,
):
    of_another = {"kind": "job", "state": "held", "job_id": None, "name": None, "user": "bob", "mine": False,
                  "vram_mib": 900, "promised_mib": 10240, "since": 810.0, "notebook": None}  # fmt: skip
    own = {**of_another, "job_id": "abcd1234", "name": "train\n", "user": "ann", "mine": True}
    to_an_admin = {**own, "mine": False}
    going = {**own, "state": "releasing", "vram_mib": 512}
    card = a_gpu(holders=[of_another, own, to_an_admin, going], sampled_at=1000.0)
    assert gpus_table([card], now=1000.0).splitlines()[2:] == [
        "GPU 0: 10.0G promised to bob, for 3m10s",
        "GPU 0: 10.0G promised to job abcd1234 (train), for 3m10s",
        "GPU 0: 10.0G promised to job abcd1234 (train) of ann, for 3m10s",
        "GPU 0: 0.5G being freed by job abcd1234 (train), for 3m10s",
    ]


def test_an_empty_job_table_says_how_to_begin():
    assert "%%gpujob" in repr(JobTable([]))


def test_the_gpu_table_shows_use_promise_and_the_mark(a_gpu):
    holder = {"kind": "job", "state": "held", "job_id": "abcd1234", "name": EVIL, "user": "ann", "mine": True,
              "vram_mib": 6144, "promised_mib": 6144, "since": None}  # fmt: skip
    shown = GpuTable([a_gpu(holders=[holder]), a_gpu(1, used_mib=None, simulated=False, name=EVIL)])
    first, second = repr(shown).splitlines()[1:3]
    assert "6.0G [########..]" in first
    assert "abcd1234" in first
    assert "SIMULATED" in first
    assert "n/a [..........]" in second
    assert "SIMULATED" not in second
    assert "script" not in Tags(shown._repr_html_()).tags


def test_without_a_card_the_cause_is_told():
    assert "no driver is loaded" in repr(GpuTable([], "no driver is loaded"))
    assert "no driver is loaded" in GpuTable([], "no driver is loaded")._repr_html_()
