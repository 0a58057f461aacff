"""The version, in the one place where the build and the program look."""

__version__ = "0.1.0"
