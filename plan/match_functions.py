"""The match functions of a plan: a closed set of straight-line texts, specialised for the two groups of a pair.

Compiler and runtime both have them from here: the text in a plan is for those who read it, and is compared.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

from kvplan.plan.types import ALL, Blocks, Group, Match, Needs, Pair, Runs, both, cuts, slots, turns

# Columns of a plan's text.
WIDTH = 120
ARGUMENTS = "first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int"
HELPERS = {"both": both, "cuts": cuts, "slots": slots, "turns": turns}


@dataclass(frozen=True, slots=True)
class MatchRule:
    """All that a match function depends on. Groups count rows of `rows` tokens."""

    prefill: Group
    decode: Group
    needs: Needs
    rows: int


def identifier(text: str) -> str:
    """`text` as a lower-case Python identifier."""
    name = re.sub(r"\W+", "_", text.lower(), flags=re.ASCII).strip("_") or "group"
    return f"_{name}" if name[0].isdigit() else name


def names(pairs: Iterable[Pair]) -> dict[str, str]:
    """Function name of every pair, by the pair's name: `attention`, or `a__b` where the two groups differ in name."""
    taken: set[str] = {*HELPERS, "divmod", "tuple", "range", "min", "max"}
    found: dict[str, str] = {}
    for pair in pairs:
        stem = _stem(pair)
        name = f"{stem}_" if keyword.iskeyword(stem) or stem in taken else stem
        count = 2
        while name in taken:
            name, count = f"{stem}_{count}", count + 1
        found[pair.name] = name
        taken.add(found[pair.name])
    return found


@cache
def render(name: str, prefill: Group, decode: Group, needs: Needs = ALL, rows: int = 1) -> str:
    """The text of function `name`, which pairs rows of `rows` tokens in blocks of `prefill` and `decode`."""
    if decode.store == "state":
        return _state(name)
    rule = MatchRule(_by_row(prefill, rows), _by_row(decode, rows), needs, rows)
    lines = [
        _head(name),
        *_docstring(rule, prefill, decode),
        *_range(rule),
        *_filter(rule.prefill, rule.decode),
        *_side("p", "prefill", rule.prefill),
        *_side("d", "decode", rule.decode),
        "    return Runs(p_block, p_token, d_block, d_token, count)",
    ]
    return "\n".join(lines) + "\n"


@cache
def build(prefill: Group, decode: Group, needs: Needs = ALL, rows: int = 1) -> Match:
    """The function that `render` writes, ready to be called."""
    space: dict[str, object] = {"Blocks": Blocks, "Runs": Runs, **HELPERS}
    future = "from __future__ import annotations\n"
    exec(compile(future + render("match", prefill, decode, needs, rows), "<match>", "exec"), space)
    return space["match"]  # type: ignore[return-value]


def _stem(pair: Pair) -> str:
    groups, _, sort = pair.name.partition(":")
    words = [pair.decode] if pair.prefill == pair.decode else [pair.prefill, pair.decode]
    return "__".join(identifier(word) for word in (*words, *([sort] if groups and sort else [])))


def _number(value: int) -> str:
    return f"{value:_}" if value >= 10_000 else str(value)


def _by_row(group: Group, rows: int) -> Group:
    chunk = group.chunk // rows if group.shards > 1 else 1
    tokens, kernel, ring = group.tokens // rows, group.kernel // rows, group.ring // rows
    return replace(group, tokens=tokens, kernel=kernel, chunk=chunk, ring=ring)


def _state(name: str) -> str:
    return (
        f"{_head(name)}\n"
        '    """The slot of the state on both sides: never trimmed by a range of tokens."""\n'
        "    return slots(prefill, decode)\n"
    )


def _head(name: str) -> str:
    line = f"def {name}({ARGUMENTS}) -> Runs:"
    return line if len(line) <= WIDTH else f"def {name}(\n    {ARGUMENTS}\n) -> Runs:"


def _docstring(rule: MatchRule, prefill: Group, decode: Group) -> list[str]:
    theirs, ours = _block(prefill), _block(decode)
    alike = [f"    A block is {ours} on both sides."]
    unlike = [f"    A prefill block is {theirs},", f"    a decode block {ours}."]
    what = "tokens" if rule.rows == 1 else "rows of tokens"
    first = f'    """Runs of {what} [first, end) that lie in one kernel block on both sides.'
    rows = [f"    A row is of {rule.rows} tokens, and moves with the last of them."] if rule.rows > 1 else []
    return [first, "", *(alike if theirs == ours else unlike), *rows, *_needed(rule.needs), '    """']


