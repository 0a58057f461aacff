"""Asks PyTorch, once it is imported, to stay within the job's promise: a cooperative cap.

Python runs this at its start because the job's PYTHONPATH begins with this folder; the user's
own sitecustomize runs afterwards as if this one were not there. Whatever fails in here fails
silently: a cap must never break a job. Works on Python 3.7 and newer, of any environment.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing typing would cost every interpreter some milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


def _fractions() -> list[float]:
    """Shares of the visible cards from GPUSCHED_CAP; empty where there is no cap, or ``off``."""
    try:
        shares = [float(word) for word in os.environ.get("GPUSCHED_CAP", "").split(",")]
    except ValueError:
        return []
    return shares if all(0 < share <= 1 for share in shares) else []


class _Cap:
    """Sets the cap of a card when this process uses it, not before.

    Importing torch must not open a card, and of several cards a worker (``torchrun`` and the like) opens its
    own only: to set a cap opens the card.
    """

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._choosing = False
        self._done: set[int] = set()

    def install(self) -> None:
        cuda = self._cuda
        choose = getattr(cuda, "set_device", None)
        if choose is not None and len(_fractions()) > 1:
            cuda.set_device = self._then_cap(choose)
        later = getattr(cuda, "_lazy_call", None)
        if later is not None and not cuda.is_initialized():
            later(self._when_opened)
        else:
            self._when_opened()

    def _then_cap(self, choose: Any) -> Any:
        from functools import wraps

        @wraps(choose)
        def set_device(device: Any) -> Any:
            self._choosing = True
            try:
                chosen = choose(device)
            finally:
                self._choosing = False
            try:
                self._set([self._cuda.current_device()])
            except Exception:  # noqa: BLE001  see above
                return chosen
            return chosen

        return set_device

    def _when_opened(self) -> None:
        try:
            count = self._cuda.device_count()
            worker = os.environ.get("LOCAL_RANK", "")
            if count == 1 or not (self._choosing or worker):
                self._set(range(count))
            elif worker.isdigit() and int(worker) < count and not self._choosing:
                self._set([int(worker)])
        except Exception:  # noqa: BLE001  see above
            return

    def _set(self, devices: Iterable[int]) -> None:
        shares = _fractions()
        for device in devices:
            if device not in self._done:
                share = shares[device] if self._cuda.device_count() == len(shares) else min(shares)
                self._cuda.set_per_process_memory_fraction(share, device)
                self._done.add(device)


class _AfterTorch:
    """Finds torch as everybody else would, and caps it when its import has ended."""

    def __init__(self) -> None:
        self._looking = False

    def find_spec(self, name: str, *_more: object, **_named: object) -> object:
        if name != "torch" or self._looking:
            return None
        self._looking = True
        try:
            from importlib.util import find_spec

            spec = find_spec(name)
            if spec is not None and hasattr(spec.loader, "exec_module"):
                _then_cap(spec.loader)
            return spec
        except Exception:  # noqa: BLE001  see above
            return None
        finally:
            self._looking = False


def _then_cap(loader: Any) -> None:
    run = loader.exec_module

    def exec_module(module: Any) -> None:
        run(module)
        try:
            _Cap(module.cuda).install()
        except Exception:  # noqa: BLE001  see above
            return

    loader.exec_module = exec_module


def _step_aside() -> None:
    """Leave sys.path as the user had it, and let the next sitecustomize, if any, take our name."""
    places = [os.path.abspath(place) for place in sys.path]
    rest = sys.path[places.index(_HERE) + 1 :] if _HERE in places else []
    sys.path[:] = [place for place, full in zip(sys.path, places) if full != _HERE]  # noqa: B905  older Pythons
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", rest)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if _fractions():
    sys.meta_path.insert(0, _AfterTorch())  # type: ignore[arg-type]  # what a finder must have has changed over time
_step_aside()
