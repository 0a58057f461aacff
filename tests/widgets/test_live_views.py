"""The widgets against a real host: what they show, and the one thread that feeds them."""

from __future__ import annotations

import os
import re
import threading

import ipywidgets
import pytest
import traitlets
from waiting import wait_for

import jupyter_gpusched as gs
from jupyter_gpusched import live
from jupyter_gpusched.card import MIME
from jupyter_gpusched.client import HostUnreachable
from jupyter_gpusched.jobs import needs_widgets, without_card
from jupyter_gpusched.widgetrows import gpu_row
from jupyter_gpusched.widgets import JobWidget

VIEW = "application/vnd.jupyter.widget-view+json"


def feeding_threads():
    return [thread for thread in threading.enumerate() if thread.name == "jupyter-gpusched-live"]


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    for viewer in list(live.FEED._viewers):
        viewer.close()
    wait_for(lambda: not feeding_threads(), "the feeding thread does not end")


@pytest.fixture
def gate(tmp_path):
    os.mkfifo(tmp_path / "gate")
    return tmp_path / "gate"


def test_the_monitor_shows_each_card_and_who_has_how_much(client, command, gate):
    monitor = gs.GpuMonitor()
    assert [gpu["index"] for gpu in monitor.gpus] == [0, 1]
    assert [part["name"] for part in monitor.rows[0]["parts"]] == ["free"]
    job_id = client.submit(command("cat", str(gate), vram="9G"))
    row = wait_for(lambda: next((r for r in monitor.rows if len(r["parts"]) == 2), None), "the bar does not move")
    own = row["parts"][0]
    assert {name: own[name] for name in ("kind", "name", "mib")} == {"kind": "own", "name": "your jobs", "mib": 9216}
    assert re.fullmatch(rf"your jobs 9\.0G \({job_id} 9\.0G since \d\d:\d\d\)", own["words"])
    assert row["simulated"]
    gate.write_text("")
    client.wait(job_id)
    wait_for(lambda: all(len(r["parts"]) == 1 for r in monitor.rows), "the memory is not shown as free again")


def test_a_card_s_parts_say_whose_they_are_and_what_is_free_for_a_job():
    others = {
        "kind": "job", "state": "held", "job_id": None, "user": "bob", "pid": None, "vram_mib": 100,
        "promised_mib": 2048, "since": None, "mine": False, "name": None,
    }  # fmt: skip
    stranger = others | {"kind": "foreign", "state": None, "pid": 42, "vram_mib": 1024, "promised_mib": None}
    card = {
        "uuid": "GPU-0", "index": 0, "name": "Card", "total_mib": 24576, "used_mib": 1124, "promised_mib": 2048,
        "available_mib": 20000, "foreign_mib": 1024, "holders": [others, stranger], "reservations": [],
        "health": {"status": "ok", "cause": None, "since": None, "by": None}, "simulated": False,
        "utilization_pct": None, "temperature_c": None, "power_w": None,
    }  # fmt: skip

    def parts(card, **more):
        return [part["words"] for part in gpu_row(card, 0.0, **more)["parts"]]

    assert parts(card) == [
        "others' jobs 2.0G (bob 2.0G)", "outside the queue 1.0G (pid 42 of bob 1.0G)",
        "kept back 1.5G (for the driver and as headroom)", "free 19.5G",
    ]  # fmt: skip
    ill = {"status": "quarantined", "cause": "a fan is loud", "since": 1.0, "by": "ann"}
    assert parts(card | {"health": ill})[-1] == "kept back 21.0G (this card gets no jobs)"
    assert parts(card, drained=True)[-1] == "kept back 21.0G (nothing new starts on this machine)"
    assert parts(card | {"available_mib": None})[-1] == "kept back 21.0G (what is in use is not known)"


def test_what_a_monitor_knows_can_be_linked_to_other_traits(client):
    class Sum(traitlets.HasTraits):
        total = traitlets.Int()

    monitor, total = gs.GpuMonitor(), Sum()
    traitlets.dlink((monitor, "gpus"), (total, "total"), lambda gpus: sum(gpu["total_mib"] for gpu in gpus))
    assert total.total == sum(gpu["total_mib"] for gpu in client.gpus())
    seen = []
    queue = gs.JobQueue()
    queue.observe(lambda change: seen.append(len(change["new"])), "jobs")
    client.submit({"argv": ["true"], "vram": "1G"})
    wait_for(lambda: 1 in seen, "the new job is not told of")


def test_the_row_of_a_job_has_its_memory_as_a_bar(client, command, gate):
    job_id = client.submit(command("cat", str(gate), vram="3G"))
    widget = gs.job(job_id).widget()
    bar = wait_for(lambda: widget.rows[0]["memory"], "its memory does not come")
    assert (bar["fill"], bar["peak"], bar["over"]) == (1.0, 1.0, False)
    assert bar["words"] == "3.0G promised · 3.0G used · 3.0G peak"
    gate.write_text("")


