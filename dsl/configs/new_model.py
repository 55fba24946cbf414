"""Make a model file from a checkpoint's configuration: its text, its doubts, and the models that store the same."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kvplan.dsl.configs.architectures import Architecture, of_words
from kvplan.dsl.configs.differences import Difference, differences
from kvplan.dsl.configs.families import fitting, nested, reading_of, spoken
from kvplan.dsl.configs.foreign_keys import contradicted, foreign
from kvplan.dsl.configs.naming import free_name, last, name_of
from kvplan.dsl.configs.recognise import UNKNOWN, RecognisedModel, recognise
from kvplan.dsl.configs.same_model import parsed, twins
from kvplan.dsl.configs.unread_keys import keys_read, names_in, unheard
from kvplan.dsl.configs.write_model import ModelHead, doubted, doubts, grave, model_text
from kvplan.dsl.lang.foreign_json import parse_foreign
from kvplan.dsl.rules.answers import ForeignValues
from kvplan.dsl.schema.config import ConfigRules
from kvplan.dsl.schema.kind import Kind
from kvplan.dsl.schema.model import Model
from kvplan.dsl.text.diagnostics import DslError, fault, listed
from kvplan.dsl.text.source import SourceSpan, shown

if TYPE_CHECKING:
    from kvplan.dsl.library import Library


CONFIG = "config.json"
UNPROVEN = "{} was never compared with an engine; its keys are assumed to mean what they mean elsewhere"
UNNAMED = "`{}` is missing: nothing can be compared, and its keys are assumed to mean what they mean elsewhere"
UNHEARD = "nothing is known about {}: look in the model's own code whether caches depend on it"

FOREIGN = (
    "`{}` changes the layout, and did so in no configuration of {} that was compared with an engine, which may ignore"
    " it: compare the layout with your engine (kvplan from-cache)"
)
TWICE = (
    "`{}` says one thing inside the model that writes text and another outside, and an engine may read either: make"
    " them the same, or compare the layout with your engine (kvplan from-cache)"
)


@dataclass(frozen=True, slots=True)
class NewModel:
    """A new model: its name, the text of its file, notes on what is not sure, and the models that store the same.

    `doubts` are the notes that mean that a number may be wrong, `unproven` the one of them that its architecture was
    never compared. `known` is the model of `same` whose `match` fits the configuration, empty if none does. `tested`
    are the rows on its architecture. `found` is the recognised model, `stored` the model parsed from the text. It was
    read by the rules of the model `read_by`, if that is not empty. `others` are notes on the user's own models whose
    `match` fits, but that store something else.
    """

    name: str
    text: str
    notes: tuple[str, ...]
    same: tuple[str, ...]
    found: RecognisedModel
    stored: Model
    doubts: tuple[str, ...] = ()
    known: str = ""
    tested: tuple[Architecture, ...] = ()
    unproven: tuple[str, ...] = ()
    read_by: str = ""
    others: tuple[str, ...] = ()

    def unlike(self, library: Library, name: str) -> tuple[Difference, ...]:
        """The differences between the model `name` of the library and the configuration."""
        return tuple(differences(library.kinds, self.found, self.stored, library.model(name)))

    def standing(self, library: Library, name: str) -> tuple[str, ...]:
        """The doubts that the model `name` of the library leaves open.

        A file of numbers does not depend on what its architecture's keys mean: it may come from an engine.
        """
        closed = {*_settled(library.kinds, self.found, library.model(name)), *self.unproven}
        return tuple(doubt for doubt in self.doubts if doubt not in closed)

    def command(self, config: str, *layouts: Path | None, out: Path | None = None) -> str:
        """The command that writes the model from the configuration at `config`, to `out` or to a file of its name."""
        more = [word for path in layouts if path for word in ("--layouts", str(path))]
        more += [*(["--copy"] if self.known else []), *(["--accept-doubts"] if self.doubts else [])]
        return shlex.join(["kvplan", "new", config, "-o", str(out or f"{self.name}.yaml"), *more])


def made(library: Library, path: Path, out: Path | None = None, layout: str = "") -> NewModel:
    """The model of the configuration at `path`, or in a checkpoint's folder, to be written to `out`.

    It is read by the rules of `layout`, if that is given. Raises DslError (F…).
    """
    return described(library, *read_config(path), out, layout=layout)


def read_config(path: Path) -> tuple[Mapping[str, object], SourceSpan]:
    """The configuration at `path`, or in a checkpoint's folder, and its place. Raises DslError (F001)."""
    path = path / CONFIG if path.is_dir() else path
    place = SourceSpan(shown(path), 1, 1, 1)
    try:
        text = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or "cannot be read").lower()
        help = "give the path of a checkpoint, or of its config.json"
        raise fault("F001", f"the file cannot be read: {reason}", place, help=help) from None
    return parse_foreign(text, place.path), place


