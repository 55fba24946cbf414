"""Small pairs of sides of every kind, for plans to be damaged: each has what some real cache has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.random_sides.sides import cache, fixed, group, side, tensor

from kvplan.compiler.bound import BoundSide, BoundTensor
from kvplan.plan.types import ALL, CONTEXT, Needs

LAYERS = (0, 2, 3)
ORDERS = {
    "HND": "layer { block { head { token { k[dim] v[dim] } } } }",
    "NHD": "layer { block { token { head { k[dim] v[dim] } } } }",
    "K then V": "layer { block { head { token { k[dim] } } head { token { v[dim] } } } }",
    "planes": "layer { block { head { token { k[dim] } } } block { head { token { v[dim] } } } }",
    "layers in a block": "block { layer { head { token { k[dim] v[dim] } } } }",
    "layers under heads": "block { head { layer { token { k[dim] v[dim] } } } }",
    "heads outside": "layer { head { block { token { k[dim] v[dim] } } } }",
    "heads outside layers": "head { layer { block { token { k[dim] v[dim] } } } }",
    "swizzled": "layer { block { head { k[dim/2 token dim%2] } head { v[dim token] } } }",
    "tiles": "layer { block { token/2 { head { token%2 { k[dim] v[dim] } } } } }",
    "tiles out of order": "layer { block { token%4/2 { token/4 { token%2 { head { k[dim] v[dim] } } } } } }",
    "dim out of order": "layer { block { head { token { k[dim%4/2 dim/4 dim%2] v[dim] } } } }",
    "elements out of order": "layer { block { head { k[dim%4/2 dim/4 dim%2 token] } head { v[dim token] } } }",
    "padding": "layer { block { head { token { k[dim] pad(4) v[dim] } } align(256) } }",
}
ELEMENTS = "layer { block { head { k[dim token] } head { v[dim token] } } }"
APART = {"k": "layer { block { head { token { k[dim] } } } }", "v": "layer { block { token { head { v[dim] } } } }"}
CONV = "layer { block { x[head hd tap] b[group st tap] c[group st tap] ssm[head hd st] } }"
TAPS = "layer { block { tap { x[head hd] b[group st] c[group st] } ssm[head hd st] pad(8) } }"
DRAFT = "layer { block { x[head hd tap+1] b[group st tap+1] c[group st tap+1] ssm[head hd st] } }"


@dataclass(frozen=True, slots=True)
class Sides:
    """A pair of sides and how it is compiled."""

    prefill: BoundSide
    decode: BoundSide
    options: Mapping[str, str] = field(default_factory=dict)


def kv(
    tp: int,
    order: str | Mapping[str, str] = "HND",
    kernel: int = 4,
    heads: int = 4,
    layers: Sequence[int] = LAYERS,
    stages: Sequence[range] = (),
    needs: Needs = ALL,
    length: str = CONTEXT,
    dim: int = 4,
) -> BoundSide:
    """Keys and values of `heads` heads over `tp` workers."""
    text = ORDERS.get(order, order) if isinstance(order, str) else order
    pair = [tensor(name, 2, {"head": "tp"}, head=heads, token=0, dim=dim) for name in "kv"]
    made = replace(cache(text, *pair, layers=layers, kernel=kernel), needs=needs, length=length)
    return side([made], [replace(group((made, layers)), length=made.length)], tp=tp, stages=stages)


def to_hnd(order: str) -> Sides:
    """Another order to the usual one; three loops over an axis need eight of it."""
    dim = 8 if order in ("dim out of order", "elements out of order") else 4
    kernel = 8 if order == "tiles out of order" else 4
    return Sides(kv(2, order, kernel, dim=dim), kv(1, "HND", kernel, dim=dim))


def latent(tp: int, dcp: int = 1, chunk: int = 1, kernel: int = 4) -> BoundSide:
    parts = tensor("latent", 2, token=0, dim=6), tensor("rope", 2, token=0, r=2)
    return side([cache("layer { block { token { latent[dim] rope[r] } } }", *parts, layers=LAYERS, kernel=kernel)],
                tp=tp, dcp=dcp, chunk=chunk)  # fmt: skip


def record(tp: int, text: str) -> BoundSide:
    parts = tensor("data", 1, token=0, dim=6), tensor("rope", 2, token=0, r=2), tensor("scale", 1, token=0, q=3)
    return side([cache(text, *parts, layers=LAYERS, kernel=4)], tp=tp)


def indexer(tp: int, text: str, kernel: int) -> BoundSide:
    parts = tensor("key", 1, token=0, dim=8), tensor("scale", 4, token=0)
    return side([cache(text, *parts, layers=LAYERS, kernel=kernel)], tp=tp)


def rows(tp: int, kernel: int, *units: int) -> BoundSide:
    """Tensors with a row for every so many tokens."""
    names = [f"t{unit}" for unit in units]
    parts = [tensor(n, 2, {"head": "tp"}, unit, head=2, token=0, dim=3) for n, unit in zip(names, units, strict=True)]
    text = " ".join(f"head {{ token {{ {name}[dim] }} }}" for name in names)
    return side([cache(f"layer {{ block {{ {text} }} }}", *parts, layers=LAYERS, kernel=kernel)], tp=tp)


def recurrent(groups: int = 2) -> list[BoundTensor]:
    return [
        tensor("x", 2, {"head": "tp"}, head=4, hd=3, tap=3),
        tensor("b", 2, {"group": "tp"}, group=groups, st=5, tap=3),
        tensor("c", 2, {"group": "tp"}, group=groups, st=5, tap=3),
        tensor("ssm", 4, {"head": "tp"}, head=4, hd=3, st=5),
    ]


def state(tp: int, text: str = CONV, groups: int = 2, copies: str = "consecutive") -> BoundSide:
    return side([cache(text, *recurrent(groups), name="s", layers=(1, 4))], tp=tp, copies=copies)


def hybrid(tp: int, order: str, kernel: int, split: bool) -> BoundSide:
    """Attention and states; the attention's layers in one group or two, states overlaid or not."""
    a = kv(1, order, kernel).caches[0]
    s = cache(CONV, *recurrent(), name="s", layers=(1, 4), stride=4096)
    ways = [a.layers[::2], a.layers[1::2]] if split else [a.layers]
    groups = [group((a, part), name=f"c{i}") for i, part in enumerate(ways)]
    return side([a, s], [*groups, group((s, s.layers))], tp=tp)


