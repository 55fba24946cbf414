"""kvplan doctor: say before a start whether two engines can work together, and how to configure them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from kvplan.cli.commands.explain_text import unit
from kvplan.cli.errors import DOUBTED, REFUSED, WRONG
from kvplan.cli.options import format_option, leave_out, one_layouts_option
from kvplan.cli.terminal import say, table
from kvplan.compiler.errors import BadInput
from kvplan.compiler.side.engine_file import describes, engine_for
from kvplan.compiler.side.text import pairs
from kvplan.compiler.words import many
from kvplan.doctor import machine, start
from kvplan.doctor.examine import ExaminedSide, describe_examined, describe_way, examined
from kvplan.doctor.layout import FoundLayout, found_layout, layouts_of, on_sides
from kvplan.doctor.start import EnginePlace, Step
from kvplan.dsl.library import Library
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.schema.serve import Serve
from kvplan.dsl.text.diagnostics import listed, ranges
from kvplan.dsl.text.source import shown

Plain = Mapping[str, Any]
# By direction: the roles of this side and of the peer; WAYS has the pairs (prefill, decode).
PARTS = {"to-peer": ("prefill", "decode"), "from-peer": ("decode", "prefill"), "both": ("both", "both")}
HERE, PEER = "side", "peer"
LABELS = {HERE: "this side", PEER: "the peer"}
WAYS = {"to-peer": ((HERE, PEER),), "from-peer": ((PEER, HERE),), "both": ((HERE, PEER), (PEER, HERE))}
# The HTTP port of each engine, and the first port of the connector if engines run on two machines.
HTTP, PORT = {HERE: 8100, PEER: 8200}, 7600
WORKS, WORKS_IF = "works", "works if the layout is right"


@click.command("doctor")
@click.argument("config", metavar="CONFIG.JSON", type=click.Path(path_type=Path))
@click.option("--engine", metavar="ENGINE", help="This side's engine, instead of --release and --platform.")
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
@click.option("--peer-options", metavar="SIDE", help="Defaults to --options if both engines are the same.")
@click.option("--direction", type=click.Choice(list(WAYS)), default="to-peer", show_default=True,
              help="Which way caches go: to the peer, so that this side prefills, from it, or both.")  # fmt: skip
@click.option("--host", metavar="ADDRESS", help="This machine's address, as the peer reaches it.")
@click.option("--peer-host", metavar="ADDRESS", help="The peer's address; without these two both run on one machine.")
@click.option("--port", type=click.IntRange(1, 65535), default=PORT, show_default=True,
              help="The connector's first port, beyond one machine.")  # fmt: skip
@click.option("--machine/--no-machine", "checked", default=True, help="Whether to check this machine, too.")
@click.option("--layout", metavar="MODEL", help="The model's layout, by name or path; found by CONFIG.JSON otherwise.")
@one_layouts_option
@format_option("text", "json")
def command(
    config: Path, engine: str | None, release: str | None, platform: str | None, tp: int, pp: int, options: str,
    peer_engine: str | None, peer_release: str | None, peer_platform: str | None, peer_tp: int | None,
    peer_pp: int | None, peer_options: str | None, direction: str, host: str | None, peer_host: str | None,
    port: int, checked: bool, layout: str | None, layouts: Path | None, form: str,
) -> None:  # fmt: skip
    """Say whether two engines fit together, and print what to run.

    CONFIG.JSON is the served checkpoint's. No engine is started and nothing is written. The exit code is 3 if the pair
    is refused, 4 if a plan can be made but the layout is in doubt, 1 if the pair works and this machine is not ready,
    2 for bad input.
    """
    if bool(host) != bool(peer_host):
        raise click.UsageError("give both --host and --peer-host, or neither for one machine")
    if engine:
        leave_out("--engine excludes --release and --platform", {"--release": release, "--platform": platform})
    if peer_engine:
        unused = {"--peer-release": peer_release, "--peer-platform": peer_platform}
        leave_out("--peer-engine excludes --peer-release and --peer-platform", unused)
    known, model = layouts_of(layout, layouts)
    named = {HERE: engine, PEER: peer_engine or (engine if not (peer_release or peer_platform) else None)}
    named = {side: name if name and not _is_only_file(known, name) else None for side, name in named.items()}
    releases = {HERE: release or "", PEER: peer_release or ("" if peer_engine else release) or ""}
    engine = engine or _engine(known, release, platform)
    if peer_release or peer_platform:
        peer_engine = _engine(known, peer_release or release, peer_platform or platform)
    if peer_options is None:
        peer_options = options if peer_engine in (None, engine) else ""
    peer_tp, peer_pp = (tp if peer_tp is None else peer_tp), (pp if peer_pp is None else peer_pp)
    texts = {HERE: _text(engine, tp, pp, options), PEER: _text(peer_engine or engine, peer_tp, peer_pp, peer_options)}
    engines = [known.engine(name or known.default_engine) for name in (engine, peer_engine or engine)]
    found = found_layout(known, model, config, layout, layouts, engines)
    sides = {name: examined(found.library, found.model, text) for name, text in texts.items()}
    found = on_sides(found, sides)
    places = {
        HERE: EnginePlace("this machine", "this", host or "", port, HTTP[HERE]),
        PEER: EnginePlace("the peer" if host else "this machine", "peer", peer_host or "", port, HTTP[PEER]),
    }
    answer = _answer(found, sides, direction, releases)
    prepared = bool(host) or not all(side["start"] for side in answer["sides"].values())
    own = _own(found, layout, layouts, prepared)
    answer = _with_steps(answer, places, named, own, _served(config), layouts, prepared)
    machine_says = _machine(answer, sides, places, direction) if checked else []
    answer = {**answer, "machine": [asdict(each) for each in machine_says]}
    lines = [*_lines(answer), *(machine.as_lines(machine_says) if checked else [])]
    click.echo(json.dumps(answer, indent=2)) if form == "json" else say("\n".join(lines))
    sys.exit(_exit_code(answer, machine_says))


def _exit_code(answer: Plain, machine_says: Sequence[machine.MachineFinding]) -> int:
    if not answer["works"]:
        return REFUSED
    if answer["model"]["doubts"]:
        return DOUBTED
    return WRONG if any(each.help for each in machine_says) else 0


def _served(config: Path) -> str:
    """The model that engines serve: the checkpoint's folder if it has weights, otherwise a word to replace."""
    weights = any(config.parent.glob("*.safetensors")) or any(config.parent.glob("*.bin"))
    return str(config.parent) if weights else "MODEL"


