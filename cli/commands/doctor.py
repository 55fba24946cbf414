"""kvplan doctor: whether two engines can work together, and what to set, before either is started."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from kvplan.cli.commands.explain_text import unit
from kvplan.cli.errors import REFUSED
from kvplan.cli.options import format_option, leave_out, one_layouts_option
from kvplan.compiler.errors import BadInput
from kvplan.compiler.explain.doctor import ExaminedSide, describe_examined, describe_way, examined
from kvplan.compiler.side.engine_file import engine_for
from kvplan.compiler.side.text import pairs
from kvplan.compiler.words import columns, many
from kvplan.dsl.configs.new_model import made
from kvplan.dsl.configs.same_model import parsed
from kvplan.dsl.library import Library, load
from kvplan.dsl.model import Model
from kvplan.dsl.named import library
from kvplan.dsl.text.diagnostics import listed, ranges
from kvplan.dsl.text.source import SourceSpan, shown

Plain = Mapping[str, Any]
# By direction: the parts that this side and the peer play, then the ways, (prefill, decode).
PARTS = {"to-peer": ("prefill", "decode"), "from-peer": ("decode", "prefill"), "both": ("both", "both")}
HERE, PEER = "side", "peer"
LABELS = {HERE: "this side", PEER: "the peer"}
WAYS = {"to-peer": ((HERE, PEER),), "from-peer": ((PEER, HERE),), "both": ((HERE, PEER), (PEER, HERE))}
PLANS, KEYS = "plans", "keys"


@dataclass(frozen=True, slots=True)
class FoundLayout:
    """A served model's layout: its file, none where it is still to be written, and how `kvplan compile` names it.

    `same` are other models that store the same, `notes` what is not sure of one that was made just now, `command`
    what writes it.
    """

    library: Library
    model: Model
    file: str
    word: str
    same: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    command: str = ""


@click.command("doctor")
@click.argument("config", metavar="CONFIG.JSON", type=click.Path(path_type=Path))
@click.option("--engine", metavar="ENGINE", help="This side's engine; by default that of release and platform.")
@click.option("--release", metavar="VERSION", help="The release that this side runs; by default the installed one.")
@click.option("--platform", metavar="NAME", help="What this side runs on, as cuda; by default as installed here.")
@click.option("--tp", type=int, metavar="N", default=1, show_default=True, help="Workers that share heads out.")
@click.option("--pp", type=int, metavar="N", default=1, show_default=True, help="Stages of the pipeline.")
@click.option("--options", metavar="SIDE", default="", help="What else this side has, as block=32,kv_dtype=fp8.")
@click.option("--peer-engine", metavar="ENGINE", help="The peer's engine; this side's if not given.")
@click.option("--peer-release", metavar="VERSION", help="This side's if not given.")
@click.option("--peer-platform", metavar="NAME", help="This side's if not given.")
@click.option("--peer-tp", type=int, metavar="N", help="This side's if not given.")
@click.option("--peer-pp", type=int, metavar="N", help="This side's if not given.")
@click.option("--peer-options", metavar="SIDE", help="This side's if not given, where both have one engine.")
@click.option("--direction", type=click.Choice(list(WAYS)), default="to-peer", show_default=True,
              help="Which way caches go: to the peer, so that this side prefills, from it, or both.")  # fmt: skip
@click.option("--layout", metavar="MODEL", help="The model's layout, by name or path; found by CONFIG.JSON otherwise.")
@one_layouts_option
@format_option("text", "json")
def command(
    config: Path, engine: str | None, release: str | None, platform: str | None, tp: int, pp: int, options: str,
    peer_engine: str | None, peer_release: str | None, peer_platform: str | None, peer_tp: int | None,
    peer_pp: int | None, peer_options: str | None, direction: str, layout: str | None, layouts: Path | None, form: str,
) -> None:  # fmt: skip
    """Say whether two engines fit together, and what to set.

    CONFIG.JSON is the served checkpoint's. Nothing is started or written. When an engine starts, the connector
    compares this layout with the memory that was really allocated, and stops the engine where they differ.
    """
    if engine:
        leave_out(f"{engine} is chosen by name", {"--release": release, "--platform": platform})
    if peer_engine:
        unused = {"--peer-release": peer_release, "--peer-platform": peer_platform}
        leave_out(f"{peer_engine} is chosen by name", unused)
    found = _found(config, layout, layouts)
    engine = engine or _engine(found.library, release, platform)
    if peer_release or peer_platform:
        peer_engine = _engine(found.library, peer_release or release, peer_platform or platform)
    if peer_options is None:
        peer_options = options if peer_engine in (None, engine) else ""
    peer_tp, peer_pp = (tp if peer_tp is None else peer_tp), (pp if peer_pp is None else peer_pp)
    texts = {HERE: _text(engine, tp, pp, options), PEER: _text(peer_engine or engine, peer_tp, peer_pp, peer_options)}
    sides = {name: examined(found.library, found.model, text) for name, text in texts.items()}
    answer = _answer(found, sides, direction, _own(found, layout, layouts), layouts)
    click.echo(json.dumps(answer, indent=2) if form == "json" else "\n".join(_lines(answer)))
    sys.exit(0 if all(way["works"] for way in answer["ways"]) else REFUSED)


def _engine(known: Library, release: str | None, platform: str | None) -> str | None:
    """The engine for a release and a platform, as its connector chooses it; None for the default one.

    What is not told is as the default engine's package is installed here. Raises BadInput (I003).
    """
    default = known.engine(known.default_engine)
    here = _installed(default.package)
    if not (release or platform or here):
        return None
    platforms = sorted({name for each in known.engines for name in known.engine(each).platforms})
    guessed = next((name for name in platforms if name in here), default.platforms[0])
    own = version(here.partition(" ")[0]) if here else ""
    return engine_for(known, default.package, release or own, platform or guessed).name


def _installed(package: str) -> str:
    """The distribution of a Python package that is installed here, and its version; empty where none is."""
    # To look through all distributions takes long, and is for nothing where there is no such package.
    names = packages_distributions().get(package, []) if package in sys.modules or find_spec(package) else []
    return f"{names[0]} {version(names[0])}" if names else ""


def _text(engine: str | None, tp: int, pp: int, options: str) -> str:
    """A side as it is written. Raises BadInput (S002) for `options` that have one of their own."""
    for key in (key for key, _ in pairs(options) if key in ("engine", "tp", "pp")):
        raise BadInput("S002", f"{key} is an option of its own", f"give --{key}, or --peer-{key} for the peer")
    words = [*([f"engine={engine}"] if engine else []), f"tp={tp}", *([f"pp={pp}"] if pp != 1 else []), options]
    return ",".join(word for word in words if word)


def _found(config: Path, layout: str | None, layouts: Path | None) -> FoundLayout:
    """The layout of the model that is served. Raises DslError."""
    own = (layouts,) if layouts else ()
    if layout:
        known, name = library(layout, own)
        return FoundLayout(known, known.model(name), _file(known, name), layout)
    known = load((), own)
    new = made(known, config)
    if new.same:
        name, *others = new.same
        return FoundLayout(known, known.model(name), _file(known, name), name, tuple(others), new.notes)
    model = parsed(known, new.text, new.name, SourceSpan(shown(config), 1, 1, 1))
    return FoundLayout(known, model, "", f"{new.name}.yaml", notes=new.notes, command=new.command(str(config), layouts))


def _file(known: Library, name: str) -> str:
    return shown(known.paths["model"][name].resolve())


def _own(found: FoundLayout, layout: str | None, layouts: Path | None) -> dict[str, object]:
    """What a connector does not find by itself: the layout, if it is not that of a known file."""
    named: dict[str, object] = {"layout": found.word} if layout or not found.file else {}
    return named | ({"layouts": str(layouts)} if layouts else {})


def _answer(
    found: FoundLayout,
    sides: Mapping[str, ExaminedSide],
    direction: str,
    own: Mapping[str, object],
    layouts: Path | None,
) -> dict[str, Any]:
    """All that is said, in plain values."""
    files = {name: shown(found.library.paths["engine"][side.engine.name].resolve()) for name, side in sides.items()}
    parts = dict(zip((HERE, PEER), PARTS[direction], strict=True))
    told = {name: {**describe_examined(side, parts[name]), "engine_file": files[name]} for name, side in sides.items()}
    ways = [{"from": a, "to": b, **describe_way(sides[a], sides[b])} for a, b in WAYS[direction]]
    more = ["--layouts", str(layouts)] if layouts else []
    for way in ways:
        if way["works"]:
            words = [found.word, "--prefill", way["prefill"], "--decode", way["decode"], *more, "-o", PLANS]
            way["command"] = shlex.join(["kvplan", "compile", *words])
    return {
        "model": {"name": found.model.name, "title": found.model.title, "file": found.file or None,
                  "same_as": list(found.same), "notes": list(found.notes),
                  "command": found.command or None},
        "sides": {name: _with_connector(side, own) for name, side in told.items()},
        "ways": ways,
    }  # fmt: skip


def _with_connector(side: Plain, own: Mapping[str, object]) -> Plain:
    """A side whose connector has its configuration whole: where plans and keys are, `own` layouts, and options."""
    start = side.get("start")
    if not start:
        return side
    options = {"options": start["options"]} if start["options"] else {}
    extra = {"plans": PLANS, "keys": KEYS, "engine": side["engine"], **own, **options}
    connector = {**start["connector"], start["extra"]: extra}
    kept = {name: value for name, value in start.items() if name not in ("options", "extra")}
    return {**side, "start": {**kept, "connector": connector}}


def _lines(answer: Plain) -> list[str]:
    lines = _model(answer["model"])
    for name, side in answer["sides"].items():
        lines += ["", *_side(name, side)]
    told = [side["error"] for side in answer["sides"].values() if "error" in side]
    for way in answer["ways"]:
        lines += ["", *(_way(way) if way.get("error") not in told else [f"{_head(way)}: refused with that side"])]
    if not all(way["works"] for way in answer["ways"]):
        return lines
    lines += ["", "TO DO"]
    if command := answer["model"]["command"]:
        look = ", and look at what is not sure in it" if answer["model"]["notes"] else ""
        lines += [f"  write the model's layout{look}:", f"    {command}"]
    lines += ["  make the plans, which both engines need:"]
    lines += [f"    {way['command']}" for way in answer["ways"]]
    if any(side["start"] for side in answer["sides"].values()):
        lines += [f"  make a pair of keys for each engine, and put the other's public key beside it ({KEYS}):"]
        lines += [f"    kvplan keys NAME -o {KEYS}"]
    return [*lines, *(line for name, side in answer["sides"].items() for line in _started(name, side))]


def _model(model: Plain) -> list[str]:
    also = f"; {listed(model['same_as'], 'and')} store the same" if model["same_as"] else ""
    none = f"no file stores the same; `{model['command']}` writes what is used here"
    return [
        f"{model['name']}: {model['title']}",
        f"  layout: {model['file']}{also}" if model["file"] else f"  layout: {none}",
        *(f"  not sure: {note}" for note in model["notes"]),
    ]


def _side(name: str, side: Plain) -> list[str]:
    lines = [f"{LABELS[name].upper()}, {side['part']}: {side['side']}"]
    lines += [f"  engine {side['engine']} {side['versions']}, {side['engine_file']}"]
    if "error" in side:
        return [*lines, *_refused(side["error"])]
    rows = [(group["group"], _block(group), _pages(group["pages"])) for group in side["groups"]]
    lines += [f"  {line}" for line in columns(("group", "block", "bytes of a page"), rows)]
    lines += [f"  note: {note}" for note in side["notes"]]
    caches = ", ".join(side["unprobed"])
    unprobed = f"  page layout not yet verified on a running engine (docs/from-cache.md): {caches}"
    return [*lines, unprobed if side["unprobed"] else "  page layout verified on a running engine"]


def _block(group: Plain) -> str:
    if group["store"] != "tokens":
        return "one state"
    return many(group["tokens"], "token") + (f", {group['ratio']} pages" if group["ratio"] > 1 else "")


def _pages(pages: Sequence[int]) -> str:
    return ", ".join(f"{page:,}" for page in pages)


def _head(way: Plain) -> str:
    return f"{LABELS[way['from']]} -> {LABELS[way['to']]}".upper()


def _way(way: Plain) -> list[str]:
    if not way["works"]:
        return [f"{_head(way)}: refused", *_refused(way["error"])]
    rows = [
        (ranges(move["workers"]), move["pair"], move["descriptors"], move["bytes"], unit(move)) for move in way["moves"]
    ]
    table = columns(("decode worker", "group", "descriptors", "bytes", "per"), rows)
    return [f"{_head(way)}: works", f"  plan {way['plan']}, {way['path']}", *(f"  {line}" for line in table)]


def _refused(error: Plain) -> list[str]:
    return [f"  error[{error['code']}]: {error['message']}", *([f"   = {error['help']}"] if error["help"] else [])]


def _started(name: str, side: Plain) -> list[str]:
    start = side["start"]
    if not start:
        return [f"  {LABELS[name]}: there is no connector for {side['engine']}; its own code drives the runtime"]
    words = [*_set(start["variables"], "="), *_set(start["flags"], " ")]
    connector = f"{start['connector_flag']} {shlex.quote(json.dumps(start['connector']))}"
    return [f"  start {LABELS[name]} with:", *(f"    {word}" for word in (*words, connector))]


def _set(values: Mapping[str, str], between: str) -> Iterable[str]:
    return (f"{name}{between}{shlex.quote(value)}" for name, value in values.items())
