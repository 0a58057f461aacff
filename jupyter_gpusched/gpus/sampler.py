"""The process that talks to the NVIDIA driver, so that a stuck call stops nothing but itself.

``python -m jupyter_gpusched.gpus.sampler``: each line on standard input asks for one sample; each
card answers with one JSON line from a thread of its own, so that the others go on when one hangs.
Ends when its input ends. Keeps nothing and decides nothing.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any, BinaryIO

from .causes import Trouble
from .driver import Card, DriverError, connect, trouble_of


class _Answers:
    """Lines to the host, one at a time. Without a host there is nothing left to do."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def say(self, line: dict[str, Any]) -> None:
        with self._lock:
            try:
                self._stream.write(json.dumps(line).encode() + b"\n")
                self._stream.flush()
            except OSError:
                os._exit(0)


class _Requests:
    """The number of the latest request. A card that was busy meanwhile answers only the last one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._latest = 0

    def ask(self, number: int) -> None:
        with self._changed:
            self._latest = number
            self._changed.notify_all()

    def next_after(self, number: int) -> int:
        with self._changed:
            self._changed.wait_for(lambda: self._latest > number)
            return self._latest


def _serve(requests: _Requests, answers: _Answers) -> None:
    """Open the driver and start a thread per card, or say why that cannot be, and end."""
    try:
        count = connect()
    except Exception as error:  # noqa: BLE001  whatever happens in there, the host must be told
        _give_up(answers, trouble_of(error))
        return
    answers.say({"cards": count})
    for index in range(count):
        threading.Thread(target=_keep_reading, args=(index, requests, answers), daemon=True).start()


def _give_up(answers: _Answers, trouble: Trouble) -> None:
    answers.say({"failed": trouble._asdict()})
    os._exit(0)


def _keep_reading(index: int, requests: _Requests, answers: _Answers) -> None:
    card, number = Card(index), 0
    while True:
        number = requests.next_after(number)
        answers.say({"card": index, "number": number, "at": time.time(), **_read(card)})


def _read(card: Card) -> dict[str, Any]:
    try:
        return {"devices": card.read()}
    except DriverError as error:
        return {"failed": error.trouble._asdict()}
    except Exception as error:  # noqa: BLE001  one odd answer of a driver must not end the card's thread
        return {"failed": {"name": "ODD_ANSWER", "text": f"{type(error).__name__}: {error}"}}


def main() -> None:
    # The driver's library may print; what it prints must not get into the answers.
    answers = _Answers(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    requests = _Requests()
    threading.Thread(target=_serve, args=(requests, answers), daemon=True).start()
    for line in sys.stdin.buffer:
        requests.ask(int(line))
    os._exit(0)  # a thread that is stuck in the driver would never end


if __name__ == "__main__":
    main()
