"""The tables of docs/dsl.md, as the reader's definitions are now. Run as a program it writes them into the page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tests.paths import ROOT

from kvplan.dsl.json_schema import FILES
from kvplan.dsl.lang.functions import FOREIGN, FUNCTIONS
from kvplan.dsl.schema.config import CONFIG, FOUND, OWN, REMARK
from kvplan.dsl.schema.deployment import DEPLOYMENT, PLAN
from kvplan.dsl.schema.engine import CASE, DERIVED, DUMP, ENGINE, GROUPS, INSTEAD, MESH, PROBED
from kvplan.dsl.schema.fleet import (
    CANDIDATE,
    DECODE_ENGINE,
    ENGINES,
    FLEET,
    LIMITS,
    POISSON,
    PREFILL_ENGINE,
    RAILS,
    TRAFFIC,
)
from kvplan.dsl.schema.forms import (
    DocumentKeys,
    EitherShape,
    Form,
    LaterShape,
    ListShape,
    MapShape,
    MaybeShape,
    document,
)
from kvplan.dsl.schema.kind import DOUBT, KIND, KIND_VARIANT, NEEDS, PARAM, RULE, TENSOR
from kvplan.dsl.schema.machine import COPY_RATE, MACHINE, MEASUREMENT
from kvplan.dsl.schema.model import CACHE, CHECKPOINT, MODEL, NO_CACHE, VARIANT
from kvplan.dsl.schema.names import ALIKE, MEASURED, PAGED, PLACED
from kvplan.dsl.schema.requirement import REQUIRE
from kvplan.dsl.schema.serve import CHOICE, SERVE, SETTING
from kvplan.dsl.schema.shapes import (
    DtypeShape,
    ExpressionShape,
    FractionShape,
    MeasureShape,
    NameShape,
    ScalarShape,
    Shape,
    TextShape,
    TokensShape,
    TruthShape,
    WholeShape,
    WordShape,
)

PAGE = ROOT / "docs" / "dsl.md"
BEGIN, END = "<!-- table: {} -->\n", "<!-- end of table -->"
FILE = document("kind, engine, model, deployment, machine, fleet", "a file", "", DocumentKeys)
EXAMPLES = {
    "kind": "layouts/kinds/gqa.yaml",
    "engine": "layouts/engines/vllm.yaml",
    "model": "layouts/models/llama-3.yaml",
    "deployment": "examples/demo.yaml",
    "machine": "layouts/machines/xeon-2-cores-shared-memory.yaml",
    "fleet": "examples/fleet.yaml",
}
# Forms by the heading that their table stands under; those of one file only begin with its own keys.
SECTIONS: Mapping[str, tuple[Form[Any], ...]] = {
    "models": (MODEL, VARIANT), "caches": (CACHE,), "kinds": (KIND,), "parameters": (PARAM,), "tensors": (TENSOR,),
    "records": (KIND_VARIANT,), "derived-values": (DERIVED,), "cases": (CASE,),
    "which-tokens-are-needed": (NEEDS,),
    "doubts": (DOUBT,), "engines": (ENGINE,), "a-probe": (PROBED,), "serving": (SERVE,),
    "settings": (SETTING,), "choices": (CHOICE,), "requirements": (REQUIRE,),
    "the-checkpoint": (CHECKPOINT,), "layers-without-a-cache": (NO_CACHE,), "stored-instead": (INSTEAD,),
    "groups": (GROUPS,), "the-mesh": (MESH,), "dumps": (DUMP,), "deployments": (DEPLOYMENT,), "plans": (PLAN,),
    "fleets": (FLEET,), "engines-of-a-fleet": (ENGINES,), "a-prefill-engine": (PREFILL_ENGINE,),
    "a-decode-engine": (DECODE_ENGINE,), "rails": (RAILS,), "limits": (LIMITS,), "a-candidate": (CANDIDATE,),
    "traffic": (TRAFFIC,), "poisson-arrivals": (POISSON,),
    "machines": (MACHINE,), "a-measurement": (MEASUREMENT,), "a-copy": (COPY_RATE,),
    "recognition": (RULE, FOUND), "what-a-model-adds": (OWN,), "configurations": (CONFIG,), "remarks": (REMARK,),
}  # fmt: skip
# Where names are known, by the names.
ASKED = {
    "everywhere": MEASURED,
    "`derive`, `stride`, `groups`, `require` with `for`": PAGED,
    "`derive`, `stride`, `require` with `for`": ALIKE,
    "`stride`": PLACED,
}


def fresh(page: str) -> str:
    """`page` with every table between its marks written again. Raises KeyError for a table that there is not."""
    tables = made()
    pattern = re.compile(rf"{BEGIN.format('([^ ]+)')}.*?{END}", re.DOTALL)
    return pattern.sub(lambda hit: f"{BEGIN.format(hit[1])}\n{tables[hit[1]]}\n\n{END}", page)


def made() -> dict[str, str]:
    """Every table by name."""
    keys = {name: rows(("key", "is", "meaning"), entries(forms[0])) for name, forms in SECTIONS.items()}
    names = [(f"`{name}`", said, where) for where, found in ASKED.items() for name, said in found.items()]
    sorts = [(f"[{sort}](#{sort}s)", FILES[sort].doc, f"[`{path}`](../{path})") for sort, path in EXAMPLES.items()]
    calls = {"functions": FUNCTIONS, "foreign-functions": FOREIGN}
    return {
        **keys,
        "sorts": rows(("file", "says", "for example"), sorts),
        "files": rows(("key", "is", "meaning"), entries(FILE)),
        "names": rows(("name", "is", "known in"), names),
        **{name: rows(("function", "gives"), ((f"`{call}`", said) for call, said in found.items()))
           for name, found in calls.items()},
    }  # fmt: skip


def entries(form: Form[Any], common: Iterable[str] = FILE.known) -> list[tuple[str, ...]]:
    """A row for each key; those that all files have, and the one that says what a file is, are left out of its own."""
    left_out = {form.known[1], *common} if form.known[0] == "kvplan" and form is not FILE else set()
    keys = [key for key in form.keys if key.name not in left_out]
    return [
        (f"`{key.name}`".replace(", ", "`, `"), described(key.shape) + ", required" * key.required, key.doc)
        for key in keys
    ]


def rows(head: tuple[str, ...], body: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *body)).replace("| --- ", "|---")


def described(shape: Shape[Any]) -> str:
    """A shape in words, forms as links to their sections."""
    match shape:
        case ScalarShape() | TextShape() | FractionShape():
            return shape.what
        case ExpressionShape() | TokensShape():
            return "expression"
        case TruthShape():
            return "`true` or `false`"
        case DtypeShape():
            return "element type"
        case LaterShape(inner) | MaybeShape(inner) | MeasureShape(inner):
            return described(inner)
        case WholeShape():
            return f"whole number{_range(shape)}"
        case WordShape():
            return _word(shape)
        case NameShape():
            return f"name of a {shape.file_type}".replace("a e", "an e")
        case ListShape():
            return _listed(shape)
        case MapShape():
            return f"by name: {described(shape.of)}"
        case EitherShape((one, ListShape(of=same))) if one == same:
            return f"{described(one)}, or a list"
        case EitherShape((one, MapShape(of=LaterShape(of=same)))) if one == same:
            return f"{described(one)}, or several by name"
        case EitherShape():
            return " or ".join(described(one) for one in shape.shapes)
        case Form():
            return f"[{shape.what}](#{next(name for name, forms in SECTIONS.items() if shape in forms)})"
    raise TypeError(f"no words for {shape}")


def _range(shape: WholeShape) -> str:
    """` from 1`, ` to 1000`, or both; nothing for any number from 0 up."""
    return (f" from {shape.least}" if shape.least else "") + (f" to {shape.most}" if shape.most is not None else "")


def _listed(shape: ListShape[Any]) -> str:
    one = described(shape.of)
    if shape.bare:
        return f"{one}, or a list"
    return f"list: {one}" if isinstance(shape.of, Form | LaterShape) else f"list of {one}s"


def _word(shape: WordShape) -> str:
    words = [f"`{word}`" for word in (*shape.values, *(["{option}"] if shape.option else []))]
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


if __name__ == "__main__":
    PAGE.write_text(fresh(PAGE.read_text()))
