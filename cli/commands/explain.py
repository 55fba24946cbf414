"""kvplan explain: a model, a pair, an engine, a kind, a plan, a code, a word of `diff`, what production shows, a word.

Functions that need the compiler import it themselves, so that a code is explained without delay.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvplan.cli import complete, on_call
from kvplan.cli.codes import words
from kvplan.cli.commands import explain_text
from kvplan.cli.options import AskedPairs, format_option, layouts_option, pair_options
from kvplan.cli.terminal import drawing, fitted, say, width
from kvplan.deploy import plans
from kvplan.dsl.named import is_layout_file, is_path, library
from kvplan.review.rules import MEANINGS, RULES, VERDICTS, Category, RolloutVerdict

if TYPE_CHECKING:
    from kvplan.dsl.library import Library
    from kvplan.dsl.schema.model import Model

WORD = "word"
# The side of an engine without options.
ONE = "tp=1"
CODE = re.compile(r"[A-Za-z]\d{3}")
# The prefix of all metrics.
METRIC = "kvplan_"


@click.command("explain")
@click.argument(
    "what",
    nargs=-1,
    required=True,
    metavar="MODEL|ENGINE|KIND|PLAN|CODE|RULE|METRIC|LOG|WORD",
    shell_complete=complete.anything,
    callback=lambda ctx, param, said: " ".join(said),
)
@pair_options(required=False)
@click.option("--worker", type=int, metavar="N", help="Draw what lands on decode worker N; 0 by default.")
@layouts_option
@format_option("text", "json")
def command(what: str, asked: AskedPairs, worker: int | None, form: str) -> None:
    """Explain a model, pair, engine, kind, plan or error code.

    For a MODEL alone it shows the caches; with one side also its groups and pages; with both sides what moves, and
    where each piece lands on one decode worker. For an ENGINE: its options and what it derives. For a KIND: its
    parameters, and what it stores in which orders. Also takes a PLAN file, an error's CODE, a RULE,
    category or verdict of diff, a METRIC or alert, a line of the LOG ("hold refused"), or a WORD: of the glossary, a
    key of layout files, a parameter of a kind, an option of an engine, or a value of one.
    """
    said = _explain(what, asked, worker or 0)
    if "code" in said and (signs := on_call.signs_of(what) or on_call.signs_of(said["code"])):
        said["seen"] = [sign._asdict() for sign in signs]
    if worker is not None and "landing" not in said:
        from kvplan.compiler.errors import BadInput

        raise BadInput("S024", f"--worker {worker} needs a pair", "give --prefill and --decode, or the path of a plan")
    show = explain_text.text(said)
    click.echo(json.dumps(said, indent=2)) if form == "json" else say(fitted(show, width()))


def _explain(what: str, asked: AskedPairs, worker: int) -> dict[str, Any]:
    if what in RULES:
        asked.leave_out(f"{what} is a rule")
        return explain_rule(what)
    if what in MEANINGS:
        asked.leave_out(f"{what} is a category of rules")
        return explain_category(Category(what))
    if what in VERDICTS:
        asked.leave_out(f"{what} is a verdict")
        from kvplan.cli.commands.explain_word import also
        from kvplan.dsl.library import load

        title, more = f"{VERDICTS[RolloutVerdict(what)]}.", also(load((), asked.layouts), what)
        return {"code": what, "title": title, "text": f"A verdict of kvplan diff.\n\n{more}".strip()}
    if code := what.upper() if CODE.fullmatch(what) else _code_of(what):
        asked.leave_out(f"{what} is a code")
        return explain_code(code)
    if on_call.alert(what) or (on_call.LINE.search(what) and on_call.signs_of(what)):
        asked.leave_out(f"{what} is an alert, or a line of the log")
        return explain_seen(what)
    if what.rpartition(":")[2].startswith(METRIC) and not is_path(what):
        asked.leave_out(f"{what} is a metric")
        return explain_metric(what)
    if what.endswith(plans.SUFFIX):
        asked.leave_out("a plan has its own sides and options")
        return explain_plan(Path(what), worker)
    found, file_type, name = _described(what, asked.layouts)
    if file_type == WORD:
        from kvplan.cli.commands.explain_word import explain_word

        asked.leave_out(f"{what} is a word")
        return explain_word(found, name)
    if file_type != "model":
        from kvplan.cli.commands.explain_layouts import explain_engine, explain_kind
        from kvplan.cli.commands.explain_word import also

        asked.leave_out(f"{what} is no model")
        said = (explain_engine if file_type == "engine" else explain_kind)(found, name)
        return {**said, "also": also(found, name)}
    if asked.prefill and asked.decode:
        return explain_pair(found, name, asked, worker)
    side = asked.prefill or asked.decode
    without = replace(asked, prefill="", decode="")
    without.leave_out(f"nothing is compiled of {what} without --prefill and --decode")
    return explain_side(found, name, side) if side else explain_model(found, name)


def _code_of(what: str) -> str:
    """The code of the error class of this name; empty if there is none."""
    from kvplan.cli.codes import all_codes

    if not what.endswith("Error"):
        return ""
    return next((code for code, known in all_codes().items() if known.title == what), "")


def _described(what: str, layouts: tuple[Path, ...]) -> tuple[Library, str, str]:
    """The layout files, with the file `what` if it is a path; the type that `what` names, and its name.

    The type is engine, kind, model, or else WORD. Raises DslError.
    """
    from kvplan.cli.commands.explain_word import explain_word
    from kvplan.dsl.library import load

    file = is_layout_file(what)
    known, name = load([Path(what)] if file else (), layouts), Path(what).stem if file else what
    for file_type in ("engine", "kind"):
        if name in known.paths[file_type] and (not file or known.paths[file_type][name].samefile(what)):
            return known, file_type, name
    if what not in known.models and not known.family(what):
        plans.check_one(what)
        if not is_path(what):
            if explain_word(known, what):
                return known, WORD, what
            raise _unknown(known, what)
    known, name = library(what, layouts)
    return known, "model", name


def _unknown(known: Library, what: str) -> Exception:
    """The error for a word that has no explanation (K008)."""
    from kvplan.cli.commands.explain_word import names_in_files
    from kvplan.dsl.files.documents import ARGUMENT, ELSEWHERE, beside, nearest_name
    from kvplan.dsl.text.diagnostics import SHORT_LIST, Diagnostic, DslError, quoted
    from kvplan.dsl.text.source import inline
    from kvplan.dsl.text.yaml_reader import YamlScalar

    for file_type in ("model", "engine", "kind"):
        if error := known.misnamed(file_type, what):
            return DslError(error)
    more = (*known.models, *known.engines, *RULES, *MEANINGS, *VERDICTS, *words(), *names_in_files(known))
    # A rule written in small letters is found, too.
    shouted = what.upper()
    asked = shouted if shouted in RULES or shouted in MEANINGS else what
    place = inline(what, ARGUMENT)
    seen = on_call.names()
    longer = sorted(name for name in seen if what.casefold() in name.casefold())
    near = beside("model", YamlScalar(what, place)) or nearest_name(asked, known.kinds, [*more, *seen])
    if 0 < len(longer) <= SHORT_LIST:
        near = f"did you mean {quoted(longer)}?"
    help = near or f"{ELSEWHERE}; metrics, alerts and events are in docs/operations.md, words in docs/glossary.md"
    message = f"there is no model, engine, kind, key, option, parameter, rule, metric, alert, event or word '{what}'"
    return DslError(Diagnostic("K008", message, place, (), help))


def explain_model(found: Library, name: str) -> dict[str, Any]:
    """A model without sides: what its file says, and what the default engine stores of it without options."""
    from kvplan.compiler.bind.options import option_values
    from kvplan.compiler.explain.describe_model import describe_model

    model, engine = found.model(name), found.engine(found.default_engine)
    outer = option_values(found, engine, model, {})
    kept, notes = _default_caches(found, model)
    kinds = {cache.kind: found.kind(cache.kind) for each in (model, kept) for cache in each.caches.values()}
    said, stored = (describe_model(each, kinds, outer) for each in (model, kept))
    default = {cache["cache"]: cache["default"] for cache in stored["caches"]}
    caches = [{**cache, "default": default.get(cache["cache"], {})} for cache in said["caches"]]
    said |= {"stored": stored["stored"], "caches": caches, "notes": list(notes)}
    return {"engine": engine.name, **said, **_default_planes(found, model)}


def _default_caches(found: Library, model: Model) -> tuple[Model, tuple[str, ...]]:
    """The model with the caches that the default engine stores, and notes on those; as it is if that refuses it."""
    from kvplan.compiler.bind.instead import as_stored
    from kvplan.compiler.errors import Refused

    engine = found.engine(found.default_engine)
    try:
        kept = as_stored(found, engine, model, {})
    except Refused as error:
        return model, (f"refused: {error.message}",)
    return kept.model, kept.notes(engine)


def _default_planes(found: Library, model: Model) -> dict[str, Any]:
    """The planes on one worker of the default engine, by page, and its side; no planes if it refuses the model."""
    from kvplan.compiler.api import side_of
    from kvplan.compiler.bind.bind import bind, held_as
    from kvplan.compiler.errors import Refused
    from kvplan.compiler.explain.describe import describe_side

    text = held_as(found, model, ONE) or ONE
    try:
        pages = describe_side(side_of(bind(found, model, text))[0])["pages"]
    except Refused:
        pages = []
    return {"side": text, "planes": [{name: page[name] for name in ("cache", "part", "planes")} for page in pages]}


def explain_pair(found: Library, model: str, asked: AskedPairs, worker: int) -> dict[str, Any]:
    from kvplan.compiler.api import compile_pair
    from kvplan.compiler.explain.describe import describe_plan

    compiled = compile_pair(found, model, asked.prefill, asked.decode, asked.options)
    return {"path": compiled.path, "written": False, **describe_plan(compiled.plan, compiled.facts, worker, drawing())}


def explain_side(found: Library, model: str, text: str) -> dict[str, Any]:
    """One side alone: its groups, its workers and its pages."""
    from kvplan.compiler.api import side_of
    from kvplan.compiler.bind.bind import bind
    from kvplan.compiler.explain.describe import describe_side
    from kvplan.dsl.stored_layers import stored_layers

    bound = bind(found, found.model(model), text)
    layers = stored_layers(found.model(model), {cache.name for cache in bound.caches})
    return {"model": model, "layers": layers, "notes": list(bound.notes), **describe_side(side_of(bound)[0])}


def explain_plan(path: Path, worker: int) -> dict[str, Any]:
    """A plan on disk. Its header has the proof and the notes, as of its compilation."""
    from kvplan.compiler.explain.describe import describe_plan

    plans.check_one(str(path))
    [text] = plans.read(str(path)).values()
    plan, facts = plans.costed(text, str(path))
    return {"path": str(path), "written": True, **describe_plan(plan, facts, worker, drawing())}


def explain_rule(id: str) -> dict[str, Any]:
    """A rule of `kvplan diff`: its sentence, the meaning of its category, and what to do."""
    rule = RULES[id]
    text = f"Category {rule.category}: {MEANINGS[rule.category].text}."
    if rule.detail:
        text += "\n\nIt nearly always follows from another change; a review names it beside that one."
    text += f"\n\nWhat to do: {rule.todo}"
    return {"code": id, "title": rule.sentence, "text": text}


def explain_category(category: Category) -> dict[str, Any]:
    """A category of rules of `kvplan diff`: its meaning, what to do, and its rules."""
    meaning = MEANINGS[category]
    rules = [f"{one.id}: {one.sentence}" for one in RULES.values() if one.category is category]
    return {
        "code": category,
        "title": f"{meaning.text}.",
        "text": "\n".join([f"What to do: {meaning.advice}", "", "Its rules in kvplan diff:", *rules]),
    }


def explain_code(code: str) -> dict[str, Any]:
    """The long text of an error code, and the text of its letter. Raises BadInput (S022)."""
    from kvplan.cli.codes import all_codes, families
    from kvplan.compiler.errors import BadInput

    known = all_codes()
    if code not in known:
        like = sorted(other for other in known if other[0] == code[0])
        letters = ", ".join(sorted({other[0] for other in known}))
        help = f"those with {code[0]} are {like[0]} to {like[-1]}" if like else f"codes begin with {letters}"
        raise BadInput("S022", f"there is no code {code!r}", help)
    title, text = known[code]
    return {"code": code, "title": title, "text": text, "more": families()[code[0]].text}


def explain_seen(what: str) -> dict[str, Any]:
    """An alert with its condition, or the event of a line of the log."""
    if name := on_call.alert(what):
        about, condition, lasting = on_call.alerts()[name]
        text = f"{condition}, for {lasting}" if lasting else condition
        return {"code": name, "title": f"an alert ({about}).", "text": text}
    return {"code": on_call.event(what), "title": "words of the log."}


def explain_metric(asked: str) -> dict[str, Any]:
    """A metric, by its name in a Prometheus server. Raises BadInput (S022)."""
    from kvplan.compiler.errors import BadInput
    from kvplan.dsl.text.diagnostics import listed, nearest_or_all
    from kvplan.runtime.ops.metrics import OTHER
    from kvplan.runtime.ops.prometheus import SORTS

    sorts = {METRIC + metric.name: (sort, metric) for sort, metrics in SORTS.items() for metric in metrics}
    engines = {on_call.plain_name(name): tells for name, tells in on_call.engine_metrics().items()}
    name = on_call.plain_name(asked)
    if name in engines:
        return {"code": name, "title": f"{engines[name]}."}
    if name not in sorts:
        raise BadInput("S022", f"there is no metric {asked!r}", nearest_or_all(name, [*sorts, *engines]))
    sort, metric = sorts[name]
    label = f"; its label {metric.label} is {listed([*metric.values, OTHER])}" if metric.label else ""
    more = "Alerts: docs/operations.md."
    return {"code": name, "title": metric.help, "text": f"A {sort}{label}.", "more": more}