def listed(tp: int, *shares: int) -> BoundSide:
    made = kv(tp).caches[0]
    parts = tuple(replace(t, shares=(("head", shares),)) for t in made.tensors)
    return side([replace(made, tensors=parts)], tp=tp)


def shuffled(tp: int) -> BoundSide:
    """A group that lists its layers in an order of its own."""
    made = cache(ORDERS["HND"], *kv(1).caches[0].tensors, layers=range(6), kernel=4)
    return side([made], [group((made, (3, 0, 1, 5, 4, 2)))], tp=tp)


def strided(made: BoundSide, stride: int) -> BoundSide:
    return replace(made, caches=tuple(replace(c, stride=fixed(stride)) for c in made.caches))


WINDOW = Needs(keep=7, sink=2)
CUT = (range(2), range(2, 4))
SPARE = "layer { block { token { data[dim] rope[r] } token { scale[q] pad(1) } align(64) } }"
TIGHT = "layer { block { token { data[dim] rope[r] } token { scale[q] } } }"
PAIRS: dict[str, Sides] = {
    "heads 4 to 2": Sides(kv(4), kv(2)),
    "heads 2 to 4": Sides(kv(2), kv(4)),
    "equal sides": Sides(kv(2), kv(2)),
    "copies 8 to 4": Sides(kv(8), kv(4)),
    "copies 4 to 8": Sides(kv(4, heads=2), kv(8, heads=2)),
    "copies spread": Sides(kv(4, heads=1), kv(1, heads=1), {"elect": "spread"}),
    **{f"{order} to HND": to_hnd(order) for order in list(ORDERS)[1:]},
    "elements out of order on one side": Sides(kv(2, "elements out of order", dim=8), kv(1, ELEMENTS, dim=8)),
    "HND to NHD": Sides(kv(2), kv(4, "NHD")),
    "HND to tiles": Sides(kv(2), kv(1, "tiles")),
    "tiles on both sides": Sides(kv(2, "tiles"), kv(2, "tiles")),
    "layers in a block on both sides": Sides(kv(2, "layers in a block"), kv(2, "layers in a block")),
    "separate allocations": Sides(kv(2, APART), kv(1, "planes")),
    "padding on both sides": Sides(kv(2, "padding"), kv(2, "padding")),
    "unlike blocks": Sides(kv(2, kernel=6), kv(1, "NHD", kernel=4)),
    "unlike blocks, tiles": Sides(kv(2, "tiles", 6), kv(1, kernel=4)),
    "padded pages": Sides(strided(kv(2), 512), strided(kv(1), 640)),
    "pipelines": Sides(kv(2, stages=CUT), kv(1, stages=(range(3), range(3, 4)))),
    "pipelines, layers in a block": Sides(kv(2, "layers in a block", stages=CUT), kv(1, "layers in a block")),
    "a pipeline that cuts a block": Sides(kv(1, "layers in a block"), kv(1, "layers in a block", stages=CUT)),
    "layers in an odd order": Sides(shuffled(2), kv(1, layers=range(6))),
    "windows and sinks": Sides(kv(2, needs=WINDOW), kv(1, kernel=8, needs=WINDOW)),
    "chunks": Sides(kv(2, needs=Needs(chunk=12, sink=5)), kv(1, needs=Needs(chunk=12, sink=5))),
    "own length": Sides(kv(2, length="own"), kv(1, length="own")),
    "listed shares": Sides(listed(3, 3, 0, 1), listed(4, 0, 1, 3, 0)),
    "latent": Sides(latent(4), latent(2)),
    "shares of tokens": Sides(latent(2, 2, 2), latent(3, 3, 4, kernel=8)),
    "records, unlike pads": Sides(record(2, SPARE), record(1, TIGHT)),
    "records alike": Sides(record(1, SPARE), record(2, SPARE)),
    "indexer": Sides(indexer(1, "layer { block { key[token dim] scale[token] } }", 8),
                     indexer(2, "layer { block { token { key[dim] scale } } }", 4)),
    "rows of two tokens": Sides(rows(2, 8, 2), rows(1, 4, 2)),
    "rows of one and of two": Sides(rows(2, 8, 1, 2), rows(1, 8, 1, 2)),
    "states 4 to 1": Sides(state(4), state(1)),
    "states 1 to 4": Sides(state(1), state(4)),
    "states alike": Sides(state(2), state(2)),
    "states, taps first": Sides(state(2, TAPS), state(1)),
    "states, draft rows": Sides(state(2, DRAFT), state(4)),
    "states, round robin": Sides(state(4, copies="round_robin"), state(2)),
    "states, one group": Sides(state(4, groups=1), state(2, groups=1)),
    "a hybrid": Sides(hybrid(2, "HND", 4, False), hybrid(1, "NHD", 8, True)),
}  # fmt: skip
