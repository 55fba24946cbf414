from kvplan.compiler.emit.header import workers
from kvplan.compiler.emit.page_drawing import BAR, bar, legend, pieces
from kvplan.plan.types import View

PLANAR = (
    View("k", "bf16", 0, (("token", 16, 256), ("dim", 128, 2))),
    View("v", "bf16", 4096, (("token", 16, 256), ("dim", 128, 2))),
)
RECORD = (
    View("data", "fp8", 0, (("token", 4, 132), ("dim", 128, 1))),
    View("scale", "f32", 128, (("token", 4, 132),)),
)


def test_tensors_one_after_the_other_are_pieces_of_their_own():
    body = pieces(PLANAR, 8192)
    assert legend(body) == ["k 4,096 B (16 token x 128 dim x bf16)", "v 4,096 B (16 token x 128 dim x bf16)"]
    assert bar(body, 8192, 8192) == "|k".ljust(BAR // 2) + "|v".ljust(BAR // 2) + "|"


def test_tensors_inside_one_loop_share_it():
    body = pieces(RECORD, 528)
    assert legend(body) == ["4 tokens, 132 B each: data 128 B (128 dim x fp8) | scale 4 B (f32)"]
    assert bar(body, 528, 528).split() == ["|token", "0", "|token", "1", "|token", "2", "|token", "3", "|"]


def test_padding_is_drawn():
    assert legend(pieces(RECORD, 600))[-1] == "padding 72 B"
    inside = (View("a", "u8", 0, (("token", 2, 64),)), View("b", "u8", 8, (("token", 2, 64),)))
    assert legend(pieces(inside, 128)) == ["2 tokens, 64 B each: a 1 B (u8) | padding 7 B | b 1 B (u8) | padding 55 B"]


def test_small_pieces_are_seen():
    tiny = (View("x", "u8", 0, ()), View("y", "u8", 1, ()), View("z", "u8", 2, (("n", 9998, 1),)))
    assert bar(pieces(tiny, 10_000), 10_000, 10_000).startswith("|x|y|z ")


def test_bars_are_to_scale():
    assert len(bar(pieces(PLANAR, 8192), 8192, 16_384)) == BAR // 2 + 1


def test_workers_in_words():
    assert workers((3,)) == "decode worker 3"
    assert workers((0, 1, 2, 5, 7, 8)) == "decode workers 0-2, 5, 7-8"
