"""Runs a command behind a fence: ``python -I -S fence.py BWRAP OPTION... -- COMMAND...``, as root.

Bubblewrap builds the view of the file system; this process then enters it and becomes the command.
So the command keeps its pid, its parent and its exit code (bubblewrap itself would stay between and
tell a signal as a number), and it can still become another user.
"""

import os
import subprocess
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from runner.native import call  # type: ignore[import-not-found]

_OF_MOUNTS = 0x00020000


def main() -> None:
    split = sys.argv.index("--")
    view, command = view_of(sys.argv[1:split]), sys.argv[split + 1 :]
    try:
        call("setns", view, _OF_MOUNTS)
        os.execvp(command[0], command)  # noqa: S606  a list of words, no shell
    except OSError as error:
        sys.exit(f"the fence cannot be entered: {error}")


def view_of(bubblewrap: "list[str]") -> int:
    """An open descriptor of the view; whoever built it is gone again."""
    holder = subprocess.Popen(
        [*bubblewrap, "--", "/bin/sh", "-c", "echo $$; read end"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    pid = holder.stdout.readline().strip().decode()
    if not pid:
        sys.exit(holder.wait() or 1)  # it has said why
    try:
        return os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        holder.stdin.close()
        holder.wait()


main()
