"""NVIDIA Nemotron 3 Nano 30B-A3B: prefill tp=2,groups=by_cache -> decode tp=4.

Emitted by kvplan from nemotron-3-nano-30b, do not edit:
    kvplan compile nemotron-3-nano-30b --prefill tp=2,groups=by_cache --decode tp=4

attention, a page of the first worker that has one:
    prefill  |  token 0  |  token 1   |  token 2   |     …      | token 2095 |   1,073,152 B
             2,096 tokens; a plane for each of 6 layers
             1 head, 1,073,152 B each: [2,096 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x
               bf16)]
    decode   |  0  |  1  |  2  |  …  | 1055|                                       540,672 B
             1,056 tokens; a plane for each of 6 layers
             1 head, 540,672 B each: [1,056 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x bf16)]

mamba, a page of the first worker that has one:
    prefill  |x|b|c|                           ssm                           |   1,067,008 B, next 1,073,152 B on
             one slot; a plane for each of 23 layers
             x 12,288 B (32 head x 64 hd x 3 tap x bf16)
             b 3,072 B (4 group x 128 st x 3 tap x bf16)
             c 3,072 B (4 group x 128 st x 3 tap x bf16)
             ssm 1,048,576 B (32 head x 64 hd x 128 st x f32)
    decode   |x|b|c|           ssm           |                                     533,504 B, next 540,672 B on
             one slot; a plane for each of 6 layers of mamba.0, one of 4 groups
             x 6,144 B (16 head x 64 hd x 3 tap x bf16)
             b 1,536 B (2 group x 128 st x 3 tap x bf16)
             c 1,536 B (2 group x 128 st x 3 tap x bf16)
             ssm 524,288 B (16 head x 64 hd x 128 st x f32)

What moves, per decode worker; requests where no two logical blocks are neighbours, of 1,024 tokens:
    decode workers 0-3, attention: 1 read, 6 spans a run of tokens; 6 requests and 3,145,728 B per 1,024 tokens
    decode workers 0-3, mamba>mamba.0, mamba>mamba.1, mamba>mamba.2, each: 1 read, 24 spans a slot; 24 requests and
        3,201,024 B a request
    decode workers 0-3, mamba>mamba.3: 1 read, 20 spans a slot; 20 requests and 2,667,520 B a request

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted.
Of the tokens asked for exactly what is needed is written, nothing before the first one and nothing behind the last
one; a state is written whole.
Prefill: not probed on vllm, whose file alone says how a page is filled: attention, mamba.
Decode: not probed on vllm, whose file alone says how a page is filled: attention, mamba.
Proved for every decode worker, each byte written once. attention: 6 layers x 1,024 B a token, each from its own
(layer, head, token, dim); mamba: 23 layers x 2,134,016 B a state, each from its own (layer, head, hd, tap, group,
st).
"""

from __future__ import annotations

from kvplan.plan.types import (
    Blocks,
    Group,
    Loop,
    Nest,
    Pair,
    Plan,
    Planes,
    Read,
    Runs,
    Side,
    Table,
    View,
    Worker,
    cuts,
    slots,
)

MODEL_DIGEST = "2e78ffd50f5b547ec7ce3197551a15d9"
PREFILL_DIGEST = "cf82442fcbcb1569818b73ff1cb14724"
DECODE_DIGEST = "203ff9cc3e59e1083ab95d797048afac"
PLAN_DIGEST = "c70f06cadc3925a5642084788a07048b"
FUNCTIONS_DIGEST = "0b4ad65e8bc5195cebcc274a0e55116c"

# Layers, by their numbers in the whole model.
MAMBA_LAYERS = (0, 2, 4, 7, 9, 11, 14, 16, 18, 21, 23, 25, 28, 30, 32, 35, 37, 39, 41, 44, 46, 48, 50)

