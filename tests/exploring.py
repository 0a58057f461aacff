"""How many examples Hypothesis makes up: fixed ones in every ordinary run, very many new ones when one explores.

A run that is to say whether a change is good must not fail by luck on something old; what luck
finds is looked for with ``pytest --hypothesis-profile=explore``, and becomes a test of its own.
"""

from __future__ import annotations

import hypothesis

ORDINARY, EXPLORE = "ordinary", "explore"
_FEW, _MANY = 100, 5000


def register_profiles() -> None:
    """Neither has a deadline: a loaded machine makes an example slow, not wrong."""
    hypothesis.settings.register_profile(
        ORDINARY, deadline=None, max_examples=_FEW, derandomize=True, database=None, print_blob=True
    )
    hypothesis.settings.register_profile(
        EXPLORE,
        deadline=None,
        max_examples=_MANY,
        print_blob=True,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )


def examples(ordinary: int) -> int:
    """For a test whose examples cost more or less than others': so many, and as many times more when one explores."""
    return ordinary * hypothesis.settings().max_examples // _FEW