def test_the_text_of_a_job_keeps_its_colours(client, command):
    job_id = client.submit(command("printf", r"\033[31mred\033[0m plain\n"))
    widget = gs.job(job_id).widget()
    wait_for(lambda: widget.text == "\x1b[31mred\x1b[0m plain\n", "the text does not come")


def test_the_queue_shows_what_runs_what_waits_and_what_ended(client, command, gate):
    done = client.submit(command("true", name="done"))
    client.wait(done)
    running = client.submit(command("cat", str(gate), name="runs", gpus=2, vram=None))
    waiting = client.submit(command("true", name="waits"))
    queue = gs.JobQueue()
    wait_for(lambda: [r["key"] for r in queue.rows] == [running, waiting, done], "the order is not right")
    assert "number 1 in the queue" in queue.rows[1]["why"]
    assert queue.rows[1]["can_cancel"]
    assert not queue.rows[2]["can_cancel"]
    assert {view["id"] for view in queue.jobs} == {running, waiting, done}
    gate.write_text("")
    wait_for(lambda: all(r["phase"] == "succeeded" for r in queue.rows), "the end is not shown")


def test_a_click_on_cancel_ends_that_job(client, command, gate):
    job_id = client.submit(command("cat", str(gate)))
    queue = gs.JobQueue()
    queue._handle_custom_msg({"cancel": job_id}, [])
    assert client.wait(job_id)["phase"] == "cancelled"


def test_a_click_on_run_again_queues_the_same_job_once_more(client, command):
    job_id = client.submit(command("true"))
    client.wait(job_id)
    queue = gs.JobQueue()
    queue._handle_custom_msg({"resubmit": job_id}, [])
    (new,) = (view["id"] for view in client.jobs() if view["parent_id"] == job_id)
    assert new in [row["key"] for row in queue.rows]


def test_the_view_of_one_job_goes_on_with_the_job_that_was_made_of_it(client, command):
    job_id = client.submit(command("echo", "said"))
    client.wait(job_id)
    widget = gs.job(job_id).widget()
    widget._handle_custom_msg({"resubmit": job_id}, [])
    wait_for(lambda: widget.rows[0]["phase"] == "succeeded" and widget.text == "said\n", "it is not shown")
    assert widget.rows[0]["key"] != job_id
    wait_for(lambda: not feeding_threads(), "an ended job is still being asked about")


@pytest.mark.parametrize("message", [None, [], "cancel", {"cancel": 7}, {"resubmit": None}, {"other": "x"}])
def test_a_message_that_makes_no_sense_does_nothing(client, message):
    queue = gs.JobQueue()
    queue._asked(queue, message, [])
    assert queue.trouble == ""


def test_a_job_s_progress_and_memory_are_in_its_row(client, command, gate):
    bar = " 40%|####      | 4/10 [00:04<00:06,  1.0it/s]"
    client.submit(command("sh", "-c", f"echo ' {bar}'; cat {gate}", vram="3G", time_limit="1h"))
    queue = gs.JobQueue()
    wait_for(lambda: queue.rows[0]["progress"], "the progress does not come")
    assert queue.rows[0]["progress"] == {"words": "40 % · 4/10 · about 6s to go", "fraction": 0.4}
    wait_for(lambda: "3.0G used" in queue.rows[0]["facts"], "its memory does not come")
    assert "left of 1h00m" in queue.rows[0]["facts"]
    gate.write_text("")


def test_a_click_that_the_host_refuses_is_answered_in_words(client):
    queue = gs.JobQueue()
    queue._asked(queue, {"cancel": "abcdefgh"}, [])
    assert "abcdefgh" in queue.trouble


def test_a_job_is_shown_with_its_text_until_it_ends(client, command, gate):
    job_id = client.submit(command("sh", "-c", f"printf 'a\\rfirst\\n'; cat {gate}; echo second"))
    widget = gs.job(job_id).widget()
    wait_for(lambda: widget.text == "first\n", "the text does not come")
    gate.write_text("")
    wait_for(lambda: widget.rows[0]["phase"] == "succeeded", "the end does not come")
    assert widget.text == "first\nsecond\n"
    wait_for(lambda: not feeding_threads(), "an ended job is still being asked about")


def test_one_thread_feeds_all_widgets_and_ends_with_the_last(client):
    assert not feeding_threads()
    views = [gs.GpuMonitor(), gs.JobQueue(), gs.GpuMonitor()]
    assert len(feeding_threads()) == 1
    views[0].close()
    views[1].close()
    assert len(feeding_threads()) == 1
    views[2].close()
    wait_for(lambda: not feeding_threads(), "the thread outlives its last view")
    gs.JobQueue()
    assert len(feeding_threads()) == 1


