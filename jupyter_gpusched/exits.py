"""The exit codes of ``jupyter gpusched``: a contract, see the reference."""

from __future__ import annotations

DONE, FAILED, REFUSED, NO_HOST = 0, 1, 2, 3
INTERRUPTED = 130
