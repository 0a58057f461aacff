"""A job that prints without end: the host answers, its memory stays small, and what reaches a notebook is bounded."""

import json
import os
import re
import sys
import threading
import time
from pathlib import Path

import pytest
from waiting import wait_for

from jupyter_gpusched.jobs import Job
from jupyter_gpusched.outputs import bounded, fold

LINES = 700_000
FLOOD = f"for i in range({LINES}): print(i)"
MARKER = re.compile(rb"\[gpusched: ([\d,]+) bytes are missing here[^\n]*\n")


def rss_kib(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


@pytest.fixture
def host(start_host):
    return start_host("2x24564M", "--GpuSched.log_limit=1M")


@pytest.fixture
def flood(client, command):
    return client.submit(command(sys.executable, "-c", FLOOD))


def test_a_flood_slows_no_answer_and_fills_no_memory(host, client, command):
    wait_for(client.gpus, "there are no cards")
    before = rss_kib(host.pid)
    job_id = client.submit({"kind": "cell", "source": FLOOD, "cwd": "/", "env": dict(os.environ), "vram": "1G"})
    slowest = most = 0.0
    cursor = 0
    while (view := client.job(job_id))["phase"] not in ("succeeded", "failed"):
        begun = time.monotonic()
        client.gpus()
        slowest = max(slowest, time.monotonic() - begun)
        cursor = client.outputs(job_id, after=cursor)[1]
        most = max(most, rss_kib(host.pid))
    assert view["phase"] == "succeeded"
    assert slowest < 0.5
    assert most - before < 50 * 1024
    shown = bounded(fold(Job(job_id, client)._output_lines()), how_to_get_the_rest="...")
    assert len(json.dumps(shown)) < 200 * 1024


def test_logs_are_right_across_the_cut_for_whoever_follows_and_for_whoever_comes_later(client, flood):
    followed = b"".join(client.follow(flood))
    later = b"".join(client.whole_log(flood))
    size = sum(len(f"{i}\n") for i in range(LINES))
    for text in (followed, later):
        missing = sum(int(found.replace(b",", b"")) for found in MARKER.findall(text))
        kept = MARKER.sub(b"", text)
        assert 0 <= len(kept) + missing - size <= len(MARKER.findall(text))
        assert kept.endswith(f"{LINES - 1}\n".encode())
    assert len(MARKER.findall(later)) == 1
    assert len(later) <= 2**20 + 64 * 1024
    assert client.log_tail(flood, 100).endswith(f"{LINES - 1}\n".encode())


def test_the_handle_shows_a_cut_log_with_its_marker(client, flood):
    client.wait(flood)
    text = Job(flood, client).logs()
    assert text.startswith("0\n1\n2\n")
    assert len(re.findall(r"bytes are missing here", text)) == 1


def test_rich_outputs_without_end_are_bounded_with_one_output_that_says_how_much_is_left_out(client):
    code = (
        "from IPython.display import display\n"
        "for i in range(100): display({'text/plain': 'x', 'text/html': 'y' * 1_000_000}, raw=True)\nprint('end')"
    )
    job_id = client.submit({"kind": "cell", "source": code, "cwd": "/", "env": dict(os.environ), "vram": "1G"})
    assert client.wait(job_id)["phase"] == "succeeded"
    pages: list[int] = []
    lines, cursor = [], 0
    while (page := client.outputs(job_id, after=cursor))[0]:
        pages.append(len(json.dumps(page[0])))
        lines, cursor = lines + page[0], page[1]
    shown = fold(lines)
    notes = [o["data"]["text/plain"] for o in shown if "gpusched" in o.get("data", {}).get("text/plain", "")]
    assert notes == ["[gpusched: rich outputs beyond 64 MiB are left out: 33 of 31.5 MiB so far]"]
    assert shown[-1]["text"] == "end\n"
    assert max(pages) < 10 * 2**20


def test_many_readers_of_a_flood_get_the_same_bytes(client, host, flood):
    """Each has its own pace; none changes what another sees."""
    client.wait(flood)
    texts = []
    readers = [
        threading.Thread(target=lambda: texts.append(b"".join(host.client().whole_log(flood)))) for _ in range(4)
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert len(set(texts)) == 1


def test_text_is_taken_into_the_outputs_of_a_cell_only_where_it_cannot_be_cut_away(client):
    """A child floods the log past Python, faster than it is read: no zeros of a hole become output."""
    code = "import subprocess\nsubprocess.run('yes 0123456789 | head -c 200000000', shell=True)\nprint('end')"
    job_id = client.submit({"kind": "cell", "source": code, "cwd": "/", "env": dict(os.environ), "vram": "1G"})
    assert client.wait(job_id)["phase"] == "succeeded"
    shown = fold(Job(job_id, client)._output_lines())
    text = "".join(output["text"] for output in shown if output["output_type"] == "stream")
    assert "\0" not in text
    assert "more than 0.2 MiB were printed" in text
    assert text.endswith("end\n")
