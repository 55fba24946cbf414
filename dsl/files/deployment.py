"""Deployment files: which pairs of sides of which models are to be compiled."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

from kvplan.dsl.files.documents import is_known, path_of
from kvplan.dsl.model import Deployment, PlanSpec
from kvplan.dsl.schema.fields import LABEL, LETTERS
from kvplan.dsl.schema.model import DEPLOYMENT, PlanKeys
from kvplan.dsl.text.diagnostics import Sink
from kvplan.dsl.text.yaml_reader import Tree, YamlList, YamlScalar, YamlTable

SUFFIXES = (".yaml", ".yml", ".yam")
# How the name of a pair begins that its sides give it.
UNNAMED = "p_"


def parse_deployment(sink: Sink, root: YamlTable, name: str, models: Collection[str]) -> Deployment:
    """A deployment, with every error in the sink. `models` are the known names; files are named by path."""
    keys = DEPLOYMENT.read(sink, root)
    return Deployment(name, tuple(_plan(sink, plan, models) for plan in keys.plans))


def _plan(sink: Sink, keys: PlanKeys, models: Collection[str]) -> PlanSpec:
    for side in (*keys.prefill, *keys.decode):
        if not side.strip(" ,"):
            sink.add("K003", "a side has at least one key", side.span, help="write for example tp=1")
    _check_commas(sink, keys.given.get("prefill"))
    _check_commas(sink, keys.given.get("decode"))
    named = {_model(sink, model, models): model.span for model in keys.models}
    places = {
        **({("name", keys.name): keys.name.span} if keys.name else {}),
        **{("model", name): span for name, span in named.items()},
        **{("prefill", side): side.span for side in keys.prefill},
        **{("decode", side): side.span for side in keys.decode},
        **{("option", name): name.span for name in keys.options},
        **{("value", name): value.span for name, value in keys.options.items()},
    }
    return PlanSpec(
        models=tuple(named),
        prefill=keys.prefill,
        decode=keys.decode,
        options=dict(keys.options),
        places=places,
        name=_name(sink, keys.name),
    )


def _check_commas(sink: Sink, sides: Tree | None) -> None:
    """Report a side that lost its second half: inside [ ] a comma ends what is not quoted (K018)."""
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


def _name(sink: Sink, name: YamlScalar | None) -> str:
    """What a pair is called (K009): never as pairs are that nobody named."""
    if name is not None and (not LABEL.fullmatch(name) or name.lower().startswith(UNNAMED)):
        help = f"{LETTERS[LABEL]}; {UNNAMED!r} begins the names of pairs that have none of their own"
        sink.add("K009", f"'{name}' cannot be the name of a pair", name.span, help=help)
    return name or ""


def is_path(word: str) -> bool:
    """Whether a word names a file and not what a layout file describes."""
    return word.endswith(SUFFIXES) or "/" in word


def _model(sink: Sink, model: YamlScalar, models: Collection[str]) -> str:
    """A model's name, or the path of its file: relative ones begin at the deployment file's folder."""
    if is_path(model):
        return path_of(sink, model, "deployment")
    is_known(sink, "model", model, models)
    return model
