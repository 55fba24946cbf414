"""What to do on each machine before a pair of engines serves, as commands in their order."""

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
# Speaks to engines of different kinds.
ROUTE = "kvplan route --port {port} --prefill http://{prefill}:{prefill_port} --decode http://{decode}:{decode_port}"
ROUTER_PORT = 8192


@dataclass(frozen=True, slots=True)
class EnginePlace:
    """Where one engine runs: what its machine and its key pair are called, its address there, and its ports.

    `host` is empty if both engines run on one machine; `port` is the first of the connector's, `http` the engine's own.
    """

    label: str
    name: str
    host: str
    port: int
    http: int

    @property
    def keys(self) -> str:
        """The folder with its key pair: each engine has its own, also if both are made on one machine."""
        return f"keys-{self.name}"


@dataclass(frozen=True, slots=True)
class Step:
    """One command: on which machine to run it, and what for."""

    where: str
    why: str
    run: str


def steps(
    answer: Plain, places: Mapping[str, EnginePlace], model: str, more: Sequence[str], prepared: bool
) -> tuple[Step, ...]:
    """All that is to be done, in order. `model` is what the engines serve, `more` what compiling needs beside the pair.

    Plans are made first if they are to be `prepared`. Between engines of one machine no keys are needed.
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
    """A key pair for each engine, in a folder of its own, beside which the other's public key is put."""
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
    """The line that starts an engine. Engines of one machine have different devices."""
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
    """What sends requests: the router of both engines, or else kvplan's; nothing if one has no connector."""
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
    """A side's configuration of its connector, as JSON. Beyond one machine it is strict, and names all it needs."""
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
