"""What a cell shows reaches the journal in order, at once, and within bounds."""

import json
import os
import signal
import time

from jupyter_gpusched.launch import attempt as files

from .conftest import Ended


def test_text_and_rich_outputs_keep_their_order(cell):
    ended = cell(
        "from IPython.display import display, HTML\nimport sys\n"
        "print('one')\ndisplay(HTML('<b>two</b>'))\nprint('three', file=sys.stderr)\n4"
    )
    assert ended.kinds() == ["stream", "display_data", "stream", "execute_result"]
    assert ended.outputs[1]["data"]["text/html"] == "<b>two</b>"
    assert ended.outputs[3]["data"] == {"text/plain": "4"}
    assert ended.log == "one\n<IPython.core.display.HTML object>\nthree\n4\n"


def test_output_past_python_is_journaled_in_its_place(cell):
    ended = cell("import os\nprint('a')\n!echo b\nos.write(1, b'c\\n')\nos.system('echo d')\nprint('e');\n")
    assert ended.text() == "a\nb\nc\nd\ne\n"
    assert ended.kinds().count("stream") == len(ended.kinds())


def test_bytes_written_under_the_stream_are_journaled(cell):
    assert cell("import sys\nsys.stdout.buffer.write('é'.encode()); print('x')").text() == "éx\n"


def test_forked_children_write_straight_to_the_log(cell):
    ended = cell(
        "import os\nprint('parent')\npid = os.fork()\nif not pid:\n"
        "    print('child')\n    os._exit(0)\nos.waitpid(pid, 0);"
    )
    assert ended.text() == "parent\nchild\n"


def test_figures_come_out_as_pictures(cell):
    ended = cell("import matplotlib.pyplot as plt\nprint('before')\nplt.plot([1, 2])\nplt.show()\nprint('after')")
    shown = [one for one in ended.outputs if one.get("name") != "stderr"]  # slow fonts are complained of there
    assert [one["output_type"] for one in shown] == ["stream", "display_data", "stream"]
    assert shown[1]["data"]["image/png"].startswith("iVBOR")


def test_a_figure_left_open_is_shown_at_the_end(cell):
    ended = cell("import matplotlib.pyplot as plt\nplt.plot([1, 2]);")
    assert "image/png" in ended.outputs[-1]["data"]


def test_tables_come_out_as_html(cell):
    ended = cell("import pandas as pd\npd.DataFrame({'a': [1]})")
    assert "<table" in ended.outputs[0]["data"]["text/html"]


def test_updates_and_clearing_are_recorded(cell):
    ended = cell(
        "from IPython.display import display, clear_output\n"
        "h = display(1, display_id=True)\nh.update(2)\nclear_output(wait=True)"
    )
    assert ended.kinds() == ["display_data", "update_display_data", "clear_output"]
    shown, update = ended.outputs[:2]
    assert shown["transient"]["display_id"] == update["transient"]["display_id"]


def test_a_progress_bar_keeps_its_carriage_returns(cell):
    ended = cell(
        "from tqdm.auto import tqdm\nfor _ in tqdm(range(300), mininterval=0, desc='é'): pass\n"
        "print('\\x1b[31mred\\x1b[0m')"
    )
    assert ended.exit.code == 0
    assert ended.text("stderr").count("\r") > 100
    assert ended.text("stderr").endswith("\n")
    assert "\x1b[31mred\x1b[0m\n" in ended.text()


def test_a_notebook_progress_bar_is_shown_in_words(cell):
    ended = cell("from tqdm.notebook import tqdm\nfor _ in tqdm(range(3)): pass\nprint('done')")
    assert ended.exit.code == 0
    texts = [o["data"]["text/plain"] for o in ended.outputs if "data" in o]
    assert "3/3" in texts[-1]
    assert all("widget-view" not in json.dumps(output) for output in ended.outputs)


def test_what_is_printed_is_visible_while_the_cell_runs_and_survives_sigkill(cell):
    folder, pid = cell.start("import os, time\nprint('epoch 1 损失 ✓')\ntime.sleep(600)")
    _until(lambda: any("epoch 1 损失 ✓" in o.get("text", "") for o in files.outputs(folder, 1, 0, final=False)[0]))
    os.kill(files.read_started(folder, 1)["main"]["pid"], signal.SIGKILL)
    cell.wait(pid)
    assert Ended(folder, None).text() == "epoch 1 损失 ✓\n"


def test_text_that_the_journal_missed_is_added_for_a_reader(cell):
    ended = cell("import os, signal\nprint('first')\nos.write(1, b'last words')\nos.kill(os.getpid(), signal.SIGKILL)")
    assert ended.text() == "first\nlast words"


def test_a_chatty_cell_is_bounded_in_the_journal_and_whole_in_the_log(cell):
    ended = cell("line = 'x' * 1023\nfor i in range(10_000): print(line)\nprint('the end')\n5", timeout=90)
    assert len(ended.log) == 1024 * 10_000 + 8 + 2
    journal = (ended.folder / "attempt-1/outputs.jsonl").stat().st_size
    assert 8 << 20 < journal < 10 << 20
    assert "the rest is in the log" in ended.text("stderr")
    assert "execute_result" in ended.kinds()
    assert "the end\n" in ended.text()


def test_threads_and_signal_handlers_print_without_loss(cell):
    ended = cell(
        "import signal, threading\n"
        "signal.signal(signal.SIGALRM, lambda *_: print('tick\\n', end=''))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\n"
        "def talk(n):\n    for i in range(500): print(f'{n}:{i}\\n', end='')\n"
        "ts = [threading.Thread(target=talk, args=(n,)) for n in range(4)]\n"
        "[t.start() for t in ts]; [t.join() for t in ts]\nsignal.setitimer(signal.ITIMER_REAL, 0);"
    )
    assert ended.exit.code == 0
    lines = ended.text().splitlines()
    assert sorted(line for line in lines if line[:2] != "ti") == sorted(
        f"{n}:{i}" for n in range(4) for i in range(500)
    )
    assert ended.text() == ended.log


def _until(condition, timeout=20.0):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_half_a_character_is_shown_by_its_number(cell):
    source = "print('cut \\ud83d, whole \\U0001f600')\nraise ValueError('cut emoji \\ud83d')"
    ended = cell(source)
    assert ended.text() == "cut \\ud83d, whole \U0001f600\n"
    assert ended.outputs[-1]["evalue"] == "cut emoji \\ud83d"
    json.dumps(ended.outputs, ensure_ascii=False).encode()


def test_half_a_character_that_a_user_put_into_the_journal_does_not_get_out(cell):
    ended = cell("print(1)")
    with (ended.folder / "attempt-1/outputs.jsonl").open("a") as journal:
        journal.write('{"output_type": "stream", "name": "stdout", "text": "\\uD83D", "\\udc00": ["\\ud83d"]}\n')
        journal.write("[" * 100_000 + "\n")
    assert ended.outputs[-1] == {"output_type": "stream", "name": "stdout", "text": "\\ud83d", "\\udc00": ["\\ud83d"]}
