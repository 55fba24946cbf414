"""Sources of plans: given plans, or a directory whose index names the file for each pair of sides."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from threading import Lock
from typing import Literal, Protocol, TypeVar, get_args, runtime_checkable

from kvplan.plan.errors import PlanIndexError, PlanLoadError, PlanMissingError, PlanPendingError
from kvplan.plan.files import index
from kvplan.plan.files.folder import locked
from kvplan.plan.files.index import IndexEntry, Stamp
from kvplan.plan.files.loader import choose, load_plan, loaded
from kvplan.plan.files.numbers import check_numbers
from kvplan.plan.files.shape import check_shape
from kvplan.plan.types import Plan, Side
from kvplan.runtime.ops import logs
from kvplan.runtime.plans.jit import CompileResult, Jit, check_digests, command, shown

__all__ = ["Catalog", "FixedPlans", "Jit", "PlanSource", "plans_of"]

Role = Literal["prefill", "decode"]
# A side: its digest and its readable key.
Pinned = tuple[str, str]
T = TypeVar("T")
# The directory of plans in a repository, for the advice to commit a plan.
COMMITTED = Path("plans")
# The most plans that an AsyncCatalog makes at once, the waiting ones included.
MOST = 16
# The lock file in a plans directory of the process that makes a plan.
TURN = ".compiling"


@runtime_checkable
class PlanSource(Protocol):
    """A source that finds the plan for a pair of sides, each (digest, readable key), by digests.

    `find` raises PlanMissingError.
    """

    def find(self, model: str, model_digest: str, prefill: Pinned, decode: Pinned) -> Plan: ...

    def models(self, role: Role, side: str) -> frozenset[tuple[str, str]]:
        """Return the models, (name, digest), that have plans with this side digest in this role."""


@dataclass(frozen=True, slots=True)
class FixedPlans:
    """A fixed set of plans. If several are for one pair, the first counts."""

    plans: tuple[Plan, ...]

    def find(self, model: str, model_digest: str, prefill: Pinned, decode: Pinned) -> Plan:
        return choose(self.plans, model_digest, prefill[0], decode[0])

    def models(self, role: Role, side: str) -> frozenset[tuple[str, str]]:
        found = [plan for plan in self.plans if getattr(plan, role).digest == side]
        return frozenset((plan.model, plan.model_digest) for plan in found)


class Catalog:
    """A plans directory. It must be trusted: its plans decide which bytes are moved where.

    Plans are found by digests, and among those of one pair by compile `options`, which must be equal on both engines.
    All other options must have the compiler's defaults. If different compilers made such plans, the one with the lowest
    digest is taken. With `jit`, missing plans are compiled.
    """

    def __init__(
        self,
        folder: str | Path,
        jit: Jit | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self.jit = Path(folder), jit
        self.options = tuple(sorted((options or {}).items()))
        self._read: tuple[Stamp | None, tuple[IndexEntry, ...]] = (None, ())
        self._plans: dict[str, Plan] = {}
        self._ran: dict[tuple[tuple[str, ...], Stamp | None], CompileResult] = {}
        self._reading, self._compiling = Lock(), Lock()
        if self.folder.exists() and not self.folder.is_dir():
            raise PlanIndexError(f"{self.folder} is no directory: give the one that `kvplan compile -o` wrote to")

    @property
    def waits(self) -> bool:
        """Whether `find` may take long, because it compiles missing plans."""
        return self.jit is not None

    def find(self, model: str, model_digest: str, prefill: Pinned, decode: Pinned) -> Plan:
        """Return the plan for a pair.

        Raises PlanMissingError with the command that makes it, PlanIndexError or PlanLoadError. With `jit` this takes
        up to twice its timeout: call it in a thread that may wait.
        """
        found = self.look(model_digest, prefill[0], decode[0])
        if found is not None:
            return found
        check_digests(model_digest, prefill[0], decode[0])
        text = f"no plan from {prefill[1]} ({prefill[0]}) to {decode[1]} ({decode[0]}) of {model} ({model_digest})"
        text += self._other_options((model_digest, prefill[0], decode[0]))
        words = self._command(model, prefill[1], decode[1])
        return self._compiled(text, words, lambda _: self.look(model_digest, prefill[0], decode[0]))

    def look(self, model_digest: str, prefill: str, decode: str) -> Plan | None:
        """Return the plan for three digests, or None; compile nothing. Raises PlanIndexError, PlanLoadError."""
        wanted = (model_digest, prefill, decode)
        return self._first(lambda one: _pair(one) == wanted and self._fits(one))

    def models(self, role: Role, side: str) -> frozenset[tuple[str, str]]:
        """Return the models, (name, digest), with plans for this side and these options. Raises PlanIndexError."""
        found = [one for one in self.entries() if _entry_side(one, role)[0] == side and self._fits(one)]
        return frozenset((one.model, one.model_digest) for one in found)

    def side(self, role: Role, key: str, model: str | None = None) -> Side:
        """Return the side of an engine by its key, before it has met a peer. Give `model` if there are several.

        Raises PlanMissingError, PlanIndexError if two different sides have the key, PlanLoadError.
        """
        if role not in get_args(Role):
            raise PlanMissingError(f"there is no {role!r} side: a pair has a prefill and a decode side")
        found = self._side(role, key, model)
        if found is not None:
            return found
        mine = [one for one in self.entries() if model in (None, one.model)]
        have = ", ".join(sorted({_entry_side(one, role)[1] for one in mine})) or "none"
        text = f"no {role} side {key} of {model or 'any model'} (there are: {have})"
        if model is None and not self.entries():
            help = "give the directory that `kvplan compile -o` wrote to"
            raise PlanMissingError(f"no {role} side {key}: {self.folder} holds no plans: {help}")
        if model is None:
            raise PlanMissingError(f"{text} in {self.folder}: compile a pair that has it, or name the model")
        words = self._command(model, key, key)
        return self._compiled(text, words, lambda made: self._side(role, key, model) or self._side_of(role, made))

    def entries(self) -> tuple[IndexEntry, ...]:
        """Return the index, read again if it has changed, or nothing if there is none. Raises PlanIndexError."""
        with self._reading:
            if self._stamp() != self._read[0] or self._read[0] is None:
                found = index.contents(self.folder, index.NAME)
                self._take((None, ()) if found is None else (found[0], index.parse(found[1], self._name())))
            return self._read[1]

    def _take(self, read: tuple[Stamp | None, tuple[IndexEntry, ...]]) -> None:
        """Replace the index, and drop loaded plans that it does not name."""
        before, after = ({one.sha256 for one in entries} for entries in (self._read[1], read[1]))
        if self._read[0] is not None and before != after:
            facts = {"new": len(after - before), "gone": len(before - after), "plans": len(after)}
            logs.event(logs.INFO, "plans changed", folder=self.folder, **facts)
        self._read, self._plans = read, {pin: plan for pin, plan in self._plans.items() if pin in after}

    def _stamp(self) -> Stamp | None:
        try:
            return index.stamp(os.stat(self._name()))
        except OSError:
            return None

    def _name(self) -> str:
        return str(self.folder / index.NAME)

    def _command(self, model: str, prefill: str, decode: str) -> list[str]:
        return command(model, prefill, decode, self.options, self.jit.layouts if self.jit else (), self.folder)

    def _other_options(self, pair: tuple[str, str, str]) -> str:
        """Return a text about the options of a pair's other plans, empty if it has none."""
        others = [one for one in self.entries() if _pair(one) == pair and not self._fits(one)]
        every = {tuple(option for option in one.options if option[0] in one.unusual) for one in others}
        said = " and ".join(map(_text, sorted(every)))
        return f", compiled {_text(self.options)} (there is one {said}: choose it by its options)," if said else ""

    def _fits(self, one: IndexEntry) -> bool:
        named = {name for name, _ in self.options}
        return set(self.options) <= set(one.options) and set(one.unusual) <= named

    def _first(self, wanted: Callable[[IndexEntry], bool]) -> Plan | None:
        """Return the plan with the lowest digest whose entry is wanted and whose file exists."""
        entries, found = self.entries(), None
        try:
            found = self._search(entries, wanted)
        except PlanIndexError:
            if self.entries() is entries:
                raise
        # A compile may have replaced or renamed the plan after the index was read.
        again = found is None and self.entries() is not entries
        return self._search(self.entries(), wanted) if again else found

    def _search(self, entries: Iterable[IndexEntry], wanted: Callable[[IndexEntry], bool]) -> Plan | None:
        found = sorted(filter(wanted, entries), key=lambda one: (one.plan, one.path))
        return next((plan for plan in map(self._plan, found) if plan is not None), None)

    def _side(self, role: Role, key: str, model: str | None) -> Side | None:
        alike = [one for one in self.entries() if _entry_side(one, role)[1] == key and model in (None, one.model)]
        digests = {_entry_side(one, role)[0]: one.model for one in alike}
        if len(digests) > 1:
            of = ", ".join(f"{digest} of {name}" for digest, name in sorted(digests.items()))
            raise PlanIndexError(
                f"{self.folder} has several {role} sides {key}: {of}; name the model, or remove old plans "
                "(`kvplan compile DEPLOYMENT -o DIRECTORY --prune`)"
            )
        plan = self._first(lambda one: one in alike)
        return None if plan is None else _side(plan, role)

    def _side_of(self, role: Role, made: tuple[str, ...]) -> Side | None:
        """Return the side of the plans that a command made, by digest: it may spell the key differently."""
        plan = self._first(lambda one: one.plan in made)
        return None if plan is None else _side(plan, role)

    def _plan(self, one: IndexEntry) -> Plan | None:
        """Return the plan of an entry, None if its file was removed. It checks and loads the same bytes."""
        found = index.contents(self.folder, one.path)
        if found is None:
            return None
        name, pin = str(self.folder / one.path), index.pinned(found[1])
        if pin != one.sha256:
            text = f"{name} has sha256 {pin}, its index pins {one.sha256}: find out who altered it"
            raise PlanIndexError(f"{text}, then {index.AGAIN}")
        plan = self._plans.get(pin) or loaded(found[1], name)
        _check(one, index.entry(one.path, found[1], plan, one.unusual), name)
        if self.jit is not None and pin not in self._plans:
            words = command(plan.model, plan.prefill.key, plan.decode.key, self.options, self.jit.layouts, COMMITTED)
            logs.event(logs.INFO, "plan not committed", plan=plan.digest, folder=self.folder, commit=shown(words))
        return self._plans.setdefault(pin, plan)

    def _compiled(self, text: str, words: list[str], look: Callable[[tuple[str, ...]], T | None]) -> T:
        """Run the command and return what `look` finds then; commands run one at a time. Raises PlanMissingError."""
        if self.jit is None:
            raise PlanMissingError(f"{text} in {self.folder}; make it with\n{shown(words)}")
        if not self._compiling.acquire(timeout=self.jit.timeout):
            raise PlanMissingError(f"{text}; other plans have been compiled for {self.jit.timeout:.3g} s: ask again")
        try:
            # If several processes of this machine need a plan at once, the first makes it for all.
            with locked(self.folder / TURN, self.jit.timeout):
                found = look(())
                found = look(self._run(self.jit, tuple(words))) if found is None else found
        finally:
            self._compiling.release()
        if found is None:
            raise PlanMissingError(f"{text}; other digests come of\n{shown(words)}\nare both engines of one kvplan?")
        return found

    def _run(self, jit: Jit, words: tuple[str, ...]) -> tuple[str, ...]:
        """Run a command, unless its final result for this index is known, and return the digests of its plans."""
        made = self._ran.get((words, self._stamp()))
        if made is None and len(self._ran) >= jit.most:
            raise PlanMissingError(f"{jit.most} plans were asked for, no more are made; make it with\n{shown(words)}")
        made = made or jit.run(words)
        if made.final:
            self._ran[words, self._stamp()] = made
        if made.problem:
            raise PlanMissingError(f"{made.problem}: {shown(words)}")
        return made.digests


