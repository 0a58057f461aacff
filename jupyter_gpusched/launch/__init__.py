"""Starting, ending and re-adopting attempts; ``local.py`` is the launcher for this user on this machine.

The only part of a host that deals with processes of jobs. It decides nothing about the queue.
"""