def _engine(known: Library, release: str | None, platform: str | None) -> str | None:
    """The engine for a release and a platform, chosen as its connector does; None for the default one.

    A missing value is taken from the default engine's package as it is installed here. Raises BadInput (I003).
    """
    default = known.engine(known.default_engine)
    here = _installed(default.package)
    if not (release or platform or here):
        return None
    platforms = sorted({name for each in known.engines for name in known.engine(each).platforms})
    guessed = next((name for name in platforms if name in here), default.platforms[0])
    own = version(here.partition(" ")[0]) if here else ""
    return engine_for(known, default.package, release or own, platform or guessed).name


def _is_only_file(known: Library, engine: str) -> bool:
    """Whether this engine's file is the only one for its package, so that the connector finds it by itself."""
    packages = [known.engine(name).package for name in known.engines]
    package = known.engine(engine).package
    return bool(package) and packages.count(package) == 1


def _installed(package: str) -> str:
    """The installed distribution of a Python package, and its version; empty if none is installed."""
    # The search through all distributions is slow, so it is skipped if the package cannot be found.
    names = packages_distributions().get(package, []) if package in sys.modules or find_spec(package) else []
    return f"{names[0]} {version(names[0])}" if names else ""


def _text(engine: str | None, tp: int, pp: int, options: str) -> str:
    """The text of a side. Raises BadInput (S002) if `options` has a key with its own command-line option."""
    for key in (key for key, _ in pairs(options) if key in ("engine", "tp", "pp")):
        raise BadInput("S002", f"{key} is an option of its own", f"give --{key}, or --peer-{key} for the peer")
    words = [*([f"engine={engine}"] if engine else []), f"tp={tp}", *([f"pp={pp}"] if pp != 1 else []), options]
    return ",".join(word for word in words if word)


def _own(found: FoundLayout, layout: str | None, layouts: Path | None, prepared: bool) -> dict[str, object]:
    """The settings that a connector needs: a layout that is named, or that is written first if plans are `prepared`."""
    named: dict[str, object] = {"layout": found.word} if layout or (prepared and not found.file) else {}
    return named | ({"layouts": str(layouts)} if layouts else {})


