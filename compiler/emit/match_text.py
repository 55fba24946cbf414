"""A pair's match in words: the place of a token on either side, the tokens that are read, the ends of runs."""

from __future__ import annotations

from kvplan.compiler.emit.pylit import comment, flat
from kvplan.dsl.text.grouped import grouped
from kvplan.plan.match import MatchRule, is_uneven, rule_of
from kvplan.plan.needs import Needs
from kvplan.plan.types import Group, GroupPair, Plan

STATE = "the slot of a state on both sides"


def match_text(plan: Plan) -> str:
    """Return comments on how the blocks of each pair match; pairs with one rule share a comment."""
    alike = grouped((described(plan, pair), pair.name) for pair in plan.group_pairs)
    return "\n".join(comment(f"{', '.join(names)}: {text}.", "#   ") for text, names in alike.items())


def described(plan: Plan, pair: GroupPair) -> str:
    """Return `token t at t % 16 of block t // 16 on both sides; runs end at multiples of 16`."""
    rule = rule_of(plan, pair)
    if rule.decode.store == "state":
        return STATE
    places = [_place(group, rule.rows) for group in (rule.prefill, rule.decode)]
    where = f"{places[0]} on both sides" if len(set(places)) == 1 else f"{places[0]} of prefill, {places[1]} of decode"
    item = "token t" if rule.rows == 1 else f"row r = t // {flat(rule.rows)}, with its last token,"
    return "; ".join([f"{item} {where}{_needed(rule.needs)}", _ends(rule)])


def _place(group: Group, rows: int) -> str:
    """Return `at t % 16 of block t // 16`; if workers take turns of tokens, the place on the worker."""
    t, kernel = "t" if rows == 1 else "r", group.kernel // rows
    if group.ring == group.kernel > 0:
        return f"at {t} % {flat(kernel)} of the ring's block"
    at = f"{t} % {flat(group.ring // rows)}" if group.ring else t
    on = ""
    if group.shards > 1:
        chunk = group.chunk // rows
        on = f"on shard {t} // {flat(chunk)} % {group.shards} as u"
        on += f" = {t} // {flat(chunk * group.shards)} * {flat(chunk)} + {t} % {flat(chunk)}, "
        at = "u"
    if kernel == group.ratio == 1:
        return f"{on}in block {at}"
    block = f"{at} // {flat(kernel)}"
    if group.ratio > 1:
        block = f"{block} (kernel block {block} % {group.ratio} of table entry {at} // {flat(kernel * group.ratio)})"
    return f"{on}at {at} % {flat(kernel)} of block {block}"


def _needed(needs: Needs) -> str:
    """Say which tokens before `end` are read, unless all are."""
    end, whole = "end", ""
    if needs.whole > 1:
        end, whole = "stop", f", those before stop = end // {flat(needs.whole)} * {flat(needs.whole)}"
    lowest = [f"{end} - {flat(needs.keep)}"] if needs.keep is not None else []
    lowest += [f"{end} // {flat(needs.chunk)} * {flat(needs.chunk)}"] if needs.chunk is not None else []
    if not lowest:
        return whole
    first = f" the first {flat(needs.sink)} and" if needs.sink else ""
    low = lowest[0] if len(lowest) == 1 else f"max({', '.join(lowest)})"
    return f"{whole},{first} from {low} on"


def _ends(rule: MatchRule) -> str:
    if rule.steps == (rule.rows,):
        return "every token is a run" if rule.rows == 1 else "every row is a run"
    steps = " and ".join(map(flat, rule.steps))
    turns = " and where a kernel block of a shard ends" if is_uneven(rule.prefill) or is_uneven(rule.decode) else ""
    return f"runs end at multiples of {steps}{turns}"
