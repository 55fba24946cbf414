"""Refuse pairs that cannot exchange caches: both sides must store the same thing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bind.instead import BECAUSE, WHEN, deciding
from kvplan.compiler.bound import BoundCache, BoundSide, BoundTensor
from kvplan.compiler.errors import BadInput, Refused
from kvplan.compiler.paging.rings import check_rings
from kvplan.compiler.side.text import parse_side
from kvplan.compiler.words import needed as wanted
from kvplan.dsl.lang.functions import given_words
from kvplan.dsl.text.diagnostics import as_written
from kvplan.plan.types import Needs

if TYPE_CHECKING:
    from kvplan.dsl.library import Library
    from kvplan.dsl.schema.model import Model

# Sides are bound from these.
Files = tuple["Library", "Model"]
SAME_FILES = "bind both sides from the same layout files"
PAGED = frozenset({"kernel_block", "kernel_page"})


@dataclass(frozen=True, slots=True)
class CachePair:
    """One cache as the two sides have it; with `files` an option is named only if it changes what is stored."""

    prefill: BoundCache
    decode: BoundCache
    sides: tuple[BoundSide, BoundSide]
    files: Files | None

    def values(self, name: str) -> tuple[object, object]:
        return self.prefill.env.get(name), self.decode.env.get(name)

    def differing(self) -> list[str]:
        """Return the options that differ: those with different values that set a parameter of the kind.

        If there are none, return options that only one side gives, with the other's default as their value, or else
        all with different values. Values stand in the order in which they need each other, options before parameters.
        """
        # Mesh axes, and the blocks and pages of kernels, do not change what is stored.
        beside = PAGED.union(axis for side in self.sides for axis, _ in side.sizes)
        both = [name for name in self.prefill.env if name in self.decode.env and name not in beside]
        words, given = given_words(both), sorted({key for side in self.sides for key in parse_side(side.key)})
        plain = [name for name in both if name not in words.values()]
        found = [name for name in plain if len(set(self.values(name))) > 1]
        one_sided = [n for n in given if n in plain and n not in found and len({*self.values(words[n])}) > 1]
        named = [name for name in given if name in found]
        sources = [n for i, n in enumerate(found) if self.values(n) in map(self.values, {*found[i + 1 :]} - {*named})]
        return [name for name in named if name in sources] or one_sided or named or sources[:1] or found

    def remedy(self) -> str:
        """Return what to set so that both sides store the same."""
        prefill, decode = self.sides
        every = self.differing()
        names = [name for name in every if self._matters(name)]
        if not names or self.prefill.kind != self.decode.kind:
            each = ((prefill, "prefill", self.decode), (decode, "decode", self.prefill))
            if told := next(filter(None, (_equal(self.files, *one) for one in each)), ""):
                return told
        # An engine may not run with the other's value, so that nothing shows whether it matters.
        names = names or every
        if len(names) != 1:
            return f"give both sides the same {' and '.join(names)}" if names else SAME_FILES
        one, other = (f"{names[0]}={value}" for value in self.values(names[0]))
        if one == other:
            return f"give both sides {one}, or neither of them"
        either = "" if prefill.engine == decode.engine else ", whichever both engines have"
        return f"give both sides {one}, or both {other}{either}"

    def _matters(self, name: str) -> bool:
        """Return whether one side stores something else with the other's value of an option."""
        one, other = self.values(name)
        (here, there), files = self.sides, self.files
        changed = ((here, self.prefill, other), (there, self.decode, one))
        return files is None or any(_with(files, s, c.name, name, v) not in ((), c.tensors) for s, c, v in changed)


def check_pair(prefill: BoundSide, decode: BoundSide, files: Files | None = None) -> tuple[str, ...]:
    """Return the optional caches that one side lacks; a transfer skips them.

    The `files` that the sides are bound from make advice better.
    Raises Refused (C119, C120, C130..C134, C136, C137).
    """
    if prefill.model != decode.model:
        raise Refused("C130", f"prefill runs {prefill.model!r}, decode {decode.model!r}", "compile one model at a time")
    check_rings("prefill: ", prefill)
    check_rings("decode: ", decode)
    theirs = {cache.name: cache for cache in prefill.caches}
    ours = {cache.name: cache for cache in decode.caches}
    skipped = tuple(sorted(theirs.keys() ^ ours.keys()))
    for name in skipped:
        _check_skipped(files, name, *((prefill, decode) if name in theirs else (decode, prefill)), name in theirs)
    if not ours.keys() & theirs.keys():
        raise Refused("C136", "the two sides have no cache in common: nothing would move", _in_common(prefill, decode))
    for name in sorted(ours.keys() & theirs.keys()):
        _check_needs(theirs[name], ours[name])
        _check_cache(CachePair(theirs[name], ours[name], (prefill, decode), files))
    return skipped


def _equal(files: Files | None, side: BoundSide, role: str, wanted: BoundCache) -> str:
    """Return what to give a side so that its engine stores a cache as `wanted`; empty if nothing is known."""
    if files is None:
        return ""
    library, model = files
    for name, value in deciding(library.engine(side.engine), model.caches[wanted.name].kind):
        if _with(files, side, wanted.name, name, value) == wanted.tensors:
            return f"give {role} {name}={value}, if its engine {side.engine} runs so"
    return ""


