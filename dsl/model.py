"""The typed model of layout files: frozen values; `span` says where each was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kvplan.dsl.source import Span

# What an expression may give: a number, a truth value, or a word (a dtype, an order, a name).
Value = int | bool | str
EMPTY: Mapping[str, Expr] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Sizes:
    """A set of positive numbers: those listed in `only`, or every multiple of `step`."""

    step: int = 0
    only: tuple[int, ...] = ()

    def __str__(self) -> str:
        return "+".join(map(str, self.only)) if self.only else f"multiples({self.step})"

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class Number:
    value: int
    span: Span


@dataclass(frozen=True, slots=True)
class Text:
    """A quoted word, 'fp8', or true / false as a bool."""

    value: str | bool
    span: Span


@dataclass(frozen=True, slots=True)
class Name:
    id: str
    span: Span


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x` or `not x`."""

    op: str
    value: Node
    span: Span


@dataclass(frozen=True, slots=True)
class Binary:
    """`+ - * // %`, comparison (== != < <= > >=), `and`, `or`."""

    op: str
    left: Node
    right: Node
    span: Span


@dataclass(frozen=True, slots=True)
class Choice:
    """`then if test else other`."""

    test: Node
    then: Node
    other: Node
    span: Span


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the language: ceildiv min max gcd lcm bytes multiples least largest rank."""

    function: str
    args: tuple[Node, ...]
    span: Span


Node = Number | Text | Name | Unary | Binary | Choice | Call


@dataclass(frozen=True, slots=True)
class Expr:
    """An expression: its text as written, its tree, its place."""

    text: str
    tree: Node
    span: Span


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis in a storage expression: `dim`, tiled `dim//8` or `dim%8`, `tap+draft` for padding iterations.

    `tiles` are applied left to right: ("/", n) keeps which tile of n, ("%", n) keeps the place in a tile of n.
    """

    name: str
    tiles: tuple[tuple[str, Expr], ...]
    extra: Expr | None
    span: Span


@dataclass(frozen=True, slots=True)
class Repeat:
    axis: Axis
    body: tuple[Item, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Leaf:
    """One element of a tensor."""

    tensor: str
    span: Span


@dataclass(frozen=True, slots=True)
class Pad:
    size: Expr
    span: Span


@dataclass(frozen=True, slots=True)
class Align:
    size: Expr
    span: Span


Item = Repeat | Leaf | Pad | Align


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage expression; `parts` are separate allocations (name, items), one part named None if there is one."""

    name: str
    parts: tuple[tuple[str | None, tuple[Item, ...]], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of a kind or an option of an engine. `type`: int, dtype, name or sizes; `default` None: required."""

    name: str
    type: str
    default: Expr | None
    values: tuple[str, ...]
    aliases: Mapping[str, str]
    doc: str
    span: Span


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What is stored: axes by name in logical order, each with its global extent; the token axis has None.

    `unit` is the number of tokens per row of the token axis (`~/4`: 4). `when` false: the tensor does not exist.
    """

    name: str
    axes: tuple[tuple[str, Expr | None], ...]
    dtype: Expr
    split: Mapping[str, str]
    span: Span
    unit: Expr | None = None
    when: Expr | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """A cache kind. `store` is tokens, state or ring."""

    name: str
    title: str
    doc: str
    params: Mapping[str, Param]
    store: str
    tensors: Mapping[str, TensorSpec]
    storage: Mapping[str, Storage]
    span: Span


@dataclass(frozen=True, slots=True)
class Cache:
    """One kind in one model: its layers (global numbers, ascending) and the kind's parameters."""

    name: str
    kind: str
    layers: tuple[int, ...]
    params: Mapping[str, Expr]
    span: Span
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Model:
    """A model: `layers` counts all its layers, with caches or without; `values` are its other numbers and words."""

    name: str
    title: str
    doc_ref: str
    layers: int
    values: Mapping[str, Value]
    caches: Mapping[str, Cache]
    span: Span


@dataclass(frozen=True, slots=True)
class Require:
    """A condition, the sentence to say when it fails ({name} is replaced), and the kind whose caches it is about."""

    that: Expr
    say: str
    kind: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class Groups:
    """How layers form groups: `form` (by_page, by_cache), `assign` (strided, blocked); `overlay`: groups share memory.

    `stretch` (numerator, denominator): by_page takes the largest bucket's size where it is less than this times
    the smallest.
    """

    form: str
    assign: str
    overlay: bool
    stretch: tuple[int, int]
    span: Span


@dataclass(frozen=True, slots=True)
class Mesh:
    """The axes of the worker grid, outermost first; axes derived from a worker's coordinates; the pipeline rule.

    `derived` maps an axis to the worker's coordinate on it (`rank(tp) % dcp`); its size is a side's key. `tokens`
    names the derived or worker axis that token caches are shared out over, `chunk` the tokens per turn.
    """

    workers: tuple[str, ...]
    derived: Mapping[str, Expr]
    layers: str
    tokens: str | None
    chunk: Expr | None
    span: Span


@dataclass(frozen=True, slots=True)
class Engine:
    """Where an engine puts things. `storage` maps a kind, a store or `default` to the name of a storage expression."""

    name: str
    title: str
    doc_ref: str
    versions: str
    options: Mapping[str, Param]
    require: tuple[Require, ...]
    copies: str
    storage: Mapping[str, str]
    own: Mapping[str, Mapping[str, Storage]]
    derive: Mapping[str, Expr]
    groups: Groups
    mesh: Mesh
    span: Span
    stride: Mapping[str, Expr] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment file: which models, sides and compile options are to be compiled, and the default output folder."""

    name: str
    title: str
    plans: tuple[PlanSpec, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class PlanSpec:
    """One entry of a deployment: models × prefill sides × decode sides (a side's text may hold products)."""

    models: tuple[str, ...]
    prefill: tuple[str, ...]
    decode: tuple[str, ...]
    options: Mapping[str, str]
    span: Span
    # ("prefill", text), ("option", name), ("value", name) … -> where it is written
    places: Mapping[tuple[str, str], Span] = field(default_factory=dict)
