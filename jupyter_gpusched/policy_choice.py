"""A policy by its name, or one of your own as ``module:factory``.

The only place where code of the administrator's choice is loaded for deciding; what a policy
may do is ``core.policies``'.
"""

from __future__ import annotations

import importlib

from .core.model import BadRequest
from .core.policies import NAMED, Policy


def choose_policy(name: str) -> Policy:
    """The policy of this name. Raises ``BadRequest`` naming what there is, or why yours cannot be loaded."""
    if name in NAMED:
        return NAMED[name]
    module, colon, factory = name.partition(":")
    if not (colon and module and factory):
        known = ", ".join(NAMED)
        raise BadRequest(
            f"There is no policy {name!r}.", field="policy", hint=f"Known: {known}; your own as module:factory."
        )
    try:
        policy = getattr(importlib.import_module(module), factory)()
    except Exception as error:  # somebody else's code, which may fail in any way
        what = f"{type(error).__name__}: {error}"
        raise BadRequest(f"policy: {name} cannot be loaded: {what}.", field="policy") from error
    if not isinstance(policy, Policy):
        raise BadRequest(
            f"policy: {name} returns a {type(policy).__name__}.",
            field="policy",
            hint="It must return an instance of a subclass of jupyter_gpusched.core.policies.Policy.",
        )
    return policy
