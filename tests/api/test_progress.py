"""How far a job is, as its own progress bar says, from the log to the view and the stream of events."""

from __future__ import annotations

import io
import os
import sys
import time

import nbformat
import pytest
from rest import Rest
from waiting import wait_for

from jupyter_gpusched.progress import read_progress


@pytest.fixture
def gate(tmp_path):
    os.mkfifo(tmp_path / "gate")
    return tmp_path / "gate"


def test_the_last_bar_of_the_text_is_the_progress():
    text = (
        "loading\n"
        "Epoch 1:  10%|█         | 10/100 [00:01<00:09, 10.0it/s]\r"
        "Epoch 1:  45%|████▌     | 45/100 [00:12<01:05,  3.61it/s, loss=0.31]"
    )
    progress = read_progress(text)
    assert (progress.fraction, progress.done, progress.total, progress.remaining_s) == (0.45, 45, 100, 65)
    assert progress.text == "Epoch 1: 45/100"


def test_amounts_with_units_and_long_times_are_read():
    progress = read_progress("  5%|▌         | 51.2M/1.02G [1:02:03<2 days, 1:00:00, 1.2MB/s]")
    assert (progress.done, progress.total) == (51_200_000, 1_020_000_000)
    assert progress.remaining_s == 2 * 86400 + 3600


def test_colours_and_cursor_moves_around_a_bar_do_not_matter():
    assert read_progress("\x1b[32m 50%|\x1b[31m#####     \x1b[0m| 1/2 [00:01<00:01]\x1b[A\x1b[0m").fraction == 0.5


def test_a_bar_without_a_total_has_a_count_and_no_fraction():
    progress = read_progress("rows: 45it [00:12,  3.61it/s]")
    assert (progress.fraction, progress.done, progress.total, progress.text) == (None, 45, None, "rows: 45")


def test_the_name_of_a_unit_is_no_factor():
    assert read_progress("45Models [00:12,  3.61Models/s]").done == 45
    assert read_progress("45.1kit [00:12,  3.61kit/s]").done == 45_100


def test_what_is_not_known_yet_is_none():
    assert read_progress("  0%|          | 0/10 [00:00<?, ?it/s]").remaining_s is None


@pytest.mark.parametrize("text", ["", "100% sure", "took 3 [s]", "12:30 [info, warn]", "5 [00:12] x", "50%|", "\x1b["])
def test_other_text_is_no_progress(text):
    assert read_progress(text) is None


def test_a_hostile_line_is_read_quickly():
    begun = time.monotonic()
    assert read_progress("9" * 4000 + "[") is None
    assert time.monotonic() - begun < 1


@pytest.mark.parametrize(
    "form", [{"ascii": True}, {"desc": "Train", "leave": False}, {"unit": "B", "unit_scale": True}]
)
def test_the_bars_of_the_installed_tqdm_are_understood(form):
    tqdm = pytest.importorskip("tqdm")
    screen = io.StringIO()
    bar = tqdm.tqdm(total=40, file=screen, mininterval=0, miniters=1, **form)
    bar.update(10)
    assert read_progress(screen.getvalue()).fraction == 0.25
    bar.close()


def test_a_running_job_s_bar_is_in_its_view_and_in_the_stream_of_events(host, client, command, gate):
    code = (
        "import sys, pathlib\n"
        "sys.stderr.write('\\rtrain: 25%|##  | 1/4 [00:01<00:03, 1.0it/s]'); sys.stderr.flush()\n"
        f"pathlib.Path({str(gate)!r}).read_text()\n"
        "sys.stderr.write('\\rtrain: 50%|##  | 2/4 [00:02<00:02, 1.0it/s]'); sys.stderr.flush()\n"
        f"pathlib.Path({str(gate)!r}).read_text()\n"
    )
    rest = Rest(host.client().health()["socket"])
    with rest.events() as events:
        stream = iter(events)
        job_id = client.submit(command(sys.executable, "-c", code))

        def until(fraction):
            for frame in stream:
                if frame["type"] == "outputs" and (frame["progress"] or {}).get("fraction") == fraction:
                    return frame["progress"]
            raise AssertionError("the stream ended")

        assert until(0.25) == {"fraction": 0.25, "done": 1, "total": 4, "text": "train: 1/4", "remaining_s": 3}
        gate.write_text("")
        until(0.5)
    wait_for(lambda: (client.job(job_id)["progress"] or {}).get("done") == 2, "the view does not follow")
    assert client.jobs(limit=1)[0]["progress"]["fraction"] == 0.5
    gate.write_text("")
    assert client.wait(job_id)["progress"] is None
    rest.close()


def test_a_notebook_job_tells_how_many_of_its_cells_have_run(host, client, gate, tmp_path):
    cells = ["1", f"import pathlib; pathlib.Path({str(gate)!r}).read_text()", "3"]
    path = tmp_path / "three.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells]), path)
    job_id = client.submit({"kind": "notebook", "path": str(path), "vram": "1G", "env": dict(os.environ)})
    progress = wait_for(
        lambda: (found := client.job(job_id)["progress"]) and found["done"] == 1 and found, "it does not tell"
    )
    assert progress == {"fraction": 1 / 3, "done": 1, "total": 3, "text": "1 of 3 cells", "remaining_s": None}
    gate.write_text("")
    assert client.wait(job_id)["phase"] == "succeeded"


def test_the_time_limit_is_in_the_view(client, command):
    job_id = client.submit(command("true", time_limit="90s"))
    assert client.job(job_id)["time_limit_s"] == 90
