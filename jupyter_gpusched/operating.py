"""The commands of ``jupyter gpusched`` that an administrator runs the machine with, and what they print."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from .exits import DONE

if TYPE_CHECKING:
    from .client import Client


def quarantine(client: Client, asked: argparse.Namespace) -> int:
    return _card_answer(client.quarantine(asked.gpu, asked.cause), asked)


def release_card(client: Client, gpu: str, asked: argparse.Namespace) -> int:
    return _card_answer(client.release(gpu, asked.cause), asked)


def drain(client: Client, asked: argparse.Namespace) -> int:
    return _drain_answer(client.drain(asked.cause), asked)


def resume(client: Client, asked: argparse.Namespace) -> int:
    return _drain_answer(client.resume(asked.cause), asked)


def _card_answer(card: dict[str, Any], asked: argparse.Namespace) -> int:
    from .describe import gpu_state

    if asked.json:
        print(json.dumps(card, ensure_ascii=False))
    else:
        print(f"GPU {card['index']} {card['name']}: {gpu_state(card)}")
    return DONE


def _drain_answer(answer: dict[str, Any], asked: argparse.Namespace) -> int:
    drained = answer["drained"]
    if asked.json:
        print(json.dumps(answer, ensure_ascii=False))
    elif drained:
        print(f"Nothing new starts here: {drained['cause']} (by {drained['by']}). `jupyter gpusched resume` ends this.")
    else:
        print("Jobs start again.")
    return DONE