def described(
    library: Library,
    config: Mapping[str, object],
    place: SourceSpan,
    out: Path | None = None,
    remark: str = "",
    layout: str = "",
) -> NewModel:
    """The model that the configuration at `place` describes, by the rules of a `layout`; `remark` is added to its file.

    A model is in doubt if no layout of its architecture was found to agree with an engine, unless a shipped model is
    for it, because its keys may mean something else. So is a key that the architecture may ignore. Raises DslError
    (F…).
    """
    reading, model = reading_of(library, config, layout)
    shipped = model if model and library.shipped("model", model) else ""
    found = recognise(config, reading, library.kinds, place, shipped)
    found = replace(found, remarks=(*found.remarks, remark)) if remark else found
    head = _head(library, found.facts, reading, config, out, place)
    stored = parsed(library, model_text(head, found, library.kinds), head.name, place)
    fits = fitting(library, config)
    same = sorted(twins(library, stored) if found.settled else (), key=lambda name: (name != model, name not in fits))
    known = next((name for name in same if name in fits), "")
    names = head.match.get(reading.match[0], ()) if reading.match else ()
    tested = of_words(names)
    unproven = _unproven(tested, names, shipped, reading)
    more = (
        _unheard(library, config, found, reading)
        if unproven
        else tuple(_unsure(library, config, reading, found, tested, names, place, layout))
    )
    # The doubt already says that no layout is for it.
    remarks = tuple(text for text in found.remarks if not (unproven or more) or text != UNKNOWN)
    found = replace(found, doubts=(*found.doubts, *unproven, *more), remarks=remarks)
    others = _notes_on_others(library, [name for name in fits if name not in same])
    text, notes, stated = model_text(head, found, library.kinds), (*doubts(found), *others), grave(found)
    return NewModel(head.name, text, notes, tuple(same), found, stored, stated, known, tested, unproven, model, others)


def _unproven(
    tested: Sequence[Architecture], names: Sequence[str], shipped: str, reading: ConfigRules
) -> tuple[str, ...]:
    """The doubt about an architecture without a right layout, or without a name; none if a shipped model is for it."""
    if shipped or any(row.right for row in tested) or not reading.match:
        return ()
    return (UNPROVEN.format(listed(names, "and")) if names else UNNAMED.format(reading.match[0]),)


def _unheard(
    library: Library, config: Mapping[str, object], found: RecognisedModel, reading: ConfigRules
) -> tuple[str, ...]:
    """The doubt about keys that an unknown class may read in another way."""
    if found.facts.values["class_known"]:
        return ()
    keys = unheard(nested(config, reading.inside), reading, keys_read(library, reading))
    return (UNHEARD.format(listed([f"`{key}`" for key in keys], "and")),) if keys else ()


def _unsure(
    library: Library,
    config: Mapping[str, object],
    reading: ConfigRules,
    found: RecognisedModel,
    tested: Sequence[Architecture],
    names: Sequence[str],
    place: SourceSpan,
    layout: str,
) -> Iterator[str]:
    """The doubts about keys that an engine may read otherwise: keys that never counted before, unless rules of the
    `layout` name them, and keys that differ between two mappings."""
    stored = partial(stored_by, reading, library.kinds, place)
    named = names_in(library.model(layout).config) if layout else frozenset()
    right = [row for row in tested if row.right]
    known = frozenset(key for row in right for key in row.keys) | named
    strange = foreign(config, reading.inside, found.counting, known, stored) if right else ()
    yield from (FOREIGN.format(key, listed(names, "and")) for key in strange)
    yield from (TWICE.format(key) for key in contradicted(config, reading.inside, stored))


def stored_by(
    reading: ConfigRules, kinds: Mapping[str, Kind], place: SourceSpan, config: Mapping[str, object]
) -> object:
    """The caches and numbers of a configuration by these rules; None if it is refused."""
    try:
        return recognise(config, reading, kinds, place).stored
    except DslError:
        return None


def _notes_on_others(library: Library, others: Sequence[str]) -> tuple[str, ...]:
    known = library.paths["model"]
    own = [name for name in others if not library.shipped("model", name)]
    text = "is for such a configuration and stores otherwise: give it as the layout if it is right"
    return tuple(f"{name}, of {shown(known[name].resolve())}, {text}" for name in own)


def _head(
    library: Library,
    facts: ForeignValues,
    reading: ConfigRules,
    config: Mapping[str, object],
    out: Path | None,
    place: SourceSpan,
) -> ModelHead:
    chain = nested(config, reading.inside)
    match = {key: next((words for m in chain if (words := spoken(m.get(key)))), ()) for key in reading.match}
    title, called = (last(facts.values.get(word)) for word in ("title", "name"))
    name = name_of(library, out) if out else free_name(library, called)
    model_type = facts.values.get("model_type")
    said = {"architecture": next(iter(match.get(reading.match[0], ())), "") if reading.match else ""}
    said |= {"model_type": model_type} if isinstance(model_type, str) else {}
    writer = f"kvplan new from {Path(place.path).name}"
    checkpoint = {key: word for key, word in said.items() if word}
    return ModelHead(name, title or said["architecture"] or name, match, checkpoint, writer)


def _settled(kinds: Mapping[str, Kind], found: RecognisedModel, layout: Model) -> frozenset[str]:
    """The doubts about numbers that the layout gives. Spellings that contradict each other are not settled so: the file
    may have copied the wrong one."""
    given = _given(kinds, layout)
    remarks = (text for text, name in found.unsure.items() if name in given)
    assumed = (sentence for name, answer, sentence in doubted(found) if name in given and not answer.disputed)
    return frozenset((*remarks, *assumed))


def _given(kinds: Mapping[str, Kind], layout: Model) -> frozenset[str]:
    """The numbers that the file gives, parameters in all caches that have them."""
    caches = layout.caches.values()
    left = {name for cache in caches for name in kinds[cache.kind].params if name not in cache.params}
    # Every layout gives its dtype.
    return frozenset({"dtype"} | ({name for cache in caches for name in cache.params} - left))