def _answer(
    found: FoundLayout, sides: Mapping[str, ExaminedSide], direction: str, releases: Mapping[str, str]
) -> dict[str, Any]:
    """All findings about the pair, in plain values."""
    files = {name: shown(found.library.paths["engine"][side.engine.name].resolve()) for name, side in sides.items()}
    parts = dict(zip((HERE, PEER), PARTS[direction], strict=True))
    described = {
        name: {**describe_examined(side, parts[name]), "engine_file": files[name]} for name, side in sides.items()
    }
    unserved = {name: _unserved(found.library, sides[name].engine, release) for name, release in releases.items()}
    unserved = {name: error or described[name]["connector_error"] for name, error in unserved.items()}
    ways = [{"from": a, "to": b, **describe_way(sides[a], sides[b])} for a, b in WAYS[direction]]
    return {
        "model": {"name": found.model.name, "title": found.model.title, "file": found.file or None,
                  "same_as": list(found.same), "notes": list(found.notes), "doubts": list(found.doubts),
                  "help": found.right if found.doubts else None, "command": found.command or None},
        "word": found.word,
        "sides": {name: {"start": None, **side, "connector_error": unserved[name]} for name, side in described.items()},
        "ways": ways,
        "works": all(way["works"] for way in ways) and not any(unserved.values()),
    }  # fmt: skip


def _unserved(known: Library, engine: Engine, release: str) -> Plain | None:
    """The error if no connector supports this release of an engine's package; None too if no file has `serve`."""
    every = [known.engine(name) for name in known.engines]
    serves = [each.serve for each in every if each.package == engine.package and each.serve] if engine.package else []
    if not serves or (engine.serve and (not release or describes(engine.serve.releases, release))):
        return None
    what = f"{engine.package} {release}".strip() if release else f"{engine.name} ({engine.versions})"
    supported = listed(sorted({_supported(serve) for serve in serves}))
    said = f"there is no connector for {what}: kvplan's is for {engine.package} {supported}"
    return {"code": "I003", "message": said, "help": f"run {engine.package} {supported}"}


def _supported(serve: Serve) -> str:
    return serve.releases or "in every release"


def _with_steps(
    answer: dict[str, Any],
    places: Mapping[str, EnginePlace],
    named: Mapping[str, str | None],
    own: Mapping[str, object],
    model: str,
    layouts: Path | None,
    prepared: bool,
) -> dict[str, Any]:
    """The answer with each side's connector settings, and with the steps to take.

    Plans are `prepared` unless both engines have a connector and run on one machine.
    """
    sides = {}
    for name, side in answer["sides"].items():
        told = {**({"engine": named[name]} if named[name] else {}), **own}
        begin = side["start"]
        made = {**begin, "connector": start.connector(side, places[name], told, prepared)} if begin else None
        sides[name] = {**side, "start": made}
    answer = {**answer, "sides": sides}
    more = ["--layouts", str(layouts)] if layouts else []
    found = start.steps(answer, places, model, more, prepared) if answer["works"] else ()
    return {**answer, "steps": [asdict(step) for step in found]}


def _machine(
    answer: Plain, sides: Mapping[str, ExaminedSide], places: Mapping[str, EnginePlace], direction: str
) -> list[machine.MachineFinding]:
    """The findings about this machine, for the engines that would run on it."""
    side, place = sides[HERE], places[HERE]
    serve, package = side.engine.serve, side.engine.package
    found = [machine.nixl()]
    if serve and package:
        installed = _installed(package)
        good = describes(serve.releases, installed.rpartition(" ")[2]) if installed else False
        found.append(machine.release(package, installed, _supported(serve), good))
    apart = bool(place.host)
    serving = [place.http] if apart else [*(each.http for each in places.values()), start.ROUTER_PORT]
    found.append(machine.ports("0.0.0.0", serving))
    if apart and HERE in (way[0] for way in WAYS[direction]) and side.bound is not None:
        found.append(machine.ports(place.host, range(place.port, place.port + len(side.bound.workers))))
    found += [machine.keys(Path(place.keys))] if apart else []
    return [*found, *machine.ucx(os.environ, bool(serve and serve.devices))]


