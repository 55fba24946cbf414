"""The steps on each machine before a pair of engines serves, as commands in order."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Plain = Mapping[str, Any]
PLANS = "plans"
ANYWHERE = "any machine"
LOCAL = "localhost"
# kvplan's router, for engines of different kinds.
ROUTE = "kvplan route --port {port} --prefill http://{prefill}:{prefill_port} --decode http://{decode}:{decode_port}"
ROUTER_PORT = 8192


@dataclass(frozen=True, slots=True)
class EnginePlace:
    """The place of one engine: the names of its machine (`label`) and key pair (`name`), its host and its ports.

    `host` is empty if both engines run on one machine. `port` is the connector's first, `http` the engine's own.
    """

    label: str
    name: str
    host: str
    port: int
    http: int

    @property
    def keys(self) -> str:
        """The folder of its key pair. Each engine has its own folder, even on one machine."""
        return f"keys-{self.name}"


@dataclass(frozen=True, slots=True)
class Step:
    """One command, with its machine and its purpose."""

    where: str
    why: str
    run: str


def steps(
    answer: Plain, places: Mapping[str, EnginePlace], model: str, more: Sequence[str], prepared: bool
) -> tuple[Step, ...]:
    """Return all steps in order. `model` is the model that the engines serve, `more` further options of compiling.

    Plans are compiled first if `prepared`. Engines on one machine need no keys.
    """
    apart = any(place.host for place in places.values())
    found = [*_plans(answer, places, more)] if prepared else []
    found += [*_keys(places)] if apart else []
    found += [*_shared(answer, places)] if apart else []
    return (*found, *_engines(answer, places, model), *_router(answer, places))


def _plans(answer: Plain, places: Mapping[str, EnginePlace], more: Sequence[str]) -> Iterator[Step]:
    here = next(iter(places.values())).label
    if command := answer["model"]["command"]:
        look = ", and look at its doubts and remarks" if answer["model"]["notes"] else ""
        yield Step(here, f"write the model's layout{look}", command)
    for prefill, decode in dict.fromkeys((way["prefill"], way["decode"]) for way in answer["ways"]):
        words = [answer["word"], "--prefill", prefill, "--decode", decode, *more, "-o", PLANS]
        yield Step(here, "compile the plan, which both engines need", shlex.join(["kvplan", "compile", *words]))


def _keys(places: Mapping[str, EnginePlace]) -> Iterator[Step]:
    """Yield steps that make a key pair for each engine in its own folder, and add the other's public key."""
    for place in places.values():
        yield Step(place.label, "make its keys", shlex.join(["kvplan", "keys", place.name, "-o", place.keys]))
    one, other = places.values()
    for mine, theirs in ((one, other), (other, one)):
        copy = f'scp {mine.keys}/{mine.name}.key {theirs.host}:"$PWD/{theirs.keys}/"'
        yield Step(mine.label, "copy its public key, and never its secret one", copy)


def _shared(answer: Plain, places: Mapping[str, EnginePlace]) -> Iterator[Step]:
    one, other = places.values()
    files = [PLANS, *([answer["word"]] if answer["model"]["command"] else [])]
    yield Step(one.label, "copy the plans", f'scp -r {shlex.join(files)} {other.host}:"$PWD/"')


def _engines(answer: Plain, places: Mapping[str, EnginePlace], model: str) -> Iterator[Step]:
    first = 0
    for name, side in answer["sides"].items():
        place, start = places[name], side["start"]
        if start:
            devices = range(first, first + start["workers"]) if not place.host else range(0)
            yield Step(place.label, f"start the engine that {DOES[side['part']]}", _serve(start, place, model, devices))
        first += start["workers"] if start else 0


DOES = {"prefill": "prefills", "decode": "decodes", "both": "prefills and decodes"}


def _serve(start: Plain, place: EnginePlace, model: str, devices: Sequence[int]) -> str:
    """Return the command that starts an engine. Engines on one machine get different devices."""
    variables = dict(start["variables"])
    if start["devices"] and devices:
        variables = {start["devices"]: ",".join(map(str, devices)), **variables}
    told = json.dumps(start["connector"])
    if start["connector_variable"] and start["connector"]:
        variables = {**variables, start["connector_variable"]: told}
    command = start["command"].format(
        model=shlex.quote(model), host=shlex.quote(place.host or LOCAL), port=place.http, role=start["role"]
    )
    flags = {**start["flags"], **({start["connector_flag"]: told} if start["connector_flag"] else {})}
    return " ".join((*_set(variables, "="), command, *_set(flags, " ")))


def _set(values: Mapping[str, str], between: str) -> Iterable[str]:
    return (f"{name}{between}{shlex.quote(value)}" for name, value in values.items())


def _router(answer: Plain, places: Mapping[str, EnginePlace]) -> Iterator[Step]:
    """Yield the step that starts a router: both engines' own, or else kvplan's. None if one has no connector."""
    sides = answer["sides"].values()
    if not all(side["start"] for side in sides):
        return
    routers = {side["start"]["router"] or ROUTE for side in sides}
    prefill, decode = (places[name] for name in (answer["ways"][0]["from"], answer["ways"][0]["to"]))
    hosts = [shlex.quote(place.host or LOCAL) for place in (prefill, decode)]
    line = (ROUTE if len(routers) > 1 else next(iter(routers))).format(
        port=ROUTER_PORT, prefill=hosts[0], prefill_port=prefill.http, decode=hosts[1], decode_port=decode.http
    )
    yield Step(ANYWHERE if prefill.host else prefill.label, "start a router, this one or yours", line)


def connector(side: Plain, place: EnginePlace, own: Mapping[str, object], prepared: bool) -> Plain:
    """Return a side's connector configuration as JSON. Across machines it is strict, and names all that it needs."""
    start = side["start"]
    strict = {"strict": True, "plans": PLANS, "keys": place.keys, "host": place.host, "port": place.port}
    plans = strict if place.host else {"plans": PLANS} if prepared else {}
    extra = {**plans, **own, **({"options": start["options"]} if start["options"] else {})}
    beyond = start["beyond"] if place.host else {}
    own_part = {start["extra"]: extra} if start["extra"] and extra else extra
    return {**start["connector"], **beyond, **own_part}


def as_lines(found: Sequence[Step]) -> list[str]:
    lines = ["", "TO DO, in this order", "  (paths are in one folder, which is called the same on both machines)"]
    if all(step.where == found[0].where for step in found):
        lines.pop()
    for step in found:
        lines += [f"  {step.where}: {step.why}", f"    {step.run}"]
    return lines
