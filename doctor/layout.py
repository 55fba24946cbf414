"""The layout of a served model: the file that is named or found, and the doubts about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kvplan.doctor.examine import ExaminedSide, overruled, stores_otherwise
from kvplan.dsl.check import model_doubts
from kvplan.dsl.configs.differences import DRAFTED, MATCH, Difference
from kvplan.dsl.configs.new_model import NewModel, made
from kvplan.dsl.configs.same_model import parsed
from kvplan.dsl.configs.unread_keys import like
from kvplan.dsl.lang.nodes import Value
from kvplan.dsl.library import Library, load
from kvplan.dsl.named import library
from kvplan.dsl.schema.config import ConfigRules
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.schema.model import CHECKPOINT, Model
from kvplan.dsl.schema.names import DRAFT_TOKENS
from kvplan.dsl.text.diagnostics import DslError, close
from kvplan.dsl.text.source import SourceSpan, shown

UNUSED = "the layout's `config` was not used, because its `match` does not hold: {}"
IDLE = "`no_effect` of the layout's `config` lists `{}`, which {} lacks"
NAME_IT = "compare it with your engine (kvplan from-cache DUMP.json), then name the file that is right with --layout"
SHIFTED = "`layers` may be shifted: two caches have each other's numbers"
DECIDED = "{}: the sides' {} decides"
CORRECT = "correct the layout: `{}` writes what CONFIG.JSON says"
CORRECT_FILE = "correct {}"
CORRECT_HERE = "correct what differs in the layout"
GIVE = "write the numbers in doubt in the layout"
RULES = (
    "if the layout is right, say under its `config` what the keys mean, `no_effect: KEY` if they change no byte "
    "(docs/dsl.md#what-a-model-adds)"
)
NOT_ITS_DRAFT = "for a draft that is not the checkpoint's add `config: {words: {drafts: 0}}` to the layout"
CORRECT_DRAFT, ADD_DRAFT = "correct the draft layers", "add the draft layers"
RENAMED = "by the checkpoint's own names {} stores something else: give the layout `checkpoint: {{{}}}`"
OVERRULED = (
    "{}: {} takes {} by the checkpoint's names: right if your build, or what `kvplan explain {}` says, changes that"
)
# The errors of a configuration that says too little for a model: rules of the layout may say the rest.
REFUSALS = ("F002", "F003", "F004", "F005", "F007")
UNCOMPARED = (
    "the configuration says nothing of draft layers: those of the layout were not compared; "
    "a draft has a config.json of its own"
)
OWN_DRAFT = "the layout's draft is not the checkpoint's: it was not compared; a draft has a config.json of its own"
UNREADABLE = "drafts: {}; the layout's draft layers were not compared"
UNDRAFTED = (
    f"{DRAFT_TOKENS}, and the layout has no draft: an engine whose draft has layers stops at start-up (I005), n-grams "
    "need none"
)


@dataclass(frozen=True, slots=True)
class FoundLayout:
    """A served model's layout: its file, empty if it is not written yet, and its name for `kvplan compile` (`word`).

    `same` are other models that store the same, `notes` remarks on the layout, `command` writes its file. `doubts` are
    reasons why the engine may store something else (see `_doubts`), `right` says what to do about them. `checkpoint`
    is what the configuration says for that key of the file. It is `undrafted` if it lacks the configuration's draft.
    """

    library: Library
    model: Model
    file: str
    word: str
    same: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    command: str = ""
    doubts: tuple[str, ...] = ()
    right: str = ""
    checkpoint: Mapping[str, Value] = field(default_factory=dict)
    undrafted: bool = False


def layouts_of(layout: str | None, layouts: Path | None) -> tuple[Library, str]:
    """All layouts, and the name of the one that the user names, empty if none. Raises DslError."""
    own = (layouts,) if layouts else ()
    return library(layout, own) if layout else (load((), own), "")


def found_layout(
    known: Library, name: str, config: Path, layout: str | None, layouts: Path | None, engines: Sequence[Engine]
) -> FoundLayout:
    """The layout of the served model, `name` if that is given, for sides of these engines. Raises DslError."""
    if layout:
        return _named(known, name, config, layout, layouts, engines)
    new = made(known, config)
    doubts = _doubts(new)
    right = NAME_IT if doubts else ""
    if new.same:
        name, *others = new.same
        names = _names_of(new)
        return FoundLayout(
            known, known.model(name), _file(known, name), name, tuple(others), new.notes, "", doubts, right, names
        )
    model, command = parsed(known, new.text, new.name, SourceSpan(shown(config), 1, 1, 1)), str(config)
    return FoundLayout(
        known, model, "", f"{new.name}.yaml", (), new.notes, new.command(command, layouts), doubts, right
    )


def _doubts(new: NewModel) -> tuple[str, ...]:
    """Why the engine may store something else: numbers in doubt, architectures known to have another layout, and the
    user's files for such a configuration, if all store something else."""
    return (*new.doubts, *_wrong(new), *(() if new.known else new.others))


