"""The pure core: deciding about GPU jobs.

Standard library only. Nothing in this package reads a clock, a file, an environment
variable or a network; time comes in as ``now`` (seconds since the Unix epoch, UTC) and
everything that must happen in the world goes out as a value.
"""
