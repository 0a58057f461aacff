"""Asks PyTorch, once it is imported, to stay within the job's promise: a cooperative cap.

Python runs this at its start because the job's PYTHONPATH begins with this folder; the user's
own sitecustomize runs afterwards as if this one were not there. Whatever fails in here fails
silently: a cap must never break a job. Works on Python 3.7 and newer, of any environment.
"""

from __future__ import annotations

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _fractions() -> list[float]:
    """Shares of the visible cards from GPUSCHED_CAP; empty where there is no cap, or ``off``."""
    try:
        shares = [float(word) for word in os.environ.get("GPUSCHED_CAP", "").split(",")]
    except ValueError:
        return []
    return shares if all(0 < share <= 1 for share in shares) else []


def _cap(torch: object) -> None:
    """Set the cap when CUDA is initialised, not before: importing torch must not open the card."""
    shares = _fractions()
    cuda = torch.cuda  # type: ignore[attr-defined]

    def apply() -> None:
        try:
            count = cuda.device_count()
            for device in range(count):
                share = shares[device] if count == len(shares) else min(shares)
                cuda.set_per_process_memory_fraction(share, device)
        except Exception:  # noqa: BLE001  see above
            return

    later = getattr(cuda, "_lazy_call", None)
    if later is not None and not cuda.is_initialized():
        later(apply)
    else:
        apply()


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


def _then_cap(loader: object) -> None:
    run = loader.exec_module  # type: ignore[attr-defined]

    def exec_module(module: object) -> None:
        run(module)
        try:
            _cap(module)
        except Exception:  # noqa: BLE001  see above
            return

    loader.exec_module = exec_module  # type: ignore[attr-defined]


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
