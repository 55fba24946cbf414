"""NVIDIA Nemotron 3 Nano 30B-A3B: prefill engine=sglang,tp=2,block=16 -> decode tp=1.

Emitted by kvplan from nemotron-3-nano-30b, do not edit:
    kvplan compile nemotron-3-nano-30b --prefill engine=sglang,tp=2,block=16 --decode tp=1

attention, a page of the first worker that has one:
    prefill 0 |k|                                                                     4,096 B
             16 tokens; a plane for each of 6 layers
             k 4,096 B (16 token x 1 head x 128 dim x bf16)
    prefill 1 |v|                                                                     4,096 B
             16 tokens; a plane for each of 6 layers
             v 4,096 B (16 token x 1 head x 128 dim x bf16)
    decode   |             head 0            |             head 1            |   2,146,304 B
             2,096 tokens; a plane for each of 6 layers
             2 heads, 1,073,152 B each: [2,096 tokens, 512 B each: k 256 B (128 dim x bf16) | v 256 B (128 dim x
               bf16)]

mamba, a page of the first worker that has one:
    prefill conv |x|b|c|                                                                18,432 B
             one slot; a plane for each of 23 layers
             x 12,288 B (32 head x 64 hd x 3 tap x bf16)
             b 3,072 B (4 group x 128 st x 3 tap x bf16)
             c 3,072 B (4 group x 128 st x 3 tap x bf16)
    prefill ssm |             ssm              |                                    1,048,576 B
             one slot; a plane for each of 23 layers
             ssm 1,048,576 B (32 head x 64 hd x 128 st x f32)
    decode   |x|b|c|                           ssm                           |   2,134,016 B, next 2,146,304 B on
             one slot; a plane for each of 6 layers of mamba.0, one of 4 groups
             x 24,576 B (64 head x 64 hd x 3 tap x bf16)
             b 6,144 B (8 group x 128 st x 3 tap x bf16)
             c 6,144 B (8 group x 128 st x 3 tap x bf16)
             ssm 2,097,152 B (64 head x 64 hd x 128 st x f32)

What moves, per decode worker; requests where no two logical blocks are neighbours, of 1,024 tokens:
    decode worker 0, attention: 2 reads, 24 spans a run of tokens; 24,576 requests and 6,291,456 B per 1,024 tokens
    decode worker 0, mamba>mamba.0, mamba>mamba.1, mamba>mamba.2, each: 2 reads, 48 spans a slot; 48 requests and
        12,804,096 B a request
    decode worker 0, mamba>mamba.3: 2 reads, 40 spans a slot; 40 requests and 10,670,080 B a request

Strategy: direct, every span goes straight to its place in the decode pages: nothing is staged or permuted.
Of the tokens asked for exactly what is needed is written, nothing before the first one and nothing behind the last
one; a state is written whole.
Prefill: not probed on sglang, whose file alone says how a page is filled: attention, mamba.
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
PREFILL_DIGEST = "4da321d540ad841574b89149a95f105f"
DECODE_DIGEST = "8140d954d5303eee599f8fe2805e3fe6"
PLAN_DIGEST = "95a3517f41c29295a58c5c80009b0045"
FUNCTIONS_DIGEST = "9c930411c2b724db2975098d407a230c"

# Layers, by their numbers in the whole model.
MAMBA_LAYERS = (0, 2, 4, 7, 9, 11, 14, 16, 18, 21, 23, 25, 28, 30, 32, 35, 37, 39, 41, 44, 46, 48, 50)

# What a page holds: View(tensor, dtype, bytes from the page's start, axes as (name, count, bytes per step)).
PREFILL_ATTENTION_VIEWS_0 = (View("k", "bf16", 0, (("token", 16, 256), ("head", 1, 256), ("dim", 128, 2))),)
PREFILL_ATTENTION_VIEWS_1 = (View("v", "bf16", 0, (("token", 16, 256), ("head", 1, 256), ("dim", 128, 2))),)
PREFILL_MAMBA_VIEWS_0 = (
    View("x", "bf16", 0, (("head", 32, 384), ("hd", 64, 6), ("tap", 3, 2))),
    View("b", "bf16", 12_288, (("group", 4, 768), ("st", 128, 6), ("tap", 3, 2))),
    View("c", "bf16", 15_360, (("group", 4, 768), ("st", 128, 6), ("tap", 3, 2))),
)
PREFILL_MAMBA_VIEWS_1 = (View("ssm", "f32", 0, (("head", 32, 32_768), ("hd", 64, 512), ("st", 128, 4))),)
DECODE_ATTENTION_VIEWS = (
    View("k", "bf16", 0, (("head", 2, 1_073_152), ("token", 2096, 512), ("dim", 128, 2))),
    View("v", "bf16", 256, (("head", 2, 1_073_152), ("token", 2096, 512), ("dim", 128, 2))),
)
DECODE_MAMBA_VIEWS = (
    View("x", "bf16", 0, (("head", 64, 384), ("hd", 64, 6), ("tap", 3, 2))),
    View("b", "bf16", 24_576, (("group", 8, 768), ("st", 128, 6), ("tap", 3, 2))),
    View("c", "bf16", 30_720, (("group", 8, 768), ("st", 128, 6), ("tap", 3, 2))),
    View("ssm", "f32", 36_864, (("head", 64, 32_768), ("hd", 64, 512), ("st", 128, 4))),
)

# The planes of a worker, one for every index of the loops outside `block`, which are (axis, global indices, planes per
# step): Planes(cache, group, part, first plane, loops, bytes of a page, bytes from one page to the next, views).
ATTENTION_LOOPS_0 = (("layer", (5, 12, 19, 26, 33, 42), 2),)
ATTENTION_LOOPS_1 = (("layer", (5, 12, 19, 26, 33, 42), 1),)
MAMBA_LOOPS_0 = (("layer", MAMBA_LAYERS, 1),)
MAMBA_LOOPS_1 = (("layer", (0, 9, 18, 28, 37, 46), 1),)
MAMBA_LOOPS_2 = (("layer", (2, 11, 21, 30, 39, 48), 1),)
MAMBA_LOOPS_3 = (("layer", (4, 14, 23, 32, 41, 50), 1),)
MAMBA_LOOPS_4 = (("layer", (7, 16, 25, 35, 44), 1),)
PREFILL_PLANES = (
    Planes("attention", "attention", "0", 0, ATTENTION_LOOPS_0, 4096, 4096, PREFILL_ATTENTION_VIEWS_0),
    Planes("attention", "attention", "1", 1, ATTENTION_LOOPS_0, 4096, 4096, PREFILL_ATTENTION_VIEWS_1),
    Planes("mamba", "mamba", "conv", 12, MAMBA_LOOPS_0, 18_432, 18_432, PREFILL_MAMBA_VIEWS_0),
    Planes("mamba", "mamba", "ssm", 35, MAMBA_LOOPS_0, 1_048_576, 1_048_576, PREFILL_MAMBA_VIEWS_1),
)
DECODE_PLANES = (
    Planes("attention", "attention", None, 0, ATTENTION_LOOPS_1, 2_146_304, 2_146_304, DECODE_ATTENTION_VIEWS),
    Planes("mamba", "mamba.0", None, 6, MAMBA_LOOPS_1, 2_134_016, 2_146_304, DECODE_MAMBA_VIEWS),
    Planes("mamba", "mamba.1", None, 12, MAMBA_LOOPS_2, 2_134_016, 2_146_304, DECODE_MAMBA_VIEWS),
    Planes("mamba", "mamba.2", None, 18, MAMBA_LOOPS_3, 2_134_016, 2_146_304, DECODE_MAMBA_VIEWS),
    Planes("mamba", "mamba.3", None, 24, MAMBA_LOOPS_4, 2_134_016, 2_146_304, DECODE_MAMBA_VIEWS),
)

# Group: tokens of a logical block, of a kernel block, kernel blocks in a logical one. Groups of one arena overlay the
# same memory: a block id belongs to one of them at a time. What a worker holds is (cache, axis, global interval).
PREFILL = Side(
    key="engine=sglang,tp=2,block=16",
    digest=PREFILL_DIGEST,
    groups=(
        Group("attention", "tokens", tokens=16, kernel=16, ratio=1, arena=0),
        Group("mamba", "state", tokens=0, kernel=0, ratio=1, arena=1),
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
    key="tp=1",
    digest=DECODE_DIGEST,
    groups=(
        Group("attention", "tokens", tokens=2096, kernel=2096, ratio=1, arena=0),
        Group("mamba.0", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.1", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.2", "state", tokens=0, kernel=0, ratio=1, arena=0),
        Group("mamba.3", "state", tokens=0, kernel=0, ratio=1, arena=0),
    ),
    workers=(
        Worker(
            DECODE_PLANES, holds=(("attention", "head", (0, 2)), ("mamba", "group", (0, 8)), ("mamba", "head", (0, 64)))
        ),
    ),
)

# What is read for one block, or for one token of a run: Nest(tensors, prefill place, decode place, bytes of a span,
# loops, token step). A place is (plane, counted from the read's first, byte in its page). Loop(axis, count, prefill
# step, decode step): a step is (planes, bytes). A token step is (prefill bytes, decode bytes) from token to token.
EACH_6_LAYERS = (Loop("layer", 6, (2, 0), (1, 0)),)
ATTENTION_HOLDS_0 = (("head", (0, 1)),)
ATTENTION_HOLDS_1 = (("head", (1, 2)),)
MAMBA_HOLDS_0 = (("group", (0, 4)), ("head", (0, 32)))
MAMBA_HOLDS_1 = (("group", (4, 8)), ("head", (32, 64)))
ATTENTION_TABLE_0 = Table(
    token=(
        Nest(("k",), (0, 0), (0, 0), 256, EACH_6_LAYERS, (256, 512)),
        Nest(("v",), (1, 0), (0, 256), 256, EACH_6_LAYERS, (256, 512)),
    ),
)
ATTENTION_TABLE_1 = Table(
    token=(
        Nest(("k",), (0, 0), (0, 1_073_152), 256, EACH_6_LAYERS, (256, 512)),
        Nest(("v",), (1, 0), (0, 1_073_408), 256, EACH_6_LAYERS, (256, 512)),
    ),
)
MAMBA_TABLE_0 = Table(
    page=(
        Nest(("x",), (0, 0), (0, 0), 12_288),
        Nest(("b",), (0, 12_288), (0, 24_576), 3072),
        Nest(("c",), (0, 15_360), (0, 30_720), 3072),
        Nest(("ssm",), (23, 0), (0, 36_864), 1_048_576),
        Nest(("x",), (4, 0), (1, 0), 12_288),
        Nest(("b",), (4, 12_288), (1, 24_576), 3072),
        Nest(("c",), (4, 15_360), (1, 30_720), 3072),
        Nest(("ssm",), (27, 0), (1, 36_864), 1_048_576),
        Nest(("x",), (8, 0), (2, 0), 12_288),
        Nest(("b",), (8, 12_288), (2, 24_576), 3072),
        Nest(("c",), (8, 15_360), (2, 30_720), 3072),
        Nest(("ssm",), (31, 0), (2, 36_864), 1_048_576),
        Nest(("x",), (12, 0), (3, 0), 12_288),
        Nest(("b",), (12, 12_288), (3, 24_576), 3072),
        Nest(("c",), (12, 15_360), (3, 30_720), 3072),
        Nest(("ssm",), (35, 0), (3, 36_864), 1_048_576),
        Nest(("x",), (16, 0), (4, 0), 12_288),
        Nest(("b",), (16, 12_288), (4, 24_576), 3072),
        Nest(("c",), (16, 15_360), (4, 30_720), 3072),
        Nest(("ssm",), (39, 0), (4, 36_864), 1_048_576),
        Nest(("x",), (20, 0), (5, 0), 12_288),
        Nest(("b",), (20, 12_288), (5, 24_576), 3072),
        Nest(("c",), (20, 15_360), (5, 30_720), 3072),
        Nest(("ssm",), (43, 0), (5, 36_864), 1_048_576),
    ),
)
MAMBA_TABLE_1 = Table(
    page=(
        Nest(("x",), (0, 0), (0, 12_288), 12_288),
        Nest(("b",), (0, 12_288), (0, 27_648), 3072),
        Nest(("c",), (0, 15_360), (0, 33_792), 3072),
        Nest(("ssm",), (23, 0), (0, 1_085_440), 1_048_576),
        Nest(("x",), (4, 0), (1, 12_288), 12_288),
        Nest(("b",), (4, 12_288), (1, 27_648), 3072),
        Nest(("c",), (4, 15_360), (1, 33_792), 3072),
        Nest(("ssm",), (27, 0), (1, 1_085_440), 1_048_576),
        Nest(("x",), (8, 0), (2, 12_288), 12_288),
        Nest(("b",), (8, 12_288), (2, 27_648), 3072),
        Nest(("c",), (8, 15_360), (2, 33_792), 3072),
        Nest(("ssm",), (31, 0), (2, 1_085_440), 1_048_576),
        Nest(("x",), (12, 0), (3, 12_288), 12_288),
        Nest(("b",), (12, 12_288), (3, 27_648), 3072),
        Nest(("c",), (12, 15_360), (3, 33_792), 3072),
        Nest(("ssm",), (35, 0), (3, 1_085_440), 1_048_576),
        Nest(("x",), (16, 0), (4, 12_288), 12_288),
        Nest(("b",), (16, 12_288), (4, 27_648), 3072),
        Nest(("c",), (16, 15_360), (4, 33_792), 3072),
        Nest(("ssm",), (39, 0), (4, 1_085_440), 1_048_576),
        Nest(("x",), (20, 0), (5, 12_288), 12_288),
        Nest(("b",), (20, 12_288), (5, 27_648), 3072),
        Nest(("c",), (20, 15_360), (5, 33_792), 3072),
        Nest(("ssm",), (43, 0), (5, 1_085_440), 1_048_576),
    ),
)
MAMBA_TABLE_2 = Table(
    page=(
        Nest(("x",), (1, 0), (0, 0), 12_288),
        Nest(("b",), (1, 12_288), (0, 24_576), 3072),
        Nest(("c",), (1, 15_360), (0, 30_720), 3072),
        Nest(("ssm",), (24, 0), (0, 36_864), 1_048_576),
        Nest(("x",), (5, 0), (1, 0), 12_288),
        Nest(("b",), (5, 12_288), (1, 24_576), 3072),
        Nest(("c",), (5, 15_360), (1, 30_720), 3072),
        Nest(("ssm",), (28, 0), (1, 36_864), 1_048_576),
        Nest(("x",), (9, 0), (2, 0), 12_288),
        Nest(("b",), (9, 12_288), (2, 24_576), 3072),
        Nest(("c",), (9, 15_360), (2, 30_720), 3072),
        Nest(("ssm",), (32, 0), (2, 36_864), 1_048_576),
        Nest(("x",), (13, 0), (3, 0), 12_288),
        Nest(("b",), (13, 12_288), (3, 24_576), 3072),
        Nest(("c",), (13, 15_360), (3, 30_720), 3072),
        Nest(("ssm",), (36, 0), (3, 36_864), 1_048_576),
        Nest(("x",), (17, 0), (4, 0), 12_288),
        Nest(("b",), (17, 12_288), (4, 24_576), 3072),
        Nest(("c",), (17, 15_360), (4, 30_720), 3072),
        Nest(("ssm",), (40, 0), (4, 36_864), 1_048_576),
        Nest(("x",), (21, 0), (5, 0), 12_288),
        Nest(("b",), (21, 12_288), (5, 24_576), 3072),
        Nest(("c",), (21, 15_360), (5, 30_720), 3072),
        Nest(("ssm",), (44, 0), (5, 36_864), 1_048_576),
    ),
)
MAMBA_TABLE_3 = Table(
    page=(
        Nest(("x",), (1, 0), (0, 12_288), 12_288),
        Nest(("b",), (1, 12_288), (0, 27_648), 3072),
        Nest(("c",), (1, 15_360), (0, 33_792), 3072),
        Nest(("ssm",), (24, 0), (0, 1_085_440), 1_048_576),
        Nest(("x",), (5, 0), (1, 12_288), 12_288),
        Nest(("b",), (5, 12_288), (1, 27_648), 3072),
        Nest(("c",), (5, 15_360), (1, 33_792), 3072),
        Nest(("ssm",), (28, 0), (1, 1_085_440), 1_048_576),
        Nest(("x",), (9, 0), (2, 12_288), 12_288),
        Nest(("b",), (9, 12_288), (2, 27_648), 3072),
        Nest(("c",), (9, 15_360), (2, 33_792), 3072),
        Nest(("ssm",), (32, 0), (2, 1_085_440), 1_048_576),
        Nest(("x",), (13, 0), (3, 12_288), 12_288),
        Nest(("b",), (13, 12_288), (3, 27_648), 3072),
        Nest(("c",), (13, 15_360), (3, 33_792), 3072),
        Nest(("ssm",), (36, 0), (3, 1_085_440), 1_048_576),
        Nest(("x",), (17, 0), (4, 12_288), 12_288),
        Nest(("b",), (17, 12_288), (4, 27_648), 3072),
        Nest(("c",), (17, 15_360), (4, 33_792), 3072),
        Nest(("ssm",), (40, 0), (4, 1_085_440), 1_048_576),
        Nest(("x",), (21, 0), (5, 12_288), 12_288),
        Nest(("b",), (21, 12_288), (5, 27_648), 3072),
        Nest(("c",), (21, 15_360), (5, 33_792), 3072),
        Nest(("ssm",), (44, 0), (5, 1_085_440), 1_048_576),
    ),
)
MAMBA_TABLE_4 = Table(
    page=(
        Nest(("x",), (2, 0), (0, 0), 12_288),
        Nest(("b",), (2, 12_288), (0, 24_576), 3072),
        Nest(("c",), (2, 15_360), (0, 30_720), 3072),
        Nest(("ssm",), (25, 0), (0, 36_864), 1_048_576),
        Nest(("x",), (6, 0), (1, 0), 12_288),
        Nest(("b",), (6, 12_288), (1, 24_576), 3072),
        Nest(("c",), (6, 15_360), (1, 30_720), 3072),
        Nest(("ssm",), (29, 0), (1, 36_864), 1_048_576),
        Nest(("x",), (10, 0), (2, 0), 12_288),
        Nest(("b",), (10, 12_288), (2, 24_576), 3072),
        Nest(("c",), (10, 15_360), (2, 30_720), 3072),
        Nest(("ssm",), (33, 0), (2, 36_864), 1_048_576),
        Nest(("x",), (14, 0), (3, 0), 12_288),
        Nest(("b",), (14, 12_288), (3, 24_576), 3072),
        Nest(("c",), (14, 15_360), (3, 30_720), 3072),
        Nest(("ssm",), (37, 0), (3, 36_864), 1_048_576),
        Nest(("x",), (18, 0), (4, 0), 12_288),
        Nest(("b",), (18, 12_288), (4, 24_576), 3072),
        Nest(("c",), (18, 15_360), (4, 30_720), 3072),
        Nest(("ssm",), (41, 0), (4, 36_864), 1_048_576),
        Nest(("x",), (22, 0), (5, 0), 12_288),
        Nest(("b",), (22, 12_288), (5, 24_576), 3072),
        Nest(("c",), (22, 15_360), (5, 30_720), 3072),
        Nest(("ssm",), (45, 0), (5, 36_864), 1_048_576),
    ),
)
MAMBA_TABLE_5 = Table(
    page=(
        Nest(("x",), (2, 0), (0, 12_288), 12_288),
        Nest(("b",), (2, 12_288), (0, 27_648), 3072),
        Nest(("c",), (2, 15_360), (0, 33_792), 3072),
        Nest(("ssm",), (25, 0), (0, 1_085_440), 1_048_576),
        Nest(("x",), (6, 0), (1, 12_288), 12_288),
        Nest(("b",), (6, 12_288), (1, 27_648), 3072),
        Nest(("c",), (6, 15_360), (1, 33_792), 3072),
        Nest(("ssm",), (29, 0), (1, 1_085_440), 1_048_576),
        Nest(("x",), (10, 0), (2, 12_288), 12_288),
        Nest(("b",), (10, 12_288), (2, 27_648), 3072),
        Nest(("c",), (10, 15_360), (2, 33_792), 3072),
        Nest(("ssm",), (33, 0), (2, 1_085_440), 1_048_576),
        Nest(("x",), (14, 0), (3, 12_288), 12_288),
        Nest(("b",), (14, 12_288), (3, 27_648), 3072),
        Nest(("c",), (14, 15_360), (3, 33_792), 3072),
        Nest(("ssm",), (37, 0), (3, 1_085_440), 1_048_576),
        Nest(("x",), (18, 0), (4, 12_288), 12_288),
        Nest(("b",), (18, 12_288), (4, 27_648), 3072),
        Nest(("c",), (18, 15_360), (4, 33_792), 3072),
        Nest(("ssm",), (41, 0), (4, 1_085_440), 1_048_576),
        Nest(("x",), (22, 0), (5, 12_288), 12_288),
        Nest(("b",), (22, 12_288), (5, 27_648), 3072),
        Nest(("c",), (22, 15_360), (5, 33_792), 3072),
        Nest(("ssm",), (45, 0), (5, 1_085_440), 1_048_576),
    ),
)
MAMBA_TABLE_6 = Table(
    page=(
        Nest(("x",), (3, 0), (0, 0), 12_288),
        Nest(("b",), (3, 12_288), (0, 24_576), 3072),
        Nest(("c",), (3, 15_360), (0, 30_720), 3072),
        Nest(("ssm",), (26, 0), (0, 36_864), 1_048_576),
        Nest(("x",), (7, 0), (1, 0), 12_288),
        Nest(("b",), (7, 12_288), (1, 24_576), 3072),
        Nest(("c",), (7, 15_360), (1, 30_720), 3072),
        Nest(("ssm",), (30, 0), (1, 36_864), 1_048_576),
        Nest(("x",), (11, 0), (2, 0), 12_288),
        Nest(("b",), (11, 12_288), (2, 24_576), 3072),
        Nest(("c",), (11, 15_360), (2, 30_720), 3072),
        Nest(("ssm",), (34, 0), (2, 36_864), 1_048_576),
        Nest(("x",), (15, 0), (3, 0), 12_288),
        Nest(("b",), (15, 12_288), (3, 24_576), 3072),
        Nest(("c",), (15, 15_360), (3, 30_720), 3072),
        Nest(("ssm",), (38, 0), (3, 36_864), 1_048_576),
        Nest(("x",), (19, 0), (4, 0), 12_288),
        Nest(("b",), (19, 12_288), (4, 24_576), 3072),
        Nest(("c",), (19, 15_360), (4, 30_720), 3072),
        Nest(("ssm",), (42, 0), (4, 36_864), 1_048_576),
    ),
)
MAMBA_TABLE_7 = Table(
    page=(
        Nest(("x",), (3, 0), (0, 12_288), 12_288),
        Nest(("b",), (3, 12_288), (0, 27_648), 3072),
        Nest(("c",), (3, 15_360), (0, 33_792), 3072),
        Nest(("ssm",), (26, 0), (0, 1_085_440), 1_048_576),
        Nest(("x",), (7, 0), (1, 12_288), 12_288),
        Nest(("b",), (7, 12_288), (1, 27_648), 3072),
        Nest(("c",), (7, 15_360), (1, 33_792), 3072),
        Nest(("ssm",), (30, 0), (1, 1_085_440), 1_048_576),
        Nest(("x",), (11, 0), (2, 12_288), 12_288),
        Nest(("b",), (11, 12_288), (2, 27_648), 3072),
        Nest(("c",), (11, 15_360), (2, 33_792), 3072),
        Nest(("ssm",), (34, 0), (2, 1_085_440), 1_048_576),
        Nest(("x",), (15, 0), (3, 12_288), 12_288),
        Nest(("b",), (15, 12_288), (3, 27_648), 3072),
        Nest(("c",), (15, 15_360), (3, 33_792), 3072),
        Nest(("ssm",), (38, 0), (3, 1_085_440), 1_048_576),
        Nest(("x",), (19, 0), (4, 12_288), 12_288),
        Nest(("b",), (19, 12_288), (4, 27_648), 3072),
        Nest(("c",), (19, 15_360), (4, 33_792), 3072),
        Nest(("ssm",), (42, 0), (4, 1_085_440), 1_048_576),
    ),
)


# Which blocks of a request meet. p_shard and d_shard are the two workers' turns where tokens are shared out, else 0.
def attention(first: int, end: int, prefill: Blocks, decode: Blocks, p_shard: int, d_shard: int) -> Runs:
    """Runs of tokens [first, end) that lie in one kernel block on both sides.

    A prefill block is one kernel block of 16 tokens,
    a decode block one kernel block of 2096 tokens.
    """
    token, count = cuts(first, end, 16)
    p_block, p_token = divmod(token, 16)
    p_block = prefill.at(p_block)
    d_block, d_token = divmod(token, 2096)
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
        Read(0, "attention", "attention", (5, 12, 19, 26, 33, 42), ATTENTION_HOLDS_0, ATTENTION_TABLE_0),
        Read(1, "attention", "attention", (5, 12, 19, 26, 33, 42), ATTENTION_HOLDS_1, ATTENTION_TABLE_1),
        Read(0, "mamba>mamba.0", "mamba", (0, 9, 18, 28, 37, 46), MAMBA_HOLDS_0, MAMBA_TABLE_0, (12, 6)),
        Read(1, "mamba>mamba.0", "mamba", (0, 9, 18, 28, 37, 46), MAMBA_HOLDS_1, MAMBA_TABLE_1, (12, 6)),
        Read(0, "mamba>mamba.1", "mamba", (2, 11, 21, 30, 39, 48), MAMBA_HOLDS_0, MAMBA_TABLE_2, (12, 12)),
        Read(1, "mamba>mamba.1", "mamba", (2, 11, 21, 30, 39, 48), MAMBA_HOLDS_1, MAMBA_TABLE_3, (12, 12)),
        Read(0, "mamba>mamba.2", "mamba", (4, 14, 23, 32, 41, 50), MAMBA_HOLDS_0, MAMBA_TABLE_4, (12, 18)),
        Read(1, "mamba>mamba.2", "mamba", (4, 14, 23, 32, 41, 50), MAMBA_HOLDS_1, MAMBA_TABLE_5, (12, 18)),
        Read(0, "mamba>mamba.3", "mamba", (7, 16, 25, 35, 44), MAMBA_HOLDS_0, MAMBA_TABLE_6, (12, 24)),
        Read(1, "mamba>mamba.3", "mamba", (7, 16, 25, 35, 44), MAMBA_HOLDS_1, MAMBA_TABLE_7, (12, 24)),
    ),
)

# The prefill workers that each decode worker tells that it is done, though it reads nothing from them.
NOTIFY: tuple[tuple[int, ...], ...] = ((),)

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