def _needed(needs: Needs) -> list[str]:
    """What is read of the range, as a sentence."""
    words = []
    if needs.keep is not None:
        words.append(f"the last {_number(needs.keep)}")
    if needs.chunk is not None:
        words.append(f"those in the last chunk of {_number(needs.chunk)}")
    if words and needs.sink:
        words.insert(0, f"the first {_number(needs.sink)}")
    return [f"    Needed are {' and '.join(words)} of all tokens before end."] if words else []


def _block(group: Group) -> str:
    text = f"{_number(group.ratio)} kernel blocks" if group.ratio > 1 else "one kernel block"
    text += f" of {_number(group.kernel)} tokens"
    if group.ring:
        return f"{text} in a ring of {_number(group.ring)}"
    if group.shards == 1:
        return text
    return f"{text} on each of {group.shards} shards, which take turns of {_number(group.chunk)}"


def _range(rule: MatchRule) -> list[str]:
    """The runs of the rows that are needed."""
    needs, lines = rule.needs, []
    lowest = [f"end - {_number(needs.keep)}"] if needs.keep is not None else []
    lowest += [f"end // {_number(needs.chunk)} * {_number(needs.chunk)}"] if needs.chunk is not None else []
    lines += [f"    low = max(first, {', '.join(lowest)})"] if lowest else []
    names = ["first", *(["low"] if lowest else []), "end"]
    rows = ", ".join(f"{name} // {_number(rule.rows)}" for name in names)
    lines += [f"    {', '.join(names)} = {rows}"] if rule.rows > 1 else []
    if not lowest or not needs.sink:
        return [*lines, f"    token, count = {_cuts(rule, names[-2], 'end')}"]
    # A row with one of the first tokens in it is needed whole.
    sink = _number(-(-needs.sink // rule.rows))
    lines.append(f"    low = first if low <= {sink} else low")
    lines.append(f"    sink = min(low, {sink})")
    return [*lines, f"    token, count = both({_cuts(rule, 'first', 'sink')}, {_cuts(rule, 'low', 'end')})"]


def _cuts(rule: MatchRule, first: str, end: str) -> str:
    steps = [_number(step) for step in _steps(rule.prefill, rule.decode)]
    uneven = [("p", rule.prefill), ("d", rule.decode)]
    steps += [_turns(letter, group, first, end) for letter, group in uneven if _uneven(group)]
    return f"cuts({', '.join((first, end, *steps))})"


def _turns(letter: str, group: Group, first: str, end: str) -> str:
    """The cuts of a side whose kernel blocks begin within a turn."""
    sizes = ", ".join(map(_number, (group.kernel, group.chunk, group.shards)))
    return f"turns({first}, {end}, {sizes}, {letter}_shard)"


def _uneven(group: Group) -> bool:
    return group.shards > 1 and group.kernel % group.chunk != 0 and group.chunk % group.kernel != 0


def _steps(prefill: Group, decode: Group) -> list[int]:
    """Where runs are cut: a step that is a multiple of another adds no cut."""
    steps = sorted({_step(prefill), _step(decode)})
    return [step for step in steps if not any(step > other and step % other == 0 for other in steps)]


def _step(group: Group) -> int:
    if group.shards == 1:
        return group.kernel
    return group.chunk if _uneven(group) else min(group.kernel, group.chunk)


def _filter(prefill: Group, decode: Group) -> list[str]:
    tests = [
        f"(token // {_number(group.chunk)} % {group.shards} == {side}_shard)"
        for side, group in (("p", prefill), ("d", decode))
        if group.shards > 1
    ]
    if not tests:
        return []
    test = " & ".join(tests) if len(tests) > 1 else tests[0][1:-1]
    return [f"    keep = {test}", "    token, count = token[keep], count[keep]"]


def _side(letter: str, side: str, group: Group) -> list[str]:
    block, token = f"{letter}_block", f"{letter}_token"
    found, lines = f"token % {_number(group.ring)}" if group.ring else "token", []
    if group.shards > 1:
        chunk, turn = _number(group.chunk), _number(group.chunk * group.shards)
        lines, found = [f"    {token} = token // {turn} * {chunk} + token % {chunk}"], token
    lines.append(f"    {block}, {token} = divmod({found}, {_number(group.kernel)})")
    if group.ratio == 1:
        return [*lines, f"    {block} = {side}.at({block})"]
    ratio = _number(group.ratio)
    return [*lines, f"    {block} = {side}.at({block} // {ratio}) * {ratio} + {block} % {ratio}"]
