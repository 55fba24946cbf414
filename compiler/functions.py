"""The match functions of a plan: a closed set of straight-line texts, specialised for the two groups of a pair."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable
from functools import cache

from kvplan.runtime.plan import Blocks, Group, Match, Pair, Runs, cuts, slots

ARGUMENTS = "first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int"


def identifier(text: str) -> str:
    """`text` as a lower-case Python identifier."""
    name = re.sub(r"\W+", "_", text.lower(), flags=re.ASCII).strip("_") or "group"
    return f"_{name}" if name[0].isdigit() else name


def names(pairs: Iterable[Pair]) -> dict[str, str]:
    """Function name of every pair, by the pair's name: `attention`, or `a__b` where the two groups differ in name."""
    taken: set[str] = {"cuts", "slots", "divmod", "tuple", "range"}
    found: dict[str, str] = {}
    for pair in pairs:
        found[pair.name] = _free(_stem(pair), taken)
        taken.add(found[pair.name])
    return found


def render(name: str, prefill: Group, decode: Group) -> str:
    """The text of function `name`, which pairs blocks of `prefill` and `decode`. Raises ValueError for odd chunks."""
    if decode.store == "state":
        return _state(name)
    lines = [
        f"def {name}({ARGUMENTS}) -> Runs:",
        *_docstring(prefill, decode),
        f"    token, count = cuts(first, end, {', '.join(map(_number, _steps(prefill, decode)))})",
        *_filter(prefill, decode),
        *_side("p", "prefill", prefill),
        *_side("d", "decode", decode),
        "    return Runs(p_block, p_token, d_block, d_token, count)",
    ]
    return "\n".join(lines) + "\n"


@cache
def build(prefill: Group, decode: Group) -> Match:
    """The function that `render` writes, ready to be called."""
    space: dict[str, object] = {"Blocks": Blocks, "Runs": Runs, "cuts": cuts, "slots": slots}
    future = "from __future__ import annotations\n"
    exec(compile(future + render("match", prefill, decode), "<match>", "exec"), space)
    return space["match"]  # type: ignore[return-value]


def _stem(pair: Pair) -> str:
    prefill, decode = identifier(pair.prefill), identifier(pair.decode)
    return decode if pair.prefill == pair.decode else f"{prefill}__{decode}"


def _free(stem: str, taken: set[str]) -> str:
    name = f"{stem}_" if keyword.iskeyword(stem) or stem in taken else stem
    count = 2
    while name in taken:
        name, count = f"{stem}_{count}", count + 1
    return name


def _number(value: int) -> str:
    return f"{value:_}" if value >= 10_000 else str(value)


def _state(name: str) -> str:
    return (
        f"def {name}({ARGUMENTS}) -> Runs:\n"
        '    """The slot of the state on both sides: never trimmed by a range of tokens."""\n'
        "    return slots(prefill, decode)\n"
    )


def _docstring(prefill: Group, decode: Group) -> list[str]:
    theirs, ours = _block(prefill), _block(decode)
    alike = [f"    A block is {ours} on both sides."]
    unlike = [f"    A prefill block is {theirs},", f"    a decode block {ours}."]
    first = '    """Runs of tokens [first, end) that lie in one kernel block on both sides.'
    return [first, "", *(alike if theirs == ours else unlike), '    """']


def _block(group: Group) -> str:
    text = f"{_number(group.ratio)} kernel blocks" if group.ratio > 1 else "one kernel block"
    text += f" of {_number(group.kernel)} tokens"
    if group.shards == 1:
        return text
    return f"{text} on each of {group.shards} shards, which take turns of {_number(group.chunk)}"


def _steps(prefill: Group, decode: Group) -> list[int]:
    """Where runs are cut: a step that is a multiple of another adds no cut."""
    steps = sorted({_step(prefill), _step(decode)})
    return [step for step in steps if not any(step > other and step % other == 0 for other in steps)]


def _step(group: Group) -> int:
    if group.shards == 1:
        return group.kernel
    if group.tokens % group.chunk or (group.kernel % group.chunk and group.chunk % group.kernel):
        raise ValueError(
            f"group {group.name}: turns of {group.chunk} tokens do not fit kernel blocks of {group.kernel}"
        )
    return min(group.kernel, group.chunk)


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
    if group.shards > 1:
        return _shared(block, token, side, group)
    lines = [f"    {block}, {token} = divmod(token, {_number(group.kernel)})"]
    if group.ratio == 1:
        return [*lines, f"    {block} = {side}.at({block})"]
    ratio = _number(group.ratio)
    return [*lines, f"    {block} = {side}.at({block} // {ratio}) * {ratio} + {block} % {ratio}"]


def _shared(block: str, token: str, side: str, group: Group) -> list[str]:
    chunk, turn = _number(group.chunk), _number(group.chunk * group.shards)
    local = f"{token} % {chunk}"
    if group.chunk < group.tokens:
        local = f"{token} // {turn} * {chunk} + {local}"
    lines = [
        f"    {block}, {token} = divmod(token, {_number(group.tokens * group.shards)})",
        f"    {token} = {local}",
    ]
    if group.ratio == 1:
        return [*lines, f"    {block} = {side}.at({block})"]
    kernel, ratio = _number(group.kernel), _number(group.ratio)
    return [
        *lines,
        f"    {block} = {side}.at({block}) * {ratio} + {token} // {kernel}",
        f"    {token} = {token} % {kernel}",
    ]
