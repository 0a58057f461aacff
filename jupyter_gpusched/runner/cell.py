"""Entry of the cell runner: ``python cell.py JOB_FOLDER ATTEMPT``, in the job's own interpreter.

With ``--prepared ROOM DESCRIPTOR`` it first waits, with all loaded, for the attempts of one host: in each
fork that is to be a job the two arguments are there once ``be_prepared`` returns.

Its neighbours are loaded as a package of a name that no user's module has, and nothing of ours
stays on the path. It needs IPython there, and cloudpickle where values travel; nothing else.
"""

import importlib.util
import os
import sys


def load_runner(here: str) -> None:
    """This folder as the package ``_gpusched_runner``."""
    spec = importlib.util.spec_from_file_location(
        "_gpusched_runner", os.path.join(here, "__init__.py"), submodule_search_locations=[here]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["_gpusched_runner"] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    if sys.path[:1] == [here]:
        del sys.path[0]  # the working folder comes onto the path once everything of ours is imported
    load_runner(here)
    if sys.argv[1] == "--prepared":
        from _gpusched_runner.prepared import be_prepared  # type: ignore[import-not-found]

        be_prepared(int(sys.argv[-1]))
    from _gpusched_runner.job import run  # type: ignore[import-not-found]

    run(sys.argv[1], int(sys.argv[2]), here)