def _wrong(new: NewModel) -> tuple[str, ...]:
    return tuple(f"{row.name}: {row.verdict} ({row.evidence})" for row in new.tested if row.wrong)


def _named(
    known: Library, name: str, config: Path, layout: str, layouts: Path | None, engines: Sequence[Engine]
) -> FoundLayout:
    """A layout that the user names, with the doubts about the configuration that it leaves open, and the contradictions
    between them.

    A number that the configuration does not say for sure, or that options of all sides decide, is no contradiction: it
    becomes a note, like doubts that the layout settles. An architecture that is read wrong for every engine is a doubt,
    unless the layout has its own rules.
    """
    model = known.model(name)
    layout_only = FoundLayout(known, model, _file(known, name), layout)
    try:
        new = made(known, config, layout=name)
    except DslError as error:
        if error.diagnostics[0].code not in REFUSALS:
            raise
        why = f"{shown(config)} was not compared with {name}: {error.diagnostics[0].message}"
        return replace(layout_only, doubts=(why,), right=RULES)
    differences = new.unlike(known, name)
    compared = model.config != ConfigRules() or any(row.right for row in new.tested)
    standing = (*new.standing(known, name), *(() if compared else _wrong(new)), *_unreadable(model, new))
    settled = [doubt for doubt in new.doubts if doubt not in (*standing, *model.doubts)]
    told = {each: each.text(shown(config), name) for each in differences}
    decided = {each: option for each in differences if (option := _deciding(each, engines))}
    told |= {each: DECIDED.format(told[each], option) for each, option in decided.items()}
    contradictions = [each for each in differences if each.sure and each not in decided]
    unsure = [each for each in differences if each not in contradictions]
    unused = _unused(model, new, differences, shown(config)) if contradictions or standing else ()
    notes = (*_idle(model, new, shown(config)), *settled, *_undrafted(model, new))
    return replace(
        layout_only,
        notes=(*(told[each] for each in unsure), *notes),
        doubts=(*(told[each] for each in contradictions), *standing, *unused),
        right=_advice(contradictions, standing, new.command(str(config), layouts)),
        checkpoint=_names_of(new),
        undrafted=any(each.about == DRAFTED and not model.drafts for each in unsure),
    )


def _deciding(difference: Difference, engines: Sequence[Engine]) -> str:
    """The option that gives a parameter its value on each of these engines, whatever a configuration says, or empty."""
    kind, param = difference.param
    given = ({r.that.text for r in each.require if kind in r.kinds} for each in engines)
    equal = set[str].intersection(*given)
    return next((o for each in engines for o in each.options if f"{param} == {o}" in equal), "")


def _advice(contradictions: Sequence[Difference], standing: Sequence[str], command: str) -> str:
    """The advice about contradictions and standing doubts, empty if there are none.

    `command` writes the layout, with draft layers as comments.
    """
    drafted = [each.about == DRAFTED for each in contradictions]
    if not (drafted or standing):
        return ""
    write = [] if all(drafted) else [CORRECT_HERE if standing else CORRECT.format(command)]
    give = [GIVE] if standing else []
    draft = [CORRECT_DRAFT, NOT_ITS_DRAFT] if any(drafted) else []
    values = {(each.param[1], each.configured, each.layout) for each in contradictions}
    shifted = [SHIFTED] if any((what, layout, own) in values for what, own, layout in values if what) else []
    rules = [] if all(drafted) and not standing else [RULES]
    return "; ".join((*shifted, *write, *give, *rules, *draft))


