"""Where JupyterLab finds our words in other languages: two entry points of the installed package.

``jupyterlab.locale`` names this package, whose catalogues lie under ``locale/<language>/LC_MESSAGES``.
JupyterLab uses them only for a language of which it knows a pack; ``jupyterlab.languagepack`` names
``ZH_CN``, which is the pack of the Jupyter project where that is installed, and else our own part of it.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

LOCALE = Path(__file__).parent / "locale"


def _pack(module: str, language: str) -> SimpleNamespace:
    """What has a ``__file__`` beside the catalogues of a language: all that JupyterLab asks of a pack."""
    found = importlib.util.find_spec(module)
    origin = found.origin if found is not None else None
    return SimpleNamespace(__file__=origin or str(LOCALE / language / "pack"))


ZH_CN = _pack("jupyterlab_language_pack_zh_CN", "zh_CN")