def test_a_round_asks_the_host_once_however_many_widgets_there_are(client, monkeypatch):
    asked = []
    monkeypatch.setattr(live, "host", lambda: asked.append("gpus") or client)
    answers = live.Round()
    for monitor in [gs.GpuMonitor() for _ in range(3)]:
        monitor.take(answers)
    before = len(asked)
    answers.gpus  # noqa: B018
    assert len(asked) == before


def test_nothing_is_sent_when_nothing_changed(client, monkeypatch):
    monitor = gs.GpuMonitor()
    sent = []
    monkeypatch.setattr(monitor, "_send", lambda message, **_: sent.append(message))
    monitor.take(live.Round())
    monitor.take(live.Round())
    assert sent == []


def test_widgets_can_be_laid_out_together(client):
    monitor, queue = gs.GpuMonitor(), gs.JobQueue()
    box = ipywidgets.HBox([monitor, queue])
    assert box.children == (monitor, queue)


def test_what_is_selected_can_be_observed(client):
    seen = []
    monitor = gs.GpuMonitor()
    monitor.observe(lambda change: seen.append(change.new), "selected")
    monitor.set_state({"selected": monitor.gpus[0]["uuid"]})
    assert seen == [monitor.gpus[0]["uuid"]]


def test_without_the_front_end_a_widget_is_a_readable_table(client):
    data, _ = gs.GpuMonitor()._repr_mimebundle_()
    assert "Simulated" in data["text/plain"]
    assert VIEW in data
    assert "You have no jobs here" in gs.JobQueue()._repr_mimebundle_()[0]["text/plain"]


def test_without_a_host_the_call_says_so_and_leaves_nothing_behind(own_environment, monkeypatch):
    monkeypatch.setenv("GPUSCHED_AUTOSTART", "0")
    with pytest.raises(HostUnreachable):
        gs.GpuMonitor()


def test_a_lost_host_is_said_and_its_successor_found(start_host):
    first = start_host()
    monitor = gs.GpuMonitor()
    os.environ["GPUSCHED_AUTOSTART"] = "0"
    first.kill()
    wait_for(lambda: "Reconnecting" in monitor.trouble, "the loss is not said")
    start_host()
    wait_for(lambda: not monitor.trouble, "the successor is not found")


def test_the_card_of_a_job_is_a_live_view_only_where_the_front_end_has_no_renderer_of_ours(
    client, command, monkeypatch
):
    job = gs.job(client.submit(command("true")))
    client.wait(job.id)
    assert VIEW not in job._repr_mimebundle_()
    monkeypatch.setenv("VSCODE_PID", "1")
    assert VIEW in job._repr_mimebundle_()
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    assert VIEW not in job._repr_mimebundle_()


def test_job_widgets_take_what_was_printed_as_text(client, command):
    job_id = client.submit(command("echo", "<img src=x onerror=alert(1)>", name="<b>bold</b>"))
    client.wait(job_id)
    widget = gs.job(job_id).widget()
    assert isinstance(widget, JobWidget)
    assert widget.rows[0]["title"] == "<b>bold</b>"
    assert "innerHTML" not in str(widget._esm)


def an_array(client, command, *lines, **more):
    array_id, ids = client.submit_array({"cwd": "/", "kind": "command", "gpus": 0, "name": "sweep", **more}, lines)
    return array_id, ids


def shells(*scripts):
    return [{"argv": ["sh", "-c", script]} for script in scripts]


def test_an_array_is_one_row_that_tells_how_its_elements_stand_and_opens(client, command, gate):
    array_id, ids = an_array(client, command, *shells("true", f"cat {gate}", f"cat {gate}"))
    client.wait(ids[0])
    queue = gs.JobQueue()
    wait_for(lambda: queue.rows[0]["facts"] == "2 running · 1 succeeded", "how they stand is not told")
    (row,) = queue.rows
    assert (row["key"], row["title"], row["count"]) == (array_id, "sweep", "3 jobs")
    assert row["progress"] == {"words": "1 of 3 done", "fraction": 1 / 3}
    queue.opened = [array_id]
    assert [row["key"] for row in queue.rows] == [array_id, *ids]
    assert [row["title"] for row in queue.rows[1:]] == ["#0", "#1", "#2"]
    queue._handle_custom_msg({"cancel": array_id}, [])
    wait_for(lambda: queue.rows[0]["facts"] == "1 succeeded · 2 cancelled", "the array is not cancelled")
    assert not queue.rows[0]["can_cancel"]