# What a page holds: View(tensor, dtype, bytes from the page's start, axes as (name, count, bytes per step)).
PREFILL_ATTENTION_VIEWS = (
    View("k", "bf16", 0, (("head", 1, 1_073_152), ("token", 2096, 512), ("dim", 128, 2))),
    View("v", "bf16", 256, (("head", 1, 1_073_152), ("token", 2096, 512), ("dim", 128, 2))),
)
PREFILL_MAMBA_VIEWS = (
    View("x", "bf16", 0, (("head", 32, 384), ("hd", 64, 6), ("tap", 3, 2))),
    View("b", "bf16", 12_288, (("group", 4, 768), ("st", 128, 6), ("tap", 3, 2))),
    View("c", "bf16", 15_360, (("group", 4, 768), ("st", 128, 6), ("tap", 3, 2))),
    View("ssm", "f32", 18_432, (("head", 32, 32_768), ("hd", 64, 512), ("st", 128, 4))),
)
DECODE_ATTENTION_VIEWS = (
    View("k", "bf16", 0, (("head", 1, 540_672), ("token", 1056, 512), ("dim", 128, 2))),
    View("v", "bf16", 256, (("head", 1, 540_672), ("token", 1056, 512), ("dim", 128, 2))),
)
DECODE_MAMBA_VIEWS = (
    View("x", "bf16", 0, (("head", 16, 384), ("hd", 64, 6), ("tap", 3, 2))),
    View("b", "bf16", 6144, (("group", 2, 768), ("st", 128, 6), ("tap", 3, 2))),
    View("c", "bf16", 7680, (("group", 2, 768), ("st", 128, 6), ("tap", 3, 2))),
    View("ssm", "f32", 9216, (("head", 16, 32_768), ("hd", 64, 512), ("st", 128, 4))),
)

# The planes of a worker, one for every index of the loops outside `block`, which are (axis, global indices, planes per
# step): Planes(cache, group, part, first plane, loops, bytes of a page, bytes from one page to the next, views).
ATTENTION_LOOPS = (("layer", (5, 12, 19, 26, 33, 42), 1),)
MAMBA_LOOPS_0 = (("layer", MAMBA_LAYERS, 1),)
MAMBA_LOOPS_1 = (("layer", (0, 9, 18, 28, 37, 46), 1),)
MAMBA_LOOPS_2 = (("layer", (2, 11, 21, 30, 39, 48), 1),)
MAMBA_LOOPS_3 = (("layer", (4, 14, 23, 32, 41, 50), 1),)
MAMBA_LOOPS_4 = (("layer", (7, 16, 25, 35, 44), 1),)
PREFILL_PLANES = (
    Planes("attention", "attention", None, 0, ATTENTION_LOOPS, 1_073_152, 1_073_152, PREFILL_ATTENTION_VIEWS),
    Planes("mamba", "mamba", None, 6, MAMBA_LOOPS_0, 1_067_008, 1_073_152, PREFILL_MAMBA_VIEWS),
)
DECODE_PLANES = (
    Planes("attention", "attention", None, 0, ATTENTION_LOOPS, 540_672, 540_672, DECODE_ATTENTION_VIEWS),
    Planes("mamba", "mamba.0", None, 6, MAMBA_LOOPS_1, 533_504, 540_672, DECODE_MAMBA_VIEWS),
    Planes("mamba", "mamba.1", None, 12, MAMBA_LOOPS_2, 533_504, 540_672, DECODE_MAMBA_VIEWS),
    Planes("mamba", "mamba.2", None, 18, MAMBA_LOOPS_3, 533_504, 540_672, DECODE_MAMBA_VIEWS),
    Planes("mamba", "mamba.3", None, 24, MAMBA_LOOPS_4, 533_504, 540_672, DECODE_MAMBA_VIEWS),
)

# Group: tokens of a logical block, of a kernel block, kernel blocks in a logical one. Groups of one arena overlay the
# same memory: a block id belongs to one of them at a time. What a worker holds is (cache, axis, global interval).
PREFILL = Side(
    key="tp=2,groups=by_cache",
    digest=PREFILL_DIGEST,
    groups=(
        Group("attention", "tokens", tokens=2096, kernel=2096, ratio=1, arena=0),
        Group("mamba", "state", tokens=0, kernel=0, ratio=1, arena=0),
    ),
    workers=(
        Worker(
            PREFILL_PLANES,
            holds=(("attention", "head", (0, 1)), ("mamba", "group", (0, 4)), ("mamba", "head", (0, 32))),
        ),
        Worker(
            PREFILL_PLANES,
            holds=(("attention", "head", (1, 2)), ("mamba", "group", (4, 8)), ("mamba", "head", (32, 64))),
        ),
    ),
)

