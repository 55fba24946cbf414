"""Check the names in rules: each is a word, a key of configurations, or known of every configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

from kvplan.dsl.lang.nodes import Expr, used
from kvplan.dsl.schema.config import DRAFTS, ConfigRules, RemarkRule
from kvplan.dsl.schema.fields import check_names, check_sentence, placeholders
from kvplan.dsl.schema.kind import Kind, Rule
from kvplan.dsl.schema.model import Model
from kvplan.dsl.text.diagnostics import Diagnostic, Sink, nearest
from kvplan.dsl.text.yaml_reader import YamlScalar

# Names in words about a layer: its number, and the number of the run of that layer, from 0.
LAYER, RUN = "layer", "run"
# Names that are known of every configuration; `unsaid` never has a value.
ALWAYS = frozenset({LAYER, RUN, "class_known", "class_open", "served_as", "unsaid"})
# Words that are read by their names, beside those that `ConfigRules.always` lists.
NAMED = (DRAFTS, "shared")
# Numbers of a model that a remark may be about, beside parameters of kinds.
NUMBERS = ("dtype", "layers", "query_heads")
# Ratio (difflib) from which an unknown name is a misspelling. Other configurations may have keys that no file lists.
SLIP = 0.85
# The ratio for keys in lists: nothing says there that an unknown key is meant, so it is only a warning.
LISTED_SLIP = 0.92
CORRECT_KEY = "correct it, unless your configuration has such a key"
DECLARE = "list it under keys if configurations have it"


def check_reading(sink: Sink, reading: ConfigRules) -> None:
    """Report names in the rules of a config file that nothing defines, and words that are used before their place
    (E005)."""
    known = {*ALWAYS, *_keys(reading)}
    for key in (key for key in reading.match if key not in known):
        _unknown(sink, key, known)
    later = {word for word, _ in reading.words} - known
    for word, expr in reading.words:
        for name in (name for name in used(expr.tree) if name.id in later):
            sink.add("E005", f"'{name.id}' is a word that comes later", name.span, help="words use those before them")
        check_names(sink, expr, {*known, *later}, DECLARE)
        known.add(word)
        later.discard(word)
    for remark in (*reading.remarks, *reading.faults):
        check_names(sink, remark.when, known, DECLARE)
        check_sentence(sink, remark.say, known)


def check_words(sink: Sink, reading: ConfigRules, kinds: Mapping[str, Kind], models: Iterable[Model]) -> None:
    """Report words of a config file that nothing reads (K001), and unknown numbers of remarks (K008)."""
    asked = _asked(reading).union(_of_kinds(kinds), *(_asked(model.config) for model in models))
    _check_read(sink, dict(reading.words), asked)
    _check_numbers(sink, reading.remarks, kinds)


def check_kind(sink: Sink, reading: ConfigRules, kind: Kind) -> None:
    """Report names in a kind's `match` that are spelled almost like known ones (E005)."""
    known = {*_known(reading), *(key for rule in kind.match for key in rule.covers)}
    for expr in (expr for rule in kind.match for expr in rule.exprs):
        _check_slips(sink, expr, known, "covers")


def check_own(sink: Sink, reading: ConfigRules, kinds: Mapping[str, Kind], model: Model) -> None:
    """Report names in a model's `config` and `match` that are spelled almost like known ones (E005), words that nothing
    reads (K001), and unknown numbers of remarks (K008)."""
    own, words = model.config, dict(model.config.words)
    known = {*_known(reading), *words, *own.no_effect, *(key for rule in own.caches for key in rule.covers)}
    for key in (key for key in model.match if key not in known and _slips(key, known)):
        _unknown(sink, key, known)
    for word, expr in words.items():
        _check_slips(sink, expr, known, "no_effect", word)
    rules = (expr for rule in own.caches for expr in rule.exprs)
    for expr in (*rules, *(remark.when for remark in own.remarks)):
        _check_slips(sink, expr, known, "no_effect")
    for say in (remark.say for remark in own.remarks):
        check_sentence(sink, say, {*known, *(name for name in placeholders(say) if not _slips(name, known))})
    _check_read(sink, words, {*_asked(reading), *_of_kinds(kinds), *_asked(own), *_known(reading)})
    _check_numbers(sink, own.remarks, kinds)


