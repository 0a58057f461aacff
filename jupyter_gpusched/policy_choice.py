"""A policy by its name, or one of your own as ``module:factory``.

The only place where code of the administrator's choice is loaded for deciding; what a policy
may do is ``core.policies``'.
"""

from __future__ import annotations

import importlib
import logging
import sys

from .core.guarded import Guarded
from .core.model import BadRequest
from .core.policies import NAMED, Policy

log = logging.getLogger(__name__)


def choose_policy(name: str) -> Policy:
    """The policy of this name; one of your own under watch, so that its faults do not end who asks it.

    Raises ``BadRequest`` naming what there is, or why yours cannot be loaded.
    """
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
    except ModuleNotFoundError as error:
        raise BadRequest(
            f"policy: {name} cannot be loaded: {error}.",
            field="policy",
            hint=f"It is looked for where {sys.executable} finds modules: install it there, or name its folder in "
            "PYTHONPATH.",
        ) from error
    except Exception as error:  # somebody else's code, which may fail in any way
        what = f"{type(error).__name__}: {error}"
        raise BadRequest(f"policy: {name} cannot be loaded: {what}.", field="policy") from error
    if not isinstance(policy, Policy):
        raise BadRequest(
            f"policy: {name} returns a {type(policy).__name__}.",
            field="policy",
            hint="It must return an instance of a subclass of jupyter_gpusched.core.policies.Policy.",
        )
    if type(policy) in {type(known) for known in NAMED.values()}:
        return policy

    def tell(error: Exception) -> None:
        log.error("the policy %s failed; `default` decides in its place from now on", name, exc_info=error)

    return Guarded(policy, name, tell)
