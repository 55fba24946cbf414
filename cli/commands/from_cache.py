"""kvplan from-cache: compare an engine's dump of its caches with a layout, or write a layout from it."""

from __future__ import annotations

import json
import pkgutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

import click

from kvplan.cli.errors import WRONG
from kvplan.cli.options import format_option, layouts_option, leave_out
from kvplan.cli.terminal import say
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.dumps.compare import Difference, NotCompared, compare, not_compared, side_text, worker_of
from kvplan.compiler.dumps.dump import Dump, read_dump
from kvplan.compiler.dumps.probe import probe
from kvplan.compiler.dumps.to_model import recognised
from kvplan.compiler.errors import BadInput
from kvplan.compiler.side.text import parse_side
from kvplan.compiler.words import many
from kvplan.dsl.configs.naming import name_of
from kvplan.dsl.configs.same_model import parsed
from kvplan.dsl.configs.write_model import ModelHead, doubts, model_text
from kvplan.dsl.library import load
from kvplan.dsl.named import library
from kvplan.dsl.text.source import SourceSpan
from kvplan.plan.files.folder import write as write_files

UNVERIFIED = "unverified: shapes and strides do not show how kernels fill a page: kvplan from-cache --probe does"


@click.command("from-cache")
@click.argument("dump", metavar="DUMP.json", type=click.File("r", encoding="utf-8", errors="replace"))
@click.option("--model", metavar="MODEL", help="The layout to compare with; by default the dump's own.")
@click.option("--side", metavar="SIDE", default="", help="What differs from the side that the dump says.")
@click.option("-o", "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write a model file instead.")
@click.option("--probe", "write", metavar="MODULE:FUNCTION", help="The engine's write function, to fill pages with.")
@layouts_option
@format_option("text", "json")
def command(
    dump: TextIO,
    model: str | None,
    side: str,
    out: Path | None,
    write: str | None,
    layouts: tuple[Path, ...],
    form: str,
) -> None:
    """Compare a dump of a running engine's caches with a layout.

    With --probe, its own function fills pages with numbered tokens; each is looked for where the layout has it.
    With -o FILE, write a model file from it: no layout is needed then. The exit code is 1 where something differs.
    """
    read = read_dump(dump.read())
    if out is not None:
        leave_out("-o writes what the dump says", {"--model": model, "--side": side, "--probe": write})
        _write(read, out, layouts, form)
        return
    bound = _bound(read, model, side, layouts)
    found, probed = compare(read, bound), _probed(read, bound, write) if write else None
    notes, text = not_compared(read, bound), f"{bound.model} {bound.key}"
    said = _text(read, text, found, notes, probed)
    click.echo(_json(text, found, notes, probed)) if form == "json" else say(said)
    sys.exit(WRONG if found or probed else 0)


def _probed(dump: Dump, side: BoundSide, write: str) -> tuple[str, ...]:
    """The elements that the engine's function writes elsewhere than the layout says. Raises BadInput (D015)."""
    # Like `python -m`: modules in the working directory can be named.
    sys.path.insert(0, str(Path.cwd()))
    try:
        function = pkgutil.resolve_name(write)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInput("D015", f"--probe {write}: {error}", "give MODULE:FUNCTION, found from here") from error
    return probe(side, worker_of(dump, side), function)


def _bound(dump: Dump, model: str | None, given: str, layouts: Sequence[Path]) -> BoundSide:
    """The side to compare the dump with. Raises BadInput (D009) if no layout is named."""
    wanted = model or dump.layout
    if not wanted:
        raise BadInput("D009", "the dump names no layout", "give --model NAME, or -o FILE to write one from it")
    found, name = library(wanted, layouts)
    engine = found.engine(parse_side(given).get("engine", dump.engine))
    return bind(found, found.model(name), side_text(dump, engine, given))


def _json(side: str, found: Sequence[Difference], notes: Sequence[NotCompared], probed: Sequence[str] | None) -> str:
    equal = not found and not probed
    said = {
        "side": side,
        "equal": equal,
        "differences": [asdict(d) for d in found],
        "not_compared": [asdict(note) for note in notes],
    }
    return json.dumps({**said, **({} if probed is None else {"probed": list(probed)})}, indent=2)


def _text(
    dump: Dump, side: str, found: Sequence[Difference], notes: Sequence[NotCompared], probed: Sequence[str] | None
) -> str:
    rank = ", ".join(f"{axis} {number}" for axis, number in dump.rank.items() if dump.mesh[axis] > 1)
    sizes = f"{many(len(dump.layers), 'layer')} in {many(len(dump.groups), 'group')}"
    head = f"{side}{f', worker at {rank}' if rank else ''}: {sizes}"
    same = "as the layout says, as far as the dump shows it" if notes else "as the layout says"
    said = [f"{head}, {many(len(found), 'difference') if found else same}"]
    said += [line for d in found for line in _lines(d)]
    said += [f"not compared: {n.what} of {n.cache}, {many(len(n.layers), 'layer')}: {n.why}" for n in notes]
    if probed is None:
        return "\n".join([*said, UNVERIFIED])
    return "\n".join([*said, *(probed or ["probed: every element was written where the layout has it"])])


def _lines(difference: Difference) -> list[str]:
    d = difference
    first, rest = d.layers[0], len(d.layers) - 1
    where = f"{first}{f' and {rest} more' if rest else ''}"
    return [f"{d.cache or 'no cache'}: {d.what}", f"  dump    {d.dump}", f"  layout  {d.layout}", f"  in      {where}"]


def _write(dump: Dump, out: Path, layouts: Sequence[Path], form: str) -> None:
    """Write a model file, and print its doubts. Raises DslError (F006, F007), BadInput (D011..D014)."""
    known = load((), layouts)
    name = name_of(known, out)
    found = recognised(dump, known.engine(dump.engine), known.kinds)
    head = ModelHead(name, dump.model or name, {}, writer="kvplan from-cache")
    text = model_text(head, found, known.kinds)
    parsed(known, text, name, SourceSpan(str(out), 1, 1, 1))
    write_files(out.parent, {out.name: text}, [out.name])
    said = list(doubts(found))
    if form == "json":
        click.echo(json.dumps({"model": name, "written": str(out), "notes": said}, indent=2))
        return
    say("\n".join([f"wrote {out}", *(f"  in doubt: {line}" for line in said)]))
