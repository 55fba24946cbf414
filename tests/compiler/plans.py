"""Plans made by hand for tests: 8 heads over 4 and 2 workers, tokens of 32 layers and a state beside them."""

from __future__ import annotations

from kvplan.plan.digest import sealed
from kvplan.plan.types import FORMAT, Group, GroupPair, Loop, Nest, Plan, Planes, Read, Side, Table, View, Worker

LAYERS = tuple(range(32))
STATE_LAYERS = (1, 2, 4, 7, 11, 12, 16, 17, 19, 23)


def tokens(name: str = "attention", kernel: int = 16, ratio: int = 1, shards: int = 1, chunk: int = 1) -> Group:
    return Group(name, "tokens", kernel * ratio, kernel, ratio, 0, shards, chunk)


def state(name: str = "mamba.0") -> Group:
    return Group(name, "state", 0, 0, 1, 0)


def attention_planes(heads: int, kernel: int = 16) -> Planes:
    page = heads * kernel * 512
    axes = (("head", heads, kernel * 512), ("token", kernel, 512), ("dim", 128, 2))
    views = (View("k", "bf16", 0, axes), View("v", "bf16", 256, axes))
    return Planes("attention", "attention", None, 0, (("layer", LAYERS, 1),), page, page, views)


def state_planes(heads: int) -> Planes:
    conv = View("x", "bf16", 0, (("head", heads, 384), ("dim", 64, 6), ("tap", 3, 2)))
    ssm = View("ssm", "f32", heads * 384, (("head", heads, 32_768), ("dim", 64, 512), ("state", 128, 4)))
    page = heads * (384 + 32_768)
    return Planes("mamba", "mamba.0", None, 32, (("layer", STATE_LAYERS, 1),), page, page + 1_024, (conv, ssm))


def side(key: str, workers: int, groups: tuple[Group, ...], kernel: int = 16) -> Side:
    heads = 8 // workers
    planes: tuple[Planes, ...] = (attention_planes(heads, kernel),)
    if len(groups) > 1:
        planes += (state_planes(heads),)
    holds = [(("attention", "head", (i * heads, (i + 1) * heads)),) for i in range(workers)]
    shards = groups[0].shards
    return Side(key, "", groups, tuple(Worker(planes, i if shards > 1 else 0, holds[i]) for i in range(workers)))


def attention_table(at: int, heads: int, prefill_kernel: int, decode_kernel: int, prefill_at: int = 0) -> Table:
    """Heads from head `prefill_at` on of the prefill worker, to head `at` of the decode worker."""
    p, d = (0, prefill_at * prefill_kernel * 512), (0, at * decode_kernel * 512)
    layer = Loop("layer", 32, (1, 0), (1, 0))
    head = Loop("head", heads, (0, prefill_kernel * 512), (0, decode_kernel * 512))
    page = Nest(("k", "v"), p, d, heads * prefill_kernel * 512, (layer,))
    token = Nest(("k", "v"), p, d, 512, (layer, head), (512, 512))
    return Table((page,) if prefill_kernel == decode_kernel else (), (token,))


def state_table(at: int, heads: int, total: int) -> Table:
    layer = Loop("layer", 10, (1, 0), (1, 0))
    x = Nest(("x",), (32, 0), (32, at * 384), heads * 384, (layer,))
    ssm = Nest(("ssm",), (32, heads * 384), (32, total * 384 + at * 32_768), heads * 32_768, (layer,))
    return Table((x, ssm))


def plan(
    prefill: int = 4, decode: int = 2, kernels: tuple[int, int] = (16, 16), ratios: tuple[int, int] = (1, 1),
    with_state: bool = False, shards: int = 1,
) -> Plan:  # fmt: skip
    """`prefill` workers to `decode` workers, a divisor of them."""
    extra = (state(),) if with_state else ()
    groups = tokens("attention", kernels[0], ratios[0], shards, kernels[0]), tokens("attention", kernels[1], ratios[1])
    sides = (
        side(f"tp={prefill}", prefill, (groups[0], *extra), kernels[0]),
        side(f"tp={decode}", decode, (groups[1], *extra), kernels[1]),
    )
    page = kernels[0] if kernels[0] == kernels[1] else 0
    pairs = [GroupPair("attention", "attention", "attention", page)]
    if with_state:
        pairs.append(GroupPair("mamba.0"))
    reads = tuple(_reads(worker, prefill, decode, kernels, with_state) for worker in range(decode))
    notify = tuple(() for _ in range(decode))
    options = (("elect", "index"), ("strategy", "direct"))
    return sealed(Plan(FORMAT, "Toy 8B", "toy-8b", "0" * 32, "", options, *sides, tuple(pairs), reads, notify))


def _reads(worker: int, prefill: int, decode: int, kernels: tuple[int, int], with_state: bool) -> tuple[Read, ...]:
    heads, each = 8 // prefill, prefill // decode
    found = []
    for turn in range(each):
        source = worker * each + turn
        holds = (("head", (source * heads, (source + 1) * heads)),)
        table = attention_table(turn * heads, heads, *kernels)
        found.append(Read(source, "attention", "attention", LAYERS, holds, table))
        if with_state:
            table = state_table(turn * heads, heads, each * heads)
            found.append(Read(source, "mamba.0", "mamba", STATE_LAYERS, holds, table))
    return tuple(found)
