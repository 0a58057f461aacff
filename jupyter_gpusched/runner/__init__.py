"""What runs beside and inside a job: the supervisor, and the runner of cells.

These files are started as scripts in interpreters that may know nothing of this package, so
they import nothing else of ours and must never be imported for their side effects.
"""
