"""`explain` of an engine or a kind: the keys that a side may give, the values derived from them, and their sources."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvplan.cli.terminal import table, width

if TYPE_CHECKING:
    from kvplan.dsl.lang.nodes import Expr, Storage
    from kvplan.dsl.library import Library
    from kvplan.dsl.schema.engine import Engine, Probed
    from kvplan.dsl.schema.kind import Kind, Param, TensorSpec

Plain = Mapping[str, Any]
TYPES = {"int": "a whole number", "dtype": "an element type", "name": "a word", "sizes": "a set of sizes"}
STORES = {"tokens": "of every token", "ring": "of the last tokens, in a ring", "state": "once, a state of the request"}
SHARES = {
    "even": "workers hold equal shares, other sizes are refused",
    "any": "shares may be unequal, and a side may list them",
}


def explain_engine(found: Library, name: str) -> Plain:
    """An engine's options, derived values, conditions and mesh."""
    engine = found.engine(name)
    return {
        "engine": engine.name,
        **_head(engine),
        "versions": engine.versions,
        "probed": _probed(engine.probed),
        "default": engine.name == found.default_engine,
        "options": {option.name: plain_param(option, engine.doc_ref) for option in engine.options.values()},
        "derived": {derived: _derived(engine, derived) for derived in engine.derive},
        "stores": dict(engine.storage),
        "requires": [{"kinds": list(rule.kinds), "that": flat(rule.that), "say": rule.say} for rule in engine.require],
        "mesh": {
            "workers": list(engine.mesh.workers),
            "derived": {axis: flat(expr) for axis, expr in engine.mesh.derived.items()},
            "tokens": list(engine.mesh.tokens),
        },
        "shares": engine.shares,
        "flags": dict(engine.flags),
        "aside": dict(engine.aside),
    }


def _probed(probed: Probed) -> Plain | None:
    said = {"kinds": list(probed.kinds), "version": probed.version, "date": probed.date, "how": probed.how}
    return said if probed.kinds else None


def explain_kind(found: Library, name: str) -> Plain:
    """A kind's parameters, its tensors, their storage orders, and its other records."""
    kind = found.kind(name)
    return {
        "kind": kind.name,
        **_head(kind),
        "other_names": dict(kind.other_names),
        "store": kind.store,
        "parameters": {param.name: plain_param(param, kind.doc_ref) for param in kind.params.values()},
        "tensors": _tensors(kind.tensors),
        "storage": _storage(kind.storage),
        "records": {
            variant.name: {
                "when": flat(variant.when),
                "doc": variant.doc,
                "doc-ref": variant.doc_ref or kind.doc_ref,
                "tensors": _tensors(variant.tensors),
                "storage": _storage(variant.storage),
            }
            for variant in kind.variants
        },
    }


def _head(of: Engine | Kind) -> Plain:
    return {"title": of.title, "doc": of.doc, "doc-ref": of.doc_ref, "legend": dict(of.legend)}


def plain_param(param: Param, doc_ref: str) -> Plain:
    """A parameter or an option as plain values."""
    return {
        "type": param.type,
        "default": flat(param.default) if param.default else None,
        "values": list(param.values),
        "aliases": dict(param.aliases),
        "doc": param.doc,
        "doc-ref": param.doc_ref or doc_ref,
    }


def _derived(engine: Engine, name: str) -> Plain:
    said = engine.docs[name]
    cases = [{"when": flat(case.when), "is": flat(case.value or case.otherwise)} for case in said.cases]
    value = {"cases": cases} if cases else {"is": flat(engine.derive[name])}
    return {"doc": said.doc, "unit": said.unit, "fixed": said.fixed, **value, "doc-ref": said.doc_ref or engine.doc_ref}


def _tensors(tensors: Mapping[str, TensorSpec]) -> Plain:
    return {name: _tensor(spec) for name, spec in tensors.items()}


def _tensor(spec: TensorSpec) -> Plain:
    token = f"~/{flat(spec.tokens_per_row)}" if spec.tokens_per_row else "~"
    return {
        "axes": {axis: flat(extent) if extent else token for axis, extent in spec.axes},
        "dtype": flat(spec.dtype),
        "when": flat(spec.when) if spec.when else None,
        "split": dict(spec.split),
    }


def _storage(storage: Mapping[str, Storage]) -> Plain:
    """Loop nests by the name of the order; if it has several allocations, a nest for each by name."""
    from kvplan.dsl.lang.storage import written

    texts = {name: {part or "": written(items) for part, items in each.parts} for name, each in storage.items()}
    return {name: parts.get("", parts) for name, parts in texts.items()}


def flat(expr: Expr | None) -> str:
    return " ".join(expr.text.split()) if expr else ""