def _with(files: Files, side: BoundSide, cache: str, option: str, value: object) -> tuple[BoundTensor, ...]:
    """Return the tensors of a cache on a side with an option; none if the side would be refused."""
    given = {**parse_side(side.key), option: as_written(value)}
    try:
        made = bind(*files, ",".join(f"{key}={word}" for key, word in given.items()))
    except (BadInput, Refused):
        return ()
    return next((each.tensors for each in made.caches if each.name == cache), ())


def _check_skipped(files: Files | None, name: str, holder: BoundSide, other: BoundSide, read: bool) -> None:
    """Refuse (C131) a cache that one side lacks, unless it is optional. `read`: prefill has the cache."""
    held = next(cache for cache in holder.caches if cache.name == name)
    if held.optional:
        return
    has, lacks = ("prefill", "decode") if read else ("decode", "prefill")
    why = dict(other.absent).get(name, "")
    said = f"{has} stores the cache {name!r}, {lacks} does not" + (f" ({why})" if why else "")
    kept = _equal(files, other, lacks, held) if why.startswith(BECAUSE) else ""
    raise Refused("C131", said, kept or _to_store(why))


def _to_store(why: str) -> str:
    """Return what to set so that a side stores a cache that it lacks for the reason `why`."""
    if why.startswith(BECAUSE):
        return f"give both sides options with which {why.removeprefix(BECAUSE)} is false"
    if not why.startswith(WHEN):
        return SAME_FILES
    asked = why.removeprefix(WHEN)
    return f"give both sides options with which {asked}; a cache that the model marks optional is skipped"


def _in_common(prefill: BoundSide, decode: BoundSide) -> str:
    """Return what to do to have one cache on both sides: which side lacks which cache, and why."""
    one, other = (", ".join(f"{name!r} ({why})" for name, why in side.absent) for side in (prefill, decode))
    if one == other:
        return f"have both sides store one: both lack {one}" if one else SAME_FILES
    found = [f"{role} lacks {what}" for role, what in (("prefill", one), ("decode", other)) if what]
    return f"have both sides store the same: {'; '.join(found)}"


def _check_needs(prefill: BoundCache, decode: BoundCache) -> None:
    """Refuse (C137) a pair in which prefill does not keep every token that decode needs, for any range."""
    kept, needed = prefill.needs, decode.needs
    all_kept = kept.keep is None and kept.chunk is None and needed.whole % kept.whole == 0
    window = kept.keep is not None and needed.keep is not None and needed.keep <= kept.keep
    chunk = kept.chunk is not None and needed.chunk == kept.chunk
    alike = needed.whole == kept.whole and needed.sink <= kept.sink
    if not all_kept and not (alike and (window or chunk)):
        said = f"decode needs {_tokens(needed)} of {decode.name!r}, prefill keeps {_tokens(kept)}"
        raise Refused("C137", said, "give both sides the options that the window, what it retains and sinks depend on")


def _tokens(needs: Needs) -> str:
    return wanted(needs) or "all tokens"


def _check_cache(both: CachePair) -> None:
    _check_layers(both)
    prefill, decode = both.prefill, both.decode
    names, others = (", ".join(tensor.name for tensor in cache.tensors) for cache in (prefill, decode))
    if names != others:
        said = f"{decode.name!r} stores {names} on prefill and {others} on decode"
        raise Refused("C133", said, f"kvplan moves records, it does not convert them: {both.remedy()}")
    for one, other in zip(prefill.tensors, decode.tensors, strict=True):
        _check_tensor(both, one, other)


def _check_layers(both: CachePair) -> None:
    theirs, ours = both.prefill.layers, both.decode.layers
    if theirs != ours:
        only = sorted(set(theirs) ^ set(ours))
        which = f", layer {only[0]} on one side only" if only else ", in another order"
        said = f"{both.decode.name!r} has {len(theirs)} layers on prefill and {len(ours)} on decode{which}"
        raise Refused("C132", said, SAME_FILES)


def _check_tensor(both: CachePair, prefill: BoundTensor, decode: BoundTensor) -> None:
    what = f"{decode.name!r} of {both.decode.name!r}"
    if prefill.dtype != decode.dtype:
        said = f"{what} is {prefill.dtype} on prefill and {decode.dtype} on decode"
        raise Refused("C134", said, f"kvplan moves bytes, it does not convert: {both.remedy()}")
    if (prefill.axes, prefill.tokens_per_row) != (decode.axes, decode.tokens_per_row):
        said = f"{what} has {_geometry(prefill, decode)} on prefill and {_geometry(decode, prefill)} on decode"
        raise Refused("C132", said, both.remedy())


def _geometry(tensor: BoundTensor, other: BoundTensor) -> str:
    """Return the axes of a tensor that differ from another's: `tap 3`, `a row per 4 tokens`."""
    axes = [f"{axis} {extent}" if extent else axis for axis, extent in tensor.axes if (axis, extent) not in other.axes]
    rows = [f"a row per {tensor.tokens_per_row} tokens"] if tensor.tokens_per_row != other.tokens_per_row else []
    return " and ".join([*axes, *rows]) or f"the axes {', '.join(axis for axis, _ in tensor.axes)}"