DECODE = Side(
    key="tp=4",
    digest=DECODE_DIGEST,
    groups=(
        Group("attention", "tokens", tokens=1056, kernel=1056, ratio=1, arena=0),
        Group("mamba.0", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.1", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.2", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.3", "state", tokens=0, kernel=0, ratio=1, arena=0),
    ),
    workers=(
        Worker(
            DECODE_PLANES, holds=(("attention", "head", (0, 1)), ("mamba", "group", (0, 2)), ("mamba", "head", (0, 16)))
        ),
        Worker(
            DECODE_PLANES,
            holds=(("attention", "head", (0, 1)), ("mamba", "group", (2, 4)), ("mamba", "head", (16, 32))),
        ),
        Worker(
            DECODE_PLANES,
            holds=(("attention", "head", (1, 2)), ("mamba", "group", (4, 6)), ("mamba", "head", (32, 48))),
        ),
        Worker(
            DECODE_PLANES,
            holds=(("attention", "head", (1, 2)), ("mamba", "group", (6, 8)), ("mamba", "head", (48, 64))),
        ),
    ),
)

# What is read for one block, or for one token of a run: Nest(tensors, prefill place, decode place, bytes of a span,
# loops, token step). A place is (plane, counted from the read's first, byte in its page). Loop(axis, count, prefill
# step, decode step): a step is (planes, bytes). A token step is (prefill bytes, decode bytes) from token to token.
EACH_6_LAYERS = (Loop("layer", 6, (1, 0), (1, 0)),)
ATTENTION_HOLDS_0 = (("head", (0, 1)),)
ATTENTION_HOLDS_1 = (("head", (1, 2)),)
MAMBA_HOLDS_0 = (("group", (0, 2)), ("head", (0, 16)))
MAMBA_HOLDS_1 = (("group", (2, 4)), ("head", (16, 32)))
MAMBA_HOLDS_2 = (("group", (4, 6)), ("head", (32, 48)))
MAMBA_HOLDS_3 = (("group", (6, 8)), ("head", (48, 64)))
ATTENTION_TABLE = Table(token=(Nest(("k", "v"), (0, 0), (0, 0), 512, EACH_6_LAYERS, (512, 512)),))
MAMBA_TABLE_0 = Table(
    page=(
        Nest(("x",), (0, 0), (0, 0), 6144),
        Nest(("b",), (0, 12_288), (0, 6144), 1536),
        Nest(("c",), (0, 15_360), (0, 7680), 1536),
        Nest(("ssm",), (0, 18_432), (0, 9216), 524_288),
        Nest(("x",), (4, 0), (1, 0), 6144),
        Nest(("b",), (4, 12_288), (1, 6144), 1536),
        Nest(("c",), (4, 15_360), (1, 7680), 1536),
        Nest(("ssm",), (4, 18_432), (1, 9216), 524_288),
        Nest(("x",), (8, 0), (2, 0), 6144),
        Nest(("b",), (8, 12_288), (2, 6144), 1536),
        Nest(("c",), (8, 15_360), (2, 7680), 1536),
        Nest(("ssm",), (8, 18_432), (2, 9216), 524_288),
        Nest(("x",), (12, 0), (3, 0), 6144),
        Nest(("b",), (12, 12_288), (3, 6144), 1536),
        Nest(("c",), (12, 15_360), (3, 7680), 1536),
        Nest(("ssm",), (12, 18_432), (3, 9216), 524_288),
        Nest(("x",), (16, 0), (4, 0), 6144),
        Nest(("b",), (16, 12_288), (4, 6144), 1536),
        Nest(("c",), (16, 15_360), (4, 7680), 1536),
        Nest(("ssm",), (16, 18_432), (4, 9216), 524_288),
        Nest(("x",), (20, 0), (5, 0), 6144),
        Nest(("b",), (20, 12_288), (5, 6144), 1536),
        Nest(("c",), (20, 15_360), (5, 7680), 1536),
        Nest(("ssm",), (20, 18_432), (5, 9216), 524_288),
    ),
)
MAMBA_TABLE_1 = Table(
    page=(
        Nest(("x",), (1, 0), (0, 0), 6144),
        Nest(("b",), (1, 12_288), (0, 6144), 1536),
        Nest(("c",), (1, 15_360), (0, 7680), 1536),
        Nest(("ssm",), (1, 18_432), (0, 9216), 524_288),
        Nest(("x",), (5, 0), (1, 0), 6144),
        Nest(("b",), (5, 12_288), (1, 6144), 1536),
        Nest(("c",), (5, 15_360), (1, 7680), 1536),
        Nest(("ssm",), (5, 18_432), (1, 9216), 524_288),
        Nest(("x",), (9, 0), (2, 0), 6144),
        Nest(("b",), (9, 12_288), (2, 6144), 1536),
        Nest(("c",), (9, 15_360), (2, 7680), 1536),
        Nest(("ssm",), (9, 18_432), (2, 9216), 524_288),
        Nest(("x",), (13, 0), (3, 0), 6144),
        Nest(("b",), (13, 12_288), (3, 6144), 1536),
        Nest(("c",), (13, 15_360), (3, 7680), 1536),
        Nest(("ssm",), (13, 18_432), (3, 9216), 524_288),
        Nest(("x",), (17, 0), (4, 0), 6144),
        Nest(("b",), (17, 12_288), (4, 6144), 1536),
        Nest(("c",), (17, 15_360), (4, 7680), 1536),
        Nest(("ssm",), (17, 18_432), (4, 9216), 524_288),
        Nest(("x",), (21, 0), (5, 0), 6144),
        Nest(("b",), (21, 12_288), (5, 6144), 1536),
        Nest(("c",), (21, 15_360), (5, 7680), 1536),
        Nest(("ssm",), (21, 18_432), (5, 9216), 524_288),
    ),
)
MAMBA_TABLE_2 = Table(
    page=(
        Nest(("x",), (2, 0), (0, 0), 6144),
        Nest(("b",), (2, 12_288), (0, 6144), 1536),
        Nest(("c",), (2, 15_360), (0, 7680), 1536),
        Nest(("ssm",), (2, 18_432), (0, 9216), 524_288),
        Nest(("x",), (6, 0), (1, 0), 6144),
        Nest(("b",), (6, 12_288), (1, 6144), 1536),
        Nest(("c",), (6, 15_360), (1, 7680), 1536),
        Nest(("ssm",), (6, 18_432), (1, 9216), 524_288),
        Nest(("x",), (10, 0), (2, 0), 6144),
        Nest(("b",), (10, 12_288), (2, 6144), 1536),
        Nest(("c",), (10, 15_360), (2, 7680), 1536),
        Nest(("ssm",), (10, 18_432), (2, 9216), 524_288),
        Nest(("x",), (14, 0), (3, 0), 6144),
        Nest(("b",), (14, 12_288), (3, 6144), 1536),
        Nest(("c",), (14, 15_360), (3, 7680), 1536),
        Nest(("ssm",), (14, 18_432), (3, 9216), 524_288),
        Nest(("x",), (18, 0), (4, 0), 6144),
        Nest(("b",), (18, 12_288), (4, 6144), 1536),
        Nest(("c",), (18, 15_360), (4, 7680), 1536),
        Nest(("ssm",), (18, 18_432), (4, 9216), 524_288),
        Nest(("x",), (22, 0), (5, 0), 6144),
        Nest(("b",), (22, 12_288), (5, 6144), 1536),
        Nest(("c",), (22, 15_360), (5, 7680), 1536),
        Nest(("ssm",), (22, 18_432), (5, 9216), 524_288),
    ),
)
MAMBA_TABLE_3 = Table(
    page=(
        Nest(("x",), (3, 0), (0, 0), 6144),
        Nest(("b",), (3, 12_288), (0, 6144), 1536),
        Nest(("c",), (3, 15_360), (0, 7680), 1536),
        Nest(("ssm",), (3, 18_432), (0, 9216), 524_288),
        Nest(("x",), (7, 0), (1, 0), 6144),
        Nest(("b",), (7, 12_288), (1, 6144), 1536),
        Nest(("c",), (7, 15_360), (1, 7680), 1536),
        Nest(("ssm",), (7, 18_432), (1, 9216), 524_288),
        Nest(("x",), (11, 0), (2, 0), 6144),
        Nest(("b",), (11, 12_288), (2, 6144), 1536),
        Nest(("c",), (11, 15_360), (2, 7680), 1536),
        Nest(("ssm",), (11, 18_432), (2, 9216), 524_288),
        Nest(("x",), (15, 0), (3, 0), 6144),
        Nest(("b",), (15, 12_288), (3, 6144), 1536),
        Nest(("c",), (15, 15_360), (3, 7680), 1536),
        Nest(("ssm",), (15, 18_432), (3, 9216), 524_288),
        Nest(("x",), (19, 0), (4, 0), 6144),
        Nest(("b",), (19, 12_288), (4, 6144), 1536),
        Nest(("c",), (19, 15_360), (4, 7680), 1536),
        Nest(("ssm",), (19, 18_432), (4, 9216), 524_288),
    ),
)
MAMBA_TABLE_4 = Table(
    page=(
        Nest(("x",), (0, 6144), (0, 0), 6144),
        Nest(("b",), (0, 13_824), (0, 6144), 1536),
        Nest(("c",), (0, 16_896), (0, 7680), 1536),
        Nest(("ssm",), (0, 542_720), (0, 9216), 524_288),
        Nest(("x",), (4, 6144), (1, 0), 6144),
        Nest(("b",), (4, 13_824), (1, 6144), 1536),
        Nest(("c",), (4, 16_896), (1, 7680), 1536),
        Nest(("ssm",), (4, 542_720), (1, 9216), 524_288),
        Nest(("x",), (8, 6144), (2, 0), 6144),
        Nest(("b",), (8, 13_824), (2, 6144), 1536),
        Nest(("c",), (8, 16_896), (2, 7680), 1536),
        Nest(("ssm",), (8, 542_720), (2, 9216), 524_288),
        Nest(("x",), (12, 6144), (3, 0), 6144),
        Nest(("b",), (12, 13_824), (3, 6144), 1536),
        Nest(("c",), (12, 16_896), (3, 7680), 1536),
        Nest(("ssm",), (12, 542_720), (3, 9216), 524_288),
        Nest(("x",), (16, 6144), (4, 0), 6144),
        Nest(("b",), (16, 13_824), (4, 6144), 1536),
        Nest(("c",), (16, 16_896), (4, 7680), 1536),
        Nest(("ssm",), (16, 542_720), (4, 9216), 524_288),
        Nest(("x",), (20, 6144), (5, 0), 6144),
        Nest(("b",), (20, 13_824), (5, 6144), 1536),
        Nest(("c",), (20, 16_896), (5, 7680), 1536),
        Nest(("ssm",), (20, 542_720), (5, 9216), 524_288),
    ),
)
MAMBA_TABLE_5 = Table(
    page=(
        Nest(("x",), (1, 6144), (0, 0), 6144),
        Nest(("b",), (1, 13_824), (0, 6144), 1536),
        Nest(("c",), (1, 16_896), (0, 7680), 1536),
        Nest(("ssm",), (1, 542_720), (0, 9216), 524_288),
        Nest(("x",), (5, 6144), (1, 0), 6144),
        Nest(("b",), (5, 13_824), (1, 6144), 1536),
        Nest(("c",), (5, 16_896), (1, 7680), 1536),
        Nest(("ssm",), (5, 542_720), (1, 9216), 524_288),
        Nest(("x",), (9, 6144), (2, 0), 6144),
        Nest(("b",), (9, 13_824), (2, 6144), 1536),
        Nest(("c",), (9, 16_896), (2, 7680), 1536),
        Nest(("ssm",), (9, 542_720), (2, 9216), 524_288),
        Nest(("x",), (13, 6144), (3, 0), 6144),
        Nest(("b",), (13, 13_824), (3, 6144), 1536),
        Nest(("c",), (13, 16_896), (3, 7680), 1536),
        Nest(("ssm",), (13, 542_720), (3, 9216), 524_288),
        Nest(("x",), (17, 6144), (4, 0), 6144),
        Nest(("b",), (17, 13_824), (4, 6144), 1536),
        Nest(("c",), (17, 16_896), (4, 7680), 1536),
        Nest(("ssm",), (17, 542_720), (4, 9216), 524_288),
        Nest(("x",), (21, 6144), (5, 0), 6144),
        Nest(("b",), (21, 13_824), (5, 6144), 1536),
        Nest(("c",), (21, 16_896), (5, 7680), 1536),
        Nest(("ssm",), (21, 542_720), (5, 9216), 524_288),
    ),
)
MAMBA_TABLE_6 = Table(
    page=(
        Nest(("x",), (2, 6144), (0, 0), 6144),
        Nest(("b",), (2, 13_824), (0, 6144), 1536),
        Nest(("c",), (2, 16_896), (0, 7680), 1536),
        Nest(("ssm",), (2, 542_720), (0, 9216), 524_288),
        Nest(("x",), (6, 6144), (1, 0), 6144),
        Nest(("b",), (6, 13_824), (1, 6144), 1536),
        Nest(("c",), (6, 16_896), (1, 7680), 1536),
        Nest(("ssm",), (6, 542_720), (1, 9216), 524_288),
        Nest(("x",), (10, 6144), (2, 0), 6144),
        Nest(("b",), (10, 13_824), (2, 6144), 1536),
        Nest(("c",), (10, 16_896), (2, 7680), 1536),
        Nest(("ssm",), (10, 542_720), (2, 9216), 524_288),
        Nest(("x",), (14, 6144), (3, 0), 6144),
        Nest(("b",), (14, 13_824), (3, 6144), 1536),
        Nest(("c",), (14, 16_896), (3, 7680), 1536),
        Nest(("ssm",), (14, 542_720), (3, 9216), 524_288),
        Nest(("x",), (18, 6144), (4, 0), 6144),
        Nest(("b",), (18, 13_824), (4, 6144), 1536),
        Nest(("c",), (18, 16_896), (4, 7680), 1536),
        Nest(("ssm",), (18, 542_720), (4, 9216), 524_288),
        Nest(("x",), (22, 6144), (5, 0), 6144),
        Nest(("b",), (22, 13_824), (5, 6144), 1536),
        Nest(("c",), (22, 16_896), (5, 7680), 1536),
        Nest(("ssm",), (22, 542_720), (5, 9216), 524_288),
    ),
)
MAMBA_TABLE_7 = Table(
    page=(
        Nest(("x",), (3, 6144), (0, 0), 6144),
        Nest(("b",), (3, 13_824), (0, 6144), 1536),
        Nest(("c",), (3, 16_896), (0, 7680), 1536),
        Nest(("ssm",), (3, 542_720), (0, 9216), 524_288),
        Nest(("x",), (7, 6144), (1, 0), 6144),
        Nest(("b",), (7, 13_824), (1, 6144), 1536),
        Nest(("c",), (7, 16_896), (1, 7680), 1536),
        Nest(("ssm",), (7, 542_720), (1, 9216), 524_288),
        Nest(("x",), (11, 6144), (2, 0), 6144),
        Nest(("b",), (11, 13_824), (2, 6144), 1536),
        Nest(("c",), (11, 16_896), (2, 7680), 1536),
        Nest(("ssm",), (11, 542_720), (2, 9216), 524_288),
        Nest(("x",), (15, 6144), (3, 0), 6144),
        Nest(("b",), (15, 13_824), (3, 6144), 1536),
        Nest(("c",), (15, 16_896), (3, 7680), 1536),
        Nest(("ssm",), (15, 542_720), (3, 9216), 524_288),
        Nest(("x",), (19, 6144), (4, 0), 6144),
        Nest(("b",), (19, 13_824), (4, 6144), 1536),
        Nest(("c",), (19, 16_896), (4, 7680), 1536),
        Nest(("ssm",), (19, 542_720), (4, 9216), 524_288),
    ),
)


# Which blocks of a request meet. p_shard and d_shard are the two workers' turns where tokens are shared out, else 0.
def attention(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A prefill block is one kernel block of 2096 tokens,
    a decode block one kernel block of 1056 tokens.
    """
    token, count = cuts(first, end, 1056, 2096)
    p_block, p_token = divmod(token, 2096)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 1056)
    d_block = decode.at(d_block)
    return Runs(p_block, p_token, d_block, d_token, count)


def mamba__mamba_0(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


def mamba__mamba_1(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


def mamba__mamba_2(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


def mamba__mamba_3(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """The slot of the state on both sides: never trimmed by a range of tokens."""
    return slots(prefill, decode)


# What each decode worker reads: Read(prefill worker, pair, cache, layers, global intervals of the split axes, table,
# first planes). A table counts planes from the first ones, (prefill, decode), which are left out where they are (0, 0).
READS: tuple[tuple[Read, ...], ...] = (
    # decode worker 0
    (
        Read(0, "attention", "attention", (5, 12, 19, 26, 33, 42), ATTENTION_HOLDS_0, ATTENTION_TABLE),
        Read(0, "mamba>mamba.0", "mamba", (0, 9, 18, 28, 37, 46), MAMBA_HOLDS_0, MAMBA_TABLE_0, (6, 6)),
        Read(0, "mamba>mamba.1", "mamba", (2, 11, 21, 30, 39, 48), MAMBA_HOLDS_0, MAMBA_TABLE_1, (6, 12)),
        Read(0, "mamba>mamba.2", "mamba", (4, 14, 23, 32, 41, 50), MAMBA_HOLDS_0, MAMBA_TABLE_2, (6, 18)),
        Read(0, "mamba>mamba.3", "mamba", (7, 16, 25, 35, 44), MAMBA_HOLDS_0, MAMBA_TABLE_3, (6, 24)),
    ),
    # decode worker 1
    (
        Read(0, "attention", "attention", (5, 12, 19, 26, 33, 42), ATTENTION_HOLDS_0, ATTENTION_TABLE),
        Read(0, "mamba>mamba.0", "mamba", (0, 9, 18, 28, 37, 46), MAMBA_HOLDS_1, MAMBA_TABLE_4, (6, 6)),
        Read(0, "mamba>mamba.1", "mamba", (2, 11, 21, 30, 39, 48), MAMBA_HOLDS_1, MAMBA_TABLE_5, (6, 12)),
        Read(0, "mamba>mamba.2", "mamba", (4, 14, 23, 32, 41, 50), MAMBA_HOLDS_1, MAMBA_TABLE_6, (6, 18)),
        Read(0, "mamba>mamba.3", "mamba", (7, 16, 25, 35, 44), MAMBA_HOLDS_1, MAMBA_TABLE_7, (6, 24)),
    ),
    # decode worker 2
    (
        Read(1, "attention", "attention", (5, 12, 19, 26, 33, 42), ATTENTION_HOLDS_1, ATTENTION_TABLE),
        Read(1, "mamba>mamba.0", "mamba", (0, 9, 18, 28, 37, 46), MAMBA_HOLDS_2, MAMBA_TABLE_0, (6, 6)),
        Read(1, "mamba>mamba.1", "mamba", (2, 11, 21, 30, 39, 48), MAMBA_HOLDS_2, MAMBA_TABLE_1, (6, 12)),
        Read(1, "mamba>mamba.2", "mamba", (4, 14, 23, 32, 41, 50), MAMBA_HOLDS_2, MAMBA_TABLE_2, (6, 18)),
        Read(1, "mamba>mamba.3", "mamba", (7, 16, 25, 35, 44), MAMBA_HOLDS_2, MAMBA_TABLE_3, (6, 24)),
    ),
    # decode worker 3
    (
        Read(1, "attention", "attention", (5, 12, 19, 26, 33, 42), ATTENTION_HOLDS_1, ATTENTION_TABLE),
        Read(1, "mamba>mamba.0", "mamba", (0, 9, 18, 28, 37, 46), MAMBA_HOLDS_3, MAMBA_TABLE_4, (6, 6)),
        Read(1, "mamba>mamba.1", "mamba", (2, 11, 21, 30, 39, 48), MAMBA_HOLDS_3, MAMBA_TABLE_5, (6, 12)),
        Read(1, "mamba>mamba.2", "mamba", (4, 14, 23, 32, 41, 50), MAMBA_HOLDS_3, MAMBA_TABLE_6, (6, 18)),
        Read(1, "mamba>mamba.3", "mamba", (7, 16, 25, 35, 44), MAMBA_HOLDS_3, MAMBA_TABLE_7, (6, 24)),
    ),
)

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY: tuple[tuple[int, ...], ...] = ((), (), (), ())

# Pair(name, prefill group, decode group, rows of a page that both sides have, 0 where they differ, match function).
PLAN = Plan(
    format=1,
    title="NVIDIA Nemotron 3 Nano 30B-A3B",
    model="nemotron-3-nano-30b",
    model_digest=MODEL_DIGEST,
    digest=PLAN_DIGEST,
    options=(("elect", "one"), ("strategy", "direct")),
    prefill=PREFILL,
    decode=DECODE,
    pairs=(
        Pair("attention", "attention", "attention", 0, attention),
        Pair("mamba>mamba.0", "mamba", "mamba.0", 0, mamba__mamba_0),
        Pair("mamba>mamba.1", "mamba", "mamba.1", 0, mamba__mamba_1),
        Pair("mamba>mamba.2", "mamba", "mamba.2", 0, mamba__mamba_2),
        Pair("mamba>mamba.3", "mamba", "mamba.3", 0, mamba__mamba_3),
    ),
    reads=READS,
    notify=NOTIFY,
    functions=FUNCTIONS_DIGEST,
)
