"""The commands of ``jupyter gpusched`` that act on jobs: cancel, hold, release; and on many at once.

Each target is answered for by itself: one that cannot be acted on does not keep the others.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .core.model import BadRequest, GpuSchedError
from .exits import DONE, REFUSED

if TYPE_CHECKING:
    from .client import Client

_CARD = re.compile(r"\d+|(GPU|MIG)-.*")

Complain = Callable[[GpuSchedError], None]


def cancel(client: Client, asked: argparse.Namespace, complain: Complain) -> int:
    one = lambda target: client.cancel(target, asked.grace)  # noqa: E731
    return _each(client, asked, "cancel", one, complain, grace=asked.grace)


def hold(client: Client, asked: argparse.Namespace, complain: Complain) -> int:
    one = lambda target: client.hold(target, asked.cause)  # noqa: E731
    return _each(client, asked, "hold", one, complain, cause=asked.cause)


def release(client: Client, asked: argparse.Namespace, complain: Complain) -> int:
    return _each(client, asked, "release", client.release_job, complain)


def is_card(target: str) -> bool:
    """Whether a target names a card (its number or UUID) and no job."""
    return _CARD.fullmatch(target) is not None


def _each(
    client: Client,
    asked: argparse.Namespace,
    act: str,
    one: Callable[[str], dict[str, Any]],
    complain: Complain,
    **more: str | None,
) -> int:
    if not (asked.ids or asked.name):
        raise BadRequest(f"{act} takes ids, or --name with a pattern.", field="id", hint="For example --name 'run-*'.")
    worst = DONE
    if asked.name:
        _tell(asked.name, {"ids": client.act_by_name(act, asked.name, **more)}, act)
    for target in asked.ids:
        try:
            _tell(target, one(target), act)
        except GpuSchedError as error:  # noqa: PERF203 - each is answered for by itself
            if error.code == "no_host":
                raise
            complain(error)
            worst = REFUSED
    return worst


def _tell(target: str, answer: dict[str, Any], act: str) -> None:
    done = {"cancel": "cancelled", "hold": "held", "release": "released"}[act]
    if "ids" in answer:
        count = len(answer["ids"])
        print(f"{target} {count} job{'' if count == 1 else 's'} {done}")
    else:
        print(f"{target} {answer['phase'] if act == 'cancel' or answer['phase'] != 'queued' else done}")


def listed(client: Client, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """What ``ls`` is asked for. Raises ``UnknownJob`` for an array that there is not: nothing of it would say so."""
    views = client.jobs(
        phase=asked.phase, name=asked.name, array=asked.array, limit=asked.limit, all_users=asked.all_users
    )
    if asked.array is not None and not views:
        client.array(asked.array)
    return views


def show_array(client: Client, target: str, *, as_json: bool, explain: bool) -> int:
    """An array as a whole, or why its elements wait and how they ended."""
    from .arraywords import array_details, array_explained

    array = client.array(target)
    if as_json:
        print(json.dumps(array, ensure_ascii=False))
    elif explain:
        of_another = array["user"] != client.health()["user"]
        print(array_explained(array, client.jobs(array=target, all_users=of_another)))
    else:
        print(array_details(array))
    return DONE


def submit_sweep(
    client: Client,
    spec: dict[str, Any],
    swept: Mapping[str, Sequence[Any]],
    throttle: int | None,
    *,
    wait: bool,
    as_json: bool,
) -> int:
    """Queue a job for each combination."""
    from .request import elements

    common, own = elements(spec, swept)
    array_id, ids = client.submit_array(common, own, throttle=throttle)
    return array_submitted(client, array_id, ids, wait=wait, as_json=as_json)


def array_submitted(client: Client, array_id: str, ids: Sequence[str], *, wait: bool, as_json: bool) -> int:
    """Say that an array is queued: its id is the last line. Waits for the end of all where that is wanted."""
    from .describe import jobs_counted

    if wait:
        print(f"array {array_id} of {jobs_counted(len(ids))} is queued; waiting for its end", file=sys.stderr)
        try:
            ended = [client.wait(job_id)["phase"] for job_id in ids]
        except KeyboardInterrupt:
            print(f"\narray {array_id} goes on; `jupyter gpusched cancel {array_id}` ends it", file=sys.stderr)
            raise
    if as_json:
        print(json.dumps(client.array(array_id), ensure_ascii=False))
    else:
        print(array_id, flush=True)
    if not wait or set(ended) == {"succeeded"}:
        return DONE
    bad = sum(phase != "succeeded" for phase in ended)
    print(
        f"jupyter gpusched: {bad} of {jobs_counted(len(ids))} of array {array_id} did not succeed\n"
        f"  `jupyter gpusched ls --array {array_id}` lists them, `jupyter gpusched resubmit {array_id}` repeats them",
        file=sys.stderr,
    )
    return 1