class AsyncCatalog:
    """A catalog that compiles one plan at a time in its own thread."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog, self._lock = catalog, Lock()
        self._thread = ThreadPoolExecutor(1, "kvplan-jit")
        self._running: dict[tuple[str, str, Pinned, Pinned], Future[Plan]] = {}

    def models(self, role: Role, side: str) -> frozenset[tuple[str, str]]:
        return self._catalog.models(role, side)

    def find(self, model: str, model_digest: str, prefill: Pinned, decode: Pinned) -> Plan:
        """Return the plan. Raises PlanPendingError while it is being made, and later the error of making it."""
        found = self._catalog.look(model_digest, prefill[0], decode[0])
        if found is not None:
            return found
        key = model, model_digest, prefill, decode
        with self._lock:
            if key not in self._running and len(self._running) < MOST:
                self._running[key] = self._thread.submit(self._catalog.find, *key)
            future = self._running.get(key)
            if future is None or not future.done():
                raise PlanPendingError(f"the plan from {prefill[1]} to {decode[1]} of {model} is being made")
            return self._running.pop(key).result()


def never_waiting(plans: PlanSource) -> PlanSource:
    """Return `plans`, wrapped if needed so that `find` never waits for a compiler."""
    return AsyncCatalog(plans) if isinstance(plans, Catalog) and plans.waits else plans


def plans_of(value: object) -> PlanSource:
    """Return a plan source of a plan, of plans, of the path of a plan or a plans directory, or a source as it is.

    Raises PlanLoadError for anything else, and PlanFormatError for a plan with invalid numbers.
    """
    if isinstance(value, Plan):
        return _given((value,))
    if isinstance(value, str | Path):
        return FixedPlans((load_plan(value),)) if Path(value).is_file() else Catalog(value)
    # Sequences and bytes also have a method `find`.
    if isinstance(value, PlanSource) and not isinstance(value, Sequence | bytearray):
        return value
    given = tuple(value) if isinstance(value, Iterable) else ()
    if not given or not all(isinstance(plan, Plan) for plan in given):
        raise PlanLoadError(f"{ascii(value)[:80]} is no plan, plans or plans directory: give one of these")
    return _given(given)


def _given(plans: tuple[Plan, ...]) -> FixedPlans:
    """Return a source of plans that a caller made, or may have changed after loading. Raises PlanFormatError."""
    for plan in plans:
        check_shape(plan)
        check_numbers(plan)
    return FixedPlans(plans)


def _text(options: Iterable[tuple[str, str]]) -> str:
    """Return options as text: `with strategy=auto`, or `by default` for none."""
    words = ", ".join(f"{name}={value}" for name, value in options)
    return f"with {words}" if words else "by default"


def _pair(one: IndexEntry) -> tuple[str, str, str]:
    """Return the digests of model, prefill side and decode side."""
    return one.model_digest, one.prefill[0], one.decode[0]


def _entry_side(one: IndexEntry, role: Role) -> Pinned:
    return one.prefill if role == "prefill" else one.decode


def _side(plan: Plan, role: Role) -> Side:
    return plan.prefill if role == "prefill" else plan.decode


def _check(pinned: IndexEntry, found: IndexEntry, name: str) -> None:
    """Raises PlanIndexError if a plan differs from its entry in the index."""
    for field in fields(IndexEntry):
        said, is_ = getattr(pinned, field.name), getattr(found, field.name)
        if said != is_:
            raise PlanIndexError(f"{name} has {field.name} {is_!r}, its index says {said!r}: {index.AGAIN}")