def listed_slips(
    listed: Iterable[str], rules: Iterable[Rule], reading: ConfigRules, kinds: Iterable[Kind]
) -> Iterator[Diagnostic]:
    """Warnings (W007) for keys that are `listed` or that `rules` cover, and that are spelled almost like known ones."""
    rules = [*rules]
    others = (key for kind in kinds for rule in kind.match if rule not in rules for key in rule.covers)
    known = {*_keys(reading), *reading.no_effect, *reading.common, *others}
    for key in (*listed, *(key for rule in rules for key in rule.covers)):
        near = get_close_matches(key, known, 1, LISTED_SLIP) if "*" not in key and key not in known else []
        if near and isinstance(key, YamlScalar):
            text = f"`{key}` is no known key of configurations, and is spelled almost like `{near[0]}`"
            yield Diagnostic("W007", text, key.span, (), CORRECT_KEY)


def _known(reading: ConfigRules) -> set[str]:
    return {*ALWAYS, *_keys(reading), *(word for word, _ in reading.words)}


def _keys(reading: ConfigRules) -> Iterator[str]:
    """The keys of configurations that a config file and its classes list."""
    yield from (*reading.keys, *reading.inside, *reading.outermost)
    for entry in reading.classes.entries.values():
        yield from (*entry.every, *entry.apart)


def _asked(reading: ConfigRules) -> set[str]:
    """The names that rules and sentences ask for, and the words that are read by their names."""
    remarks = (*reading.remarks, *reading.faults)
    exprs = (*(expr for _, expr in reading.words), *(remark.when for remark in remarks))
    said = (name for remark in remarks for name in placeholders(remark.say))
    rules = (rule.names for rule in reading.caches)
    return {*reading.always, *NAMED, *said}.union(*rules, *(expr.names for expr in exprs))


def _of_kinds(kinds: Mapping[str, Kind]) -> set[str]:
    return set().union(*(rule.names for kind in kinds for rule in kinds[kind].match))


def _check_slips(sink: Sink, expr: Expr, known: set[str], place: str, word: str = "") -> None:
    """Report names that are spelled almost like known ones; a key may be called almost like the `word` made of it."""
    for name in used(expr.tree):
        if name.id not in known and (meant := _slips(name.id, known - {word})):
            help = f"did you mean '{meant}'? If configurations have such a key, list it under {place}"
            sink.add("E005", f"unknown name '{name.id}'", name.span, help=help)


def _slips(name: str, known: set[str]) -> str:
    """The known name that is meant by a misspelled one; empty if it is like none."""
    turned = [other for other in sorted(known) if sorted(other.split("_")) == sorted(name.split("_"))]
    return next(iter((*turned, *get_close_matches(name, known, 1, SLIP))), "")


def _check_read(sink: Sink, words: Mapping[str, Expr], asked: set[str]) -> None:
    for word, expr in words.items():
        if word not in asked:
            span = word.span if isinstance(word, YamlScalar) else expr.span
            sink.add("K001", f"nothing reads the word '{word}'", span, help=nearest(word, asked))


def _check_numbers(sink: Sink, remarks: Iterable[RemarkRule], kinds: Mapping[str, Kind]) -> None:
    known = {*NUMBERS, *(name for kind in kinds for name in kinds[kind].params)}
    for of in (remark.word("of") for remark in remarks):
        if of is not None and of not in known:
            sink.add("K008", f"unknown number '{of}'", of.span, help=nearest(of, known))


def _unknown(sink: Sink, key: str, known: set[str]) -> None:
    """Report a key of `match`."""
    assert isinstance(key, YamlScalar)
    sink.add("E005", f"unknown key '{key}' in match", key.span, help=nearest(key, known) or DECLARE)
