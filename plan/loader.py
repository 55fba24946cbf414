"""Load a plan module from a file, and choose the plan for a pair of sides."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from kvplan.plan import digest
from kvplan.plan.errors import KvplanError, PlanLoadError, PlanMissingError
from kvplan.plan.types import Plan

_COUNT = itertools.count()


def load_plan(path: str | Path) -> Plan:
    """The `PLAN` of the module at `path`, which is executed: load only files that you trust.

    Raises PlanLoadError where it is not a plan module, PlanFormatError for another format or a wrong digest.
    """
    path = Path(path)
    if path.suffix != ".py" or not path.is_file():
        raise PlanLoadError(f"{path} is no Python file: give a module that `kvplan compile` wrote")
    try:
        return loaded(path.read_bytes(), str(path))
    except OSError as error:
        raise PlanLoadError(f"{path} cannot be read: {error.strerror}") from error


def loaded(data: bytes, name: str) -> Plan:
    """The plan of a module's bytes, which are executed; `name` is what errors call it. Raises as `load_plan` does."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise PlanLoadError(f"{name} cannot be imported: it is not UTF-8: {error}") from error
    plan = getattr(_module(text, name), "PLAN", None)
    if not isinstance(plan, Plan):
        raise PlanLoadError(f"{name} has no PLAN: give a module that `kvplan compile` wrote")
    digest.check(plan)
    digest.check_functions(plan, text)
    return plan


def choose(plans: Iterable[Plan], model: str, prefill: str, decode: str) -> Plan:
    """The plan for a model digest and two side digests. Raises PlanMissingError where there is none."""
    known = list(plans)
    for plan in known:
        if (plan.model_digest, plan.prefill.digest, plan.decode.digest) == (model, prefill, decode):
            return plan
    have = ", ".join(f"{plan.prefill.key} -> {plan.decode.key}" for plan in known) or "none"
    wanted = f"from side {prefill!a:.80} to side {decode!a:.80} of model {model!a:.80}"
    raise PlanMissingError(f"no plan {wanted}; have {have}: compile this pair")


def _module(text: str, name: str) -> ModuleType:
    """The text as a module. No compiled copy of it is read or kept: what was read is what runs."""
    module = ModuleType(f"kvplan_plan_{next(_COUNT)}")
    module.__file__ = name
    try:
        exec(compile(text, name, "exec", dont_inherit=True), module.__dict__)
    except KvplanError:
        raise
    except (Exception, SystemExit) as error:
        raise PlanLoadError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
    return module
