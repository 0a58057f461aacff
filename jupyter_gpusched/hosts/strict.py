"""A program whose settings are taken whole or not at all: what cannot be read, or is not known, stops the start.

Whoever writes limits and administrators into a file must not get a service without them for a slip of the pen.
"""

from __future__ import annotations

import sys
from difflib import get_close_matches
from typing import Any, NoReturn

from jupyter_core.application import JupyterApp
from traitlets import TraitError

from jupyter_gpusched.settings import GpuSched


class StrictApp(JupyterApp):
    """Ends with code 2 and a sentence where its settings are faulty."""

    raise_config_file_errors = True

    def initialize(self, argv: Any = None) -> None:
        try:
            super().initialize(argv)
        except SystemExit:
            raise
        except Exception as error:  # noqa: BLE001  a file with settings is a program, which may fail in any way
            where = f", line {error.lineno} of {error.filename}" if isinstance(error, SyntaxError) else ""
            refuse(f"the settings cannot be read: {type(error).__name__}: {error}{where}")
        for kind in (GpuSched, type(self)):
            known = kind.class_trait_names(config=True)
            for name in self.config.get(kind.__name__, {}):
                if name not in known:
                    near = get_close_matches(name, known, 1)
                    refuse(
                        f"there is no setting {kind.__name__}.{name}",
                        f"Did you mean {near[0]}?" if near else "The reference lists them.",
                    )

    def settings(self) -> GpuSched:
        try:
            return GpuSched(parent=self)
        except TraitError as error:
            refuse(f"a setting has a wrong value: {error}")


def refuse(why: str, hint: str = "") -> NoReturn:
    sys.stderr.write(f"jupyter gpusched: {why}\n" + (f"  {hint}\n" if hint else ""))
    raise SystemExit(2)