def engine_text(said: Plain) -> str:
    what = ", ".join(filter(None, (said["versions"], "the default engine" if said["default"] else "")))
    lines = [f"{said['engine']}: {said['title']}{f' ({what})' if what else ''}", *_about(said)]
    lines += ["", *_probed_lines(said["probed"]), "", "options"]
    for name, option in said["options"].items():
        lines += ["", *param_lines(name, option, said["doc-ref"])]
    lines += ["", "derived values, which a side may give instead unless they are fixed"]
    for name, derived in said["derived"].items():
        fixed = f"fixed: {derived['fixed']}" if derived["fixed"] else ""
        head = ", ".join(filter(None, (name, derived["unit"], fixed)))
        lines += ["", *wrapped(head, 2, 6), *wrapped(derived["doc"], 6)]
        lines += [line for text in _values(derived) for line in wrapped(text, 6, 10)]
        lines += _read(derived, said["doc-ref"])
    mesh = [*said["mesh"]["workers"], *(f"{axis} = {text}" for axis, text in said["mesh"]["derived"].items())]
    mesh += [SHARES[said["shares"]]]
    return "\n".join([*lines, "", "mesh", *(f"  {axis}" for axis in mesh), *_flag_lines(said)])


def _flag_lines(said: Plain) -> list[str]:
    """The engine's own words for keys, and those that no cache depends on."""
    flags = table(("", ""), [(f"  {flag}", f"is {key}") for flag, key in said["flags"].items()])[1:]
    aside = table(("", ""), [(f"  {flag}", why) for flag, why in said["aside"].items()])[1:]
    known = ["", "flags and variables that a side also accepts, - or _, large or small", *flags]
    return [*(known if flags else []), *(["", "flags that no cache depends on", *aside] if aside else [])]


def _probed_lines(probed: Plain | None) -> list[str]:
    if probed is None:
        return ["page layouts come from this file; not yet verified on a running engine (docs/from-cache.md)"]
    kinds = ", ".join(probed["kinds"])
    head = f"page layouts verified on a running engine, {probed['version']}, {probed['date']}: {kinds}"
    return [head, *wrapped(probed["how"], 2)]


def _values(derived: Plain) -> list[str]:
    if "is" in derived:
        return [f"= {derived['is']}"]
    whens = [f"where {case['when']}" if case["when"] else "otherwise" for case in derived["cases"]]
    return [f"= {case['is']}   {when}" for case, when in zip(derived["cases"], whens, strict=True)]


def kind_text(said: Plain) -> str:
    others = [(f"  {name}", text) for name, text in said["other_names"].items()]
    names = ["", "other names", *table(("", ""), others)[1:]] if others else []
    lines = [f"{said['kind']}: {said['title']}", *_about(said), *names, "", "parameters"]
    for name, param in said["parameters"].items():
        lines += ["", *param_lines(name, param, said["doc-ref"])]
    lines += ["", f"stored {STORES[said['store']]}", "", *_record_lines(said)]
    for name, record in said["records"].items():
        lines += ["", *wrapped(f"stored as {name}, where {record['when']}", 0, 4), *wrapped(record["doc"], 2)]
        lines += ["", *_record_lines(record)]
    return "\n".join(lines)


def _record_lines(said: Plain) -> list[str]:
    tensors = [(f"  {name}", *_tensor_cells(tensor)) for name, tensor in said["tensors"].items()]
    nests = [
        (f"  {name}" + (f".{part}" if part else ""), nest)
        for name, nests in said["storage"].items()
        for part, nest in (nests.items() if isinstance(nests, dict) else (("", nests),))
    ]
    return [*table(("  tensor", "axes", "element", "over", "where"), tensors), "", *table(("  order", ""), nests)]


def _tensor_cells(tensor: Plain) -> tuple[str, ...]:
    axes = ", ".join(f"{axis} {extent}" for axis, extent in tensor["axes"].items())
    split = ", ".join(f"{axis}: {mesh}" for axis, mesh in tensor["split"].items())
    return axes, tensor["dtype"], split, tensor["when"] or ""


def _about(said: Plain) -> list[str]:
    legend = table(("", ""), [(f"  {letters}", text) for letters, text in said["legend"].items()])[1:]
    reference = [f"  {said['doc-ref']}"] if said["doc-ref"] else []
    return [*wrapped(said["doc"], 2), *reference, *(["", "legend", *legend] if legend else [])]


def param_lines(name: str, param: Plain, general: str) -> list[str]:
    """The lines that explain a parameter or an option; `general` is the source of the rest of its file."""
    default = "required" if param["default"] is None else f"by default {param['default']}"
    aliases = [f"{alias} for {word}" for alias, word in param["aliases"].items()]
    values = "; ".join(filter(None, (", ".join(param["values"]), ", ".join(aliases))))
    head = wrapped(f"{name}, {TYPES[param['type']]}, {default}", 2, 6)
    return [*head, *wrapped(values, 6), *wrapped(param["doc"], 6), *_read(param, general)]


def _read(said: Plain, general: str) -> list[str]:
    """The line with the source, if it differs from that of the rest."""
    return wrapped(f"read in {said['doc-ref']}", 6) if said["doc-ref"] not in ("", general) else []


def wrapped(text: str, indent: int, more: int | None = None) -> list[str]:
    """A text in lines that fit; the first is indented by `indent` spaces, the others by `more`."""
    inner = " " * (indent if more is None else more)
    lead = " " * indent
    return textwrap.wrap(text, width() - 4, initial_indent=lead, subsequent_indent=inner, break_on_hyphens=False)