def _lines(answer: Plain) -> list[str]:
    lines = _model(answer["model"])
    for name, side in answer["sides"].items():
        lines += ["", *_side(name, side)]
    side_errors = [side["error"] for side in answer["sides"].values() if "error" in side]
    stopped = [name for name, side in answer["sides"].items() if side["connector_error"]]
    for way in answer["ways"]:
        verdict = _verdict(answer["model"], stopped)
        refused = [f"{_head(way)}: refused with that side"]
        lines += ["", *(_way(way, verdict) if way.get("error") not in side_errors else refused)]
    without = [name for name, side in answer["sides"].items() if not side["start"]]
    if doubts := answer["model"]["doubts"]:
        lines += ["", "THE LAYOUT IS IN DOUBT: the engine may store something else", *(f"  {why}" for why in doubts)]
        lines += [f"   = {answer['model']['help']}"]
    if not answer["works"]:
        return lines
    lines += start.as_lines([Step(**step) for step in answer["steps"]])
    return [*lines, *(_unconnected(name, answer["sides"][name]["engine"]) for name in without)]


def _verdict(model: Plain, stopped: Sequence[str]) -> str:
    """The verdict on a direction that has a plan. `stopped` are the sides whose connector does not run it."""
    if stopped:
        return f"a plan exists, but no connector runs it on {listed([LABELS[name] for name in stopped], 'and')}"
    return WORKS_IF if model["doubts"] else WORKS


def _unconnected(name: str, engine: str) -> str:
    docs = "docs/index.md says which engines have a connector, docs/runtime.md how others drive the runtime"
    return f"  {LABELS[name]}: doctor knows no command line of {engine}: {docs}"


def _model(model: Plain) -> list[str]:
    also = f"; {listed(model['same_as'], 'and')} store the same" if model["same_as"] else ""
    none = f"no file stores the same; `{model['command']}` writes what is used here"
    return [
        f"{model['name']}: {model['title']}",
        f"  layout: {model['file']}{also}" if model["file"] else f"  layout: {none}",
        *(f"  remark: {note}" for note in model["notes"] if note not in model["doubts"]),
    ]


def _side(name: str, side: Plain) -> list[str]:
    lines = [f"{LABELS[name].upper()}, {side['part']}: {side['side']}"]
    lines += [f"  engine {side['engine']} {side['versions']}, {side['engine_file']}"]
    lines += _refused(side["connector_error"]) if side["connector_error"] else []
    if "error" in side:
        return [*lines, *_refused(side["error"])]
    rows = [(g["group"], _block(g), _bytes(g)) for g in side["groups"]]
    lines += [f"  {line}" for line in table(("group", "block", "bytes of a page"), rows, 2)]
    lines += [f"  note: {note}" for note in side["notes"]]
    caches = ", ".join(side["unprobed"])
    unprobed = f"  page layout not yet verified on a running engine (docs/from-cache.md): {caches}"
    return [*lines, unprobed if side["unprobed"] else "  page layout verified on a running engine"]


def _bytes(group: Plain) -> str:
    """The bytes of pages, and the distance between them in memory if it is larger."""
    pages, strides = (", ".join(f"{size:,}" for size in group[name]) for name in ("pages", "strides"))
    return pages if pages == strides else f"{pages}; {strides} apart"


def _block(group: Plain) -> str:
    if group["store"] != "tokens":
        return "one state"
    return many(group["tokens"], "token") + (f", {group['ratio']} pages" if group["ratio"] > 1 else "")


def _head(way: Plain) -> str:
    return f"{LABELS[way['from']]} -> {LABELS[way['to']]}".upper()


def _way(way: Plain, verdict: str) -> list[str]:
    if not way["works"]:
        return [f"{_head(way)}: refused", *_refused(way["error"])]
    rows = [
        (ranges(move["workers"]), move["groups"], move["descriptors"], move["bytes"], unit(move))
        for move in way["moves"]
    ]
    lines = table(("decode worker", "group", "descriptors", "bytes", "per"), rows, 2)
    return [
        f"{_head(way)}: {verdict}",
        f"  plan {way['plan']}, {way['path']}",
        *(f"  {line}" for line in lines),
        *([f"  hint: {way['hint']}"] if way["hint"] else []),
    ]


def _refused(error: Plain) -> list[str]:
    return [f"  error[{error['code']}]: {error['message']}", *([f"   = {error['help']}"] if error["help"] else [])]
