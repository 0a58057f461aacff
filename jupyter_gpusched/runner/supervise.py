"""Entry of the supervisor: ``python -I -S supervise.py ATTEMPT_FOLDER``, the order on standard input.

Kept this small because a script is compiled anew at each start; the rest comes from cached
bytecode. Only ``runner`` is imported, as a package of its own: nothing else of ours is needed.
"""

import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from runner.supervision import main  # type: ignore[import-not-found]

main()
