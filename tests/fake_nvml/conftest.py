"""The fake machine for the tests of the fake itself."""

from fake_nvml.machine import built_driver, machine

__all__ = ["built_driver", "machine"]