def _unreadable(model: Model, new: NewModel) -> tuple[str, ...]:
    """The doubt about a number of draft layers that is none, if the layout has draft layers."""
    drafts = new.found.drafts
    unreadable = model.drafts and drafts.value is None and not drafts.absent
    return (UNREADABLE.format(drafts.doubt),) if unreadable else ()


def _undrafted(model: Model, new: NewModel) -> tuple[str, ...]:
    """Why draft layers of a layout were not compared, because the checkpoint has none."""
    if not model.drafts:
        return ()
    if model.config.other_draft:
        return (OWN_DRAFT,)
    return (UNCOMPARED,) if new.found.drafts.absent else ()


def _unused(model: Model, new: NewModel, differences: Sequence[Difference], config: str) -> tuple[str, ...]:
    """Why the configuration was read without the layout's own rules, if it has some."""
    if model.config == ConfigRules() or new.read_by == model.name:
        return ()
    return tuple(UNUSED.format(each.text(config, model.name)) for each in differences if each.about == MATCH)


def _idle(model: Model, new: NewModel, config: str) -> Iterator[str]:
    """Sentences on keys under `no_effect` that the configuration does not have."""
    given = [*new.found.facts.values]
    for pattern in model.config.no_effect:
        if not any(like(key.lower(), (pattern,)) for key in given):
            near = close(pattern, given)
            yield IDLE.format(pattern, config) + (f": did you mean '{near[0]}'?" if near else "")


def _names_of(new: NewModel) -> dict[str, Value]:
    return {key: new.stored.values[key] for key in CHECKPOINT.known if key in new.stored.values}


def _file(known: Library, name: str) -> str:
    return shown(known.paths["model"][name].resolve())


def _without_draft(found: FoundLayout) -> FoundLayout:
    """A layout without draft layers, on a side that drafts: a doubt if the configuration has some, else a note."""
    if not found.undrafted:
        return replace(found, notes=(*found.notes, UNDRAFTED))
    right = "; ".join((*([found.right] if found.right else []), ADD_DRAFT, NOT_ITS_DRAFT))
    return replace(found, doubts=(*found.doubts, UNDRAFTED), right=right)


def on_sides(found: FoundLayout, sides: Mapping[str, ExaminedSide]) -> FoundLayout:
    """The layout with what may be wrong of it on these sides: its warnings, and other words of its checkpoint."""
    drafting = any(side.given.get(DRAFT_TOKENS, "0") != "0" for side in sides.values())
    found = _without_draft(found) if drafting and not found.model.drafts else found
    own = (
        OVERRULED.format(given, side.engine.name, taken, given.partition("=")[0])
        for side in sides.values()
        for given, taken in overruled(side, found.checkpoint)
    )
    found = replace(found, notes=(*found.notes, *dict.fromkeys(own)))
    if not found.file:
        return found
    shipped = found.library.shipped("model", found.model.name)
    words = ", ".join(f"{key}: {word}" for key, word in found.checkpoint.items())
    unnamed = (side.engine.name for side in sides.values() if stores_otherwise(side, found.checkpoint))
    warnings = model_doubts(found.library, found.model, [side.engine for side in sides.values()])
    slips = (each for each in warnings if each.message not in found.doubts)
    told = (f"{each.message} ({each.code})" + (f": {each.help}" if each.help and not shipped else "") for each in slips)
    doubts = dict.fromkeys((*found.doubts, *told, *(RENAMED.format(name, words) for name in unnamed)))
    right = found.right or (NAME_IT if shipped else CORRECT_FILE.format(found.file))
    return replace(found, doubts=tuple(doubts), right=right)
