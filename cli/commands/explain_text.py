"""The answer of `explain` as text, made from the values of its JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kvplan.cli.commands.explain_layouts import engine_text, kind_text, wrapped
from kvplan.cli.terminal import table
from kvplan.compiler.emit.header import notes_once
from kvplan.compiler.words import FIGURES, interval, many, part_name
from kvplan.dsl.text.diagnostics import ranges

Plain = Mapping[str, Any]


def text(said: Plain) -> str:
    """The text for a code, an engine, a kind, a pair of sides, one side, or a model; the keys of `said` tell which."""
    if "code" in said:
        texts = (textwrap.dedent(said[name]).strip() for name in ("text", "more") if name in said)
        return "\n\n".join((f"{said['code']}: {said['title']}", *texts, *map(_sign, said.get("seen", ()))))
    if "requires" in said:
        return "\n\n".join(filter(None, (engine_text(said), said["also"])))
    if "parameters" in said:
        return "\n\n".join(filter(None, (kind_text(said), said["also"])))
    if "moves" in said:
        return _pair(said)
    return _model(said) if "caches" in said else _one_side(said)


def _sign(sign: Plain) -> str:
    """A row of docs/operations.md: what is seen, what it means, what to do."""
    lines = [("seen", sign["seen"]), ("means", sign["means"]), ("do", sign["do"])]
    return "\n".join(line for name, said in lines for line in wrapped(f"{name:6}{said}", 2, 8))


def _model(said: Plain) -> str:
    values = ", ".join(f"{name} {value}" for name, value in said["values"].items())
    lines = [f"{said['model']}: {said['title']}", f"  {values}"]
    lines += [f"  layers: {said['stored']}"]
    lines += [f"  no cache: layers {ranges(said['bare'])}"] if said["bare"] else []
    lines += [f"  {said['doc-ref']}"] if said["doc-ref"] else []
    lines += [line for note in said["notes"] for line in wrapped(f"note: {note}", 2, 4)]
    lines += [line for cache in said["caches"] for line in ("", *_cache(cache, said["engine"]))]
    told = [f"  {planes_line(page['planes'])}" for page in said["planes"]]
    lines += ["", f"KV cache tensors of {said['engine']}, {said['side']}:", *told] if told else []
    return "\n".join([*lines, "", "Give --prefill SIDE and --decode SIDE to see pages and what moves."])


def _cache(cache: Plain, engine: str) -> list[str]:
    """Lines about a cache: layers, needs, parameters, tensors stored by default, then those under a condition."""
    optional = ", may be missing on one side" if cache["optional"] else ""
    lines = [f"{cache['cache']}: {cache['kind']}, {cache['about']}{optional}"]
    lines += [f"  {many(len(cache['layers']), 'layer')}: {ranges(cache['layers'])}", *_reach(cache)]
    for word, params in (("", cache["params"]), ("by default ", cache["defaults"])):
        lines += wrapped(word + ", ".join(f"{name} {value}" for name, value in params.items()), 2, 4) if params else []
    stored = "stored" if cache["default"] else "nothing stored"
    lines += [f"  {stored}, on {engine} by default:"] if cache["default"] != cache["stores"] else ["  stored:"]
    lines += [f"    {name}{what}" for name, what in cache["default"].items()]
    others = {name: what for name, what in cache["stores"].items() if name not in cache["default"]}
    lines += ["  stored otherwise:"] if others else []
    lines += [f"    {name}{what}" for name, what in others.items()]
    return lines + [line for record in cache["records"] for line in wrapped(_record(record), 2, 4)]


def _record(record: Plain) -> str:
    return f"or as {record['record']}, where {' '.join(record['when'].split())}: {', '.join(record['stores'])}"


def _reach(cache: Plain) -> list[str]:
    if cache["needs"] is None:
        return ["  a state, read whole"]
    needs = (
        cache["needs"] if cache["needs"] == "all" else ", ".join(f"{n} {value}" for n, value in cache["needs"].items())
    )
    length = [] if cache["length"] == "context" else [f"  length: {cache['length']}"]
    ring = [f"  ring: {cache['ring']} tokens"] if cache["ring"] is not None else []
    return [f"  needs: {needs}", *ring, *length]


def _one_side(said: Plain) -> str:
    notes = [f"note: {note}" for note in said["notes"]]
    head = [f"{said['model']} on {said['side']}", f"layers: {said['layers']}"]
    return "\n".join([*head, *notes, "", *side_lines(said)])


def _pair(said: Plain) -> str:
    lines = [
        f"{said['title']}: {said['prefill']['side']} -> {said['decode']['side']}",
        f"  plan {said['digests']['plan']}, {'' if said['written'] else '`kvplan compile` would write '}{said['path']}",
    ]
    for name in ("prefill", "decode"):
        lines += ["", f"{name.upper()} {said[name]['side']}", "", *side_lines(said[name])]
    lines += ["", "WHAT MOVES", "", *_moves(said), "", "WHO READS WHAT", "", *_reads(said)]
    lines += ["", f"WHAT LANDS WHERE, DECODE WORKER {said['worker']}", "", *said["landing_drawing"], ""]
    lines += [f"note: {note}" for note in notes_once(said["notes"])]
    lines += [f"not moved, because one side lacks it: {name}" for name in said["skipped"]]
    lines += [f"layers: {said['layers']}"] if said["layers"] else []
    return "\n".join([*lines, f"strategy: {said['strategy']}", said["proof"]])


def side_lines(side: Plain) -> list[str]:
    """The lines of a side: groups, workers, then pages."""
    head = ("group", "block", "kernel blocks", "KV cache tensors per worker", "layers", "memory shared with")
    lines = table(head, [_group(group, len(side["groups"]) - 1) for group in side["groups"]])
    lines += ["", *table(("worker", "holds", "layers"), _holders(side["workers"]))]
    for page in side["pages"]:
        part = part_name(page["part"], (view["tensor"] for view in page["views"]))
        holds = [side["workers"][worker]["holds"][page["cache"]] for worker in page["workers"]]
        drawn = f", worker {page['drawn_worker']} is drawn" if any(held != holds[0] for held in holds) else ""
        who = f"{page['cache']}{f'.{part}' if part else ''} on {workers(page['workers'])}{drawn}"
        gap = f", blocks {page['stride']:,} B apart" if page["stride"] != page["bytes"] else ""
        lines += ["", f"{who}{gap}", f"  {planes_line(page['planes'])}", *(f"  {line}" for line in page["drawing"])]
    return lines


def planes_line(names: Sequence[str]) -> str:
    """`32 KV cache tensors, registered by layer: attention.0, attention.1 … attention.31`."""
    names = sorted(names, key=lambda name: [int(word) for word in name.split(".") if word.isdecimal()])
    said = ", ".join(names) if len(names) <= 4 else f"{names[0]}, {names[1]} … {names[-1]}"
    return f"{many(len(names), 'KV cache tensor')}, registered by layer: {said}"


def _group(group: Plain, others: int) -> tuple[object, ...]:
    held = many(group["tokens"], "token") if group["store"] == "tokens" else "one state"
    held += f", in turns of {group['chunk']} over {group['shards']}" if group["shards"] > 1 else ""
    held += f", in a ring of {group['ring']:,}" if group["ring"] else ""
    held += f" of {group['length']}" if group["length"] != "context" and group["store"] == "tokens" else ""
    ratio = f"{group['ratio']} x {many(group['kernel'], 'token')}" if group["store"] == "tokens" else "1"
    counts = sorted(set(group["planes"]))
    per = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    shared = "all other groups" if 1 < len(group["overlays"]) == others else ", ".join(group["overlays"]) or "-"
    return group["group"], held, ratio, per, ranges(group["layers"]) or "in the block", shared


def _holders(workers: Sequence[Plain]) -> list[tuple[object, ...]]:
    """Rows of workers with what they hold; workers that hold the same share a row."""
    alike: dict[tuple[str, str], list[int]] = {}
    for number, worker in enumerate(workers):
        held = {
            cache: ", ".join(f"{axis} {interval(where)}" for axis, where in axes.items())
            for cache, axes in worker["holds"].items()
        }
        every = [f"{cache} {what or 'all of it'}" for cache, what in held.items()]
        words = "; ".join(every) if any(held.values()) else "everything" if held else "nothing"
        turn = f"; turn {worker['shard']} of the tokens" if any(other["shard"] for other in workers) else ""
        alike.setdefault((words + turn, layers(worker["layers"]) or "all"), []).append(number)
    return [(ranges(numbers), *what) for what, numbers in alike.items()]


def _moves(said: Plain) -> list[str]:
    head = ("decode worker", "group", "reads", "spans", "descriptors", "bytes", "per")
    rows = [
        (ranges(m["workers"]), m["groups"] + by, m["reads"], _spans(m), way["descriptors"], way["bytes"], unit(m))
        for m in said["moves"]
        for by, way in [("", m), *((f", {way['strategy']}", way) for way in m.get("staged", ()))]
    ]
    return [*table(head, rows), f"{FIGURES}.", *said["readings"]]


def _spans(move: Plain) -> str:
    """Spans of all layers, for their unit; the figures after them are for other units."""
    return f"{move['spans']:,} a {move['unit']}"


def unit(move: Plain) -> str:
    """The unit that the figures of a move are for."""
    return "1,024 tokens" if move["store"] == "tokens" else "request"


def _reads(said: Plain) -> list[str]:
    lines = []
    for reader in said["reads"]:
        for source in sorted({read["worker"] for read in reader["from"]}):
            what = _read_texts([read for read in reader["from"] if read["worker"] == source])
            lines.append(f"decode {reader['worker']} <- prefill {source}: {'; '.join(what)}")
        if reader["tells"]:
            lines.append(f"decode {reader['worker']} only tells prefill {ranges(reader['tells'])} that it is done")
    waits: dict[int, list[int]] = {}
    for worker, count in said["notifications"].items():
        waits.setdefault(count, []).append(int(worker))
    return [
        *lines,
        *(
            f"prefill {workers(w)} wait{'s' if len(w) == 1 else ''} for {many(n, 'notification')} a request"
            for n, w in waits.items()
        ),
    ]


def _read_texts(reads: Sequence[Plain]) -> list[str]:
    """Reads of one worker in words; reads of one cache with equal shares are one, with all their layers."""
    alike: dict[tuple[str, str], set[int]] = {}
    for read in reads:
        held = ", ".join(f"{axis} {interval(where)}" for axis, where in read["holds"].items())
        alike.setdefault((read["cache"], held), set()).update(read["layers"])
    return [
        ", ".join(word for word in (f"{cache} layers {layers(n)}", held) if word) for (cache, held), n in alike.items()
    ]


def workers(numbers: Sequence[int]) -> str:
    """`worker 3`, `workers 0-3`."""
    return f"worker{'s' if len(numbers) > 1 else ''} {ranges(numbers)}"


def layers(numbers: Iterable[int]) -> str:
    """Layers as ranges; if there are many ranges, the first layer, the last and a count."""
    known = sorted(numbers)
    text = ranges(known)
    return text if text.count(",") < 8 else f"{known[0]}-{known[-1]} ({len(known)} of them)"
