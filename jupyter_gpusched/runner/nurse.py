"""Entry of the nursery of supervisors: ``python -I -S nurse.py DESCRIPTOR`` of its socket to the host.

Kept small for the reason that ``supervise.py`` gives. Only ``runner`` is imported.
"""

import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import fcntl  # noqa: F401  what a supervisor would import once its job runs
import gc

from runner.nursery import serve  # type: ignore[import-not-found]

gc.disable()  # a supervisor makes no cycles worth a look at all that it shares with us
serve(int(sys.argv[1]))
