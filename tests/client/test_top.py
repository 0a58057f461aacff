"""``jupyter gpusched top``: the picture, and a real terminal that is left as it was found."""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

import pytest

from jupyter_gpusched import cli, top

READY = b"q leaves"


def test_without_a_terminal_it_prints_how_things_stand_once(fake_host, capsys, a_view):
    fake_host.views = {"aaaa1111": a_view("aaaa1111"), "bbbb2222": a_view("bbbb2222", phase="succeeded")}
    assert cli.main(["top"]) == 0
    shown = capsys.readouterr().out
    assert "SIMULATED" in shown
    assert "aaaa1111" in shown
    assert "bbbb2222" not in shown
    assert "\x1b" not in shown


def test_a_picture_has_running_jobs_first_then_the_queue_in_its_order_then_what_ended(a_view, a_gpu):
    picture = top.Picture()
    jobs = [a_view("queued02", position=2), a_view("queued01", position=1), a_view("running1", phase="running")]
    picture.take({"type": "snapshot", "jobs": jobs, "gpus": [a_gpu()]}, 1.0)
    gone = a_view("ended001", phase="succeeded", ended_at=5.0)
    picture.take({"type": "job", "event": "exited", "job": gone}, 2.0)
    rows = [line.split()[0] for line in picture.lines(100, 40, 3.0)[-4:]]
    assert rows == ["running1", "queued01", "queued02", "ended001"]
    picture.take({"type": "job", "event": "deleted", "job": gone}, 2.0)
    assert "ended001" not in "\n".join(picture.lines(100, 40, 3.0))


@pytest.mark.parametrize(("width", "height"), [(80, 24), (20, 5), (10, 1)])
def test_a_picture_never_leaves_its_terminal(a_view, a_gpu, width, height):
    picture = top.Picture()
    jobs = [a_view(f"job{n:05d}", position=n) for n in range(50)]
    picture.take({"type": "snapshot", "jobs": jobs, "gpus": [a_gpu(n) for n in range(3)]}, 1.0)
    lines = picture.lines(width, height, 2.0)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    if height > 20:
        assert "more" in lines[-1]


def test_a_silent_host_is_told(a_gpu):
    picture = top.Picture()
    assert "connecting" in picture.lines(100, 9, 1.0)[0]
    picture.take({"type": "snapshot", "jobs": [], "gpus": [a_gpu()]}, 1.0)
    assert "no news for 9s" in picture.lines(100, 9, 10.0)[0]


class Terminal:
    """The command in a terminal of its own."""

    def __init__(self):
        self.shown = b""
        self.pid, self.screen = pty.fork()
        if self.pid == 0:
            os.execv(sys.executable, [sys.executable, "-m", "jupyter_gpusched.cli", "top"])
        self.resize(12, 140)

    def resize(self, rows, columns):
        fcntl.ioctl(self.screen, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, text):
        """What is shown up to this text, which is taken away."""
        deadline = time.monotonic() + 30
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            if select.select([self.screen], [], [], 0.1)[0]:
                self.shown += os.read(self.screen, 65536)
        before, _, self.shown = self.shown.partition(text)
        return before

    def ended(self):
        """Exit code, and the rest of what was shown."""
        try:
            while data := os.read(self.screen, 65536):
                self.shown += data
        except OSError:  # the terminal's way of saying that nobody has it open any more
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]), self.shown


@pytest.fixture
def terminal(host):
    terminal = Terminal()
    yield terminal
    os.close(terminal.screen)


@pytest.mark.parametrize("leave", ["q", "Ctrl-C", "SIGTERM"])
def test_in_a_terminal_it_lives_until_it_is_left_and_puts_everything_back(terminal, client, command, leave):
    terminal.read_until(b"\x1b[?1049h")
    job_id = client.submit(command("sleep", "60"))
    terminal.read_until(job_id.encode())
    if leave == "SIGTERM":
        os.kill(terminal.pid, signal.SIGTERM)
    else:
        os.write(terminal.screen, b"q" if leave == "q" else b"\x03")
    code, rest = terminal.ended()
    assert code == 0
    assert rest.endswith(b"\x1b[?7h\x1b[?25h\x1b[?1049l")


def test_it_follows_the_size_of_the_terminal(terminal):
    terminal.read_until(b"STATE")
    terminal.resize(12, 30)
    terminal.read_until(b"\x1b[H")
    while b"STATE" in (drawn := terminal.read_until(b"\x1b[H")):
        pass
    assert max(len(line) for line in drawn.replace(b"\x1b[K", b"").replace(b"\x1b[J", b"").split(b"\r\n")) <= 30
    os.write(terminal.screen, b"q")
    assert terminal.ended()[0] == 0


def test_alerts_come_and_go_between_cards_and_jobs(a_gpu):
    picture = top.Picture()
    alert = {"id": "driver", "severity": "error", "message": "The driver is broken."}
    picture.take({"type": "snapshot", "jobs": [], "gpus": [a_gpu()], "alerts": []}, 1.0)
    picture.take({"type": "alert", "event": "raised", "alert": alert}, 1.0)
    assert "error: The driver is broken." in picture.lines(100, 20, 1.0)
    picture.take({"type": "alert", "event": "resolved", "alert": alert}, 2.0)
    assert "error: The driver is broken." not in picture.lines(100, 20, 2.0)