def test_an_array_names_what_failed_and_runs_it_again(client, command):
    array_id, ids = an_array(client, command, *shells("echo no; exit 3", "true", "echo no; exit 4"))
    for job_id in ids:
        client.wait(job_id)
    queue = gs.JobQueue()
    assert queue.rows[0]["why"] == "failed: #0 (exit code 3: no), #2"
    queue._handle_custom_msg({"resubmit": array_id}, [])
    wait_for(lambda: len(queue.rows) == 2, "what failed is not there again")
    assert {row["count"] for row in queue.rows} == {"3 jobs", "2 jobs"}


def test_an_array_that_is_longer_than_the_list_is_counted_whole(client, command, monkeypatch):
    array_id, ids = an_array(client, command, *shells(*["echo no; exit 3"] * 2, *["true"] * 6))
    for job_id in ids:
        client.wait(job_id)
    monkeypatch.setattr(live, "MOST_JOBS", 4)
    queue = gs.JobQueue()
    (row,) = queue.rows
    assert (row["count"], row["facts"]) == ("8 jobs", "6 succeeded · 2 failed")
    assert row["why"] == "failed: #0 (exit code 3: no), #1"
    queue.opened = [array_id]
    assert [row["key"] for row in queue.rows[1:]] == ids
    queue.close()
    monkeypatch.setattr(live, "MOST_ELEMENTS", 4)

    def shown():
        live._ENDED.clear()  # a round under way when the queue was closed may still have noted all elements
        return [row["title"] for row in gs.array(array_id).widget().rows[1:]]

    wait_for(lambda: shown() in (["#0"], ["#1"]), "more is shown of a long array than what failed")


def test_a_held_job_says_so_and_is_released(client, command, gate):
    client.submit(command("cat", str(gate), gpus=2, vram=None))
    job_id = client.submit(command("true", name="later"))
    client.hold(job_id, "until the data are there")
    queue = gs.JobQueue()
    row = queue.rows[1]
    assert row["held"]
    assert "until the data are there" in row["why"]
    queue._handle_custom_msg({"release": job_id}, [])
    assert not queue.rows[1]["held"]
    gate.write_text("")


def test_a_card_tells_for_whom_it_is_reserved(client):
    monitor = gs.GpuMonitor()
    assert monitor.rows[0]["notes"] == []
    client.reserve({"gpus": [0], "for": "1h", "zone": "UTC", "cause": "demo"})
    wait_for(lambda: monitor.rows[0]["notes"], "the reservation is not shown")
    assert monitor.rows[0]["notes"][0].startswith("Reserved for ")
    assert "(demo)" in monitor.rows[0]["notes"][0]


def test_the_view_of_an_array_goes_on_with_what_failed_of_it(client, command):
    array_id, ids = an_array(client, command, *shells("echo no; exit 3", "true"))
    for job_id in ids:
        client.wait(job_id)
    view = gs.array(array_id).widget()
    assert [row["key"] for row in view.rows] == [array_id, *ids]
    wait_for(lambda: not feeding_threads(), "an ended array is still being asked about")
    view._handle_custom_msg({"resubmit": array_id}, [])
    wait_for(lambda: view.rows[0]["key"] != array_id and view.rows[0]["why"], "the new one is not shown")
    assert view.rows[0]["why"] == "failed: #0 (exit code 3: no)" or view.rows[0]["count"] == "1 job"


def test_an_array_is_for_our_card_and_a_live_view_where_the_front_end_has_none(client, command, monkeypatch):
    array_id, ids = an_array(client, command, *shells("true", "true"))
    for job_id in ids:
        client.wait(job_id)
    bundle = gs.array(array_id)._repr_mimebundle_()
    counts = {"name": "sweep", "count": 2, "phases": {"succeeded": 2}, "held": 0}
    assert bundle[MIME] == {"id": array_id, "array": {"id": array_id, **counts}}
    assert VIEW not in bundle
    assert "2 succeeded" in bundle["text/plain"]
    monkeypatch.setenv("VSCODE_PID", "1")
    assert VIEW in gs.array(array_id)._repr_mimebundle_()


def test_in_voila_a_job_is_a_widget_and_no_card_since_its_server_is_not_ours(client, monkeypatch):
    environ = {"SERVER_SOFTWARE": "voila/0.5.8", "JPY_PARENT_PID": "1"}
    assert needs_widgets(environ)
    assert not needs_widgets({"JPY_PARENT_PID": "1"})
    assert without_card({MIME: {}, "text/plain": "x"}, environ) == {"text/plain": "x"}
    job_id = client.submit({"argv": ["true"]})
    monkeypatch.setenv("SERVER_SOFTWARE", "voila/0.5.8")
    assert set(gs.job(job_id)._repr_mimebundle_()) == {VIEW, "text/plain", "text/html"}
