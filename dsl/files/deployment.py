"""Read deployment files: the models and the pairs of sides to compile."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import pairwise

from kvplan.dsl.files.documents import is_known, path_of
from kvplan.dsl.schema.deployment import DEPLOYMENT, Deployment, PlanSpec
from kvplan.dsl.schema.fields import LABEL, LETTERS
from kvplan.dsl.text.diagnostics import Sink
from kvplan.dsl.text.yaml_reader import Tree, YamlList, YamlScalar, YamlTable

SUFFIXES = (".yaml", ".yml", ".yam")
# The prefix of names that are made from sides.
UNNAMED = "p_"


def parse_deployment(sink: Sink, root: YamlTable, name: str, models: Collection[str]) -> Deployment:
    """The deployment, with every error in the sink. `models` are the known names; paths name files."""
    deployment = DEPLOYMENT.read(sink, root)
    return replace(deployment, name=name, plans=tuple(_plan(sink, plan, models) for plan in deployment.plans))


def _plan(sink: Sink, keys: PlanSpec, models: Collection[str]) -> PlanSpec:
    for side in (*keys.prefill, *keys.decode):
        if not side.strip(" ,"):
            sink.add("K003", "a side has at least one key", side.span, help="write for example tp=1")
    _check_commas(sink, keys.given.get("prefill"))
    _check_commas(sink, keys.given.get("decode"))
    _check_name(sink, keys.word("name"))
    named = (_model(sink, model, models) for model in keys.models)
    return replace(keys, models=tuple(dict.fromkeys(named)))


def _check_commas(sink: Sink, sides: Tree | None) -> None:
    """Report a side that was cut in two (K018): inside [ ] a comma ends unquoted text."""
    items = sides.items if isinstance(sides, YamlList) and sides.flow else ()
    for before, item in pairwise(item for item in items if isinstance(item, YamlScalar)):
        # A quoted comma is meant.
        known = (before.quoted and item.quoted) or "," in before + item
        if known or _side_key(before) == _side_key(item):
            continue
        message = f"'{before}' and '{item}' are two sides: inside [ ] a comma ends one that is not quoted"
        help = f'quote a side with a comma: ["{before},{item}"]; for two, quote each'
        sink.add("K018", message, item.span, help=help)


def _side_key(side: YamlScalar) -> str:
    return side.partition("=")[0].strip()


def _check_name(sink: Sink, name: YamlScalar | None) -> None:
    """Report a word that cannot name a pair (K009), also one with the prefix of names made from sides."""
    if name is not None and (not LABEL.fullmatch(name) or name.lower().startswith(UNNAMED)):
        help = f"{LETTERS[LABEL]}; {UNNAMED!r} begins the names of pairs that have none of their own"
        sink.add("K009", f"'{name}' cannot be the name of a pair", name.span, help=help)


def is_path(word: str) -> bool:
    """Whether a word is the path of a file, and not a name."""
    return word.endswith(SUFFIXES) or "/" in word


def _model(sink: Sink, model: YamlScalar, models: Collection[str]) -> YamlScalar:
    """A model's name, or the path of its file; relative paths begin at the deployment file's folder."""
    if is_path(model):
        return YamlScalar(path_of(sink, model, "deployment"), model.span)
    is_known(sink, "model", model, models)
    return model
