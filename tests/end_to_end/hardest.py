"""The cases that are hardest to get right, each for a reason of its own."""

from __future__ import annotations

from tests.end_to_end.dimensions import Case, plain

HARDEST: dict[str, Case] = {
    "unlike tiles of tokens, turns on one side": plain(
        1, heads="5", prefill_order="token tiles", decode_order="token tiles", prefill_mesh="6 by uneven turns",
        decode_mesh="2", prefill_block="16x3", decode_block="32", prefill_state="taps first",
    ),
    "uneven turns on both sides": plain(
        2, kind="whole", prefill_mesh="4 of 4 by uneven turns", decode_mesh="6 by uneven turns", prefill_block="48",
        decode_block="32", decode_order="LBNHC", needs="window and sinks",
    ),
    "turns of single rows, rows of four tokens": plain(
        3, kind="rows of 4", prefill_mesh="2 by rows", decode_mesh="3", decode_order="BHLNC", prefill_block="4x25",
        decode_block="4x13", decode_padding="row",
    ),
    "rows of unlike sizes beside each other": plain(
        4, kind="unlike rows", heads="2", second="beside", prefill_mesh="3 by several blocks", decode_mesh="4",
        prefill_order="BLNHC", decode_order="token tiles", prefill_groups="together", needs="chunk and sinks",
    ),
    "heads first against tokens first, five heads over three and four workers": plain(
        5, heads="5", prefill_mesh="3", decode_mesh="4", prefill_order="LHBNC", decode_order="LBNHC",
        prefill_padding="stride", decode_padding="page",
    ),
    "copies that go round, listed shares with empty ones": plain(
        6, heads="2", prefill_mesh="6", decode_mesh="4", prefill_copies="round_robin", decode_shares="listed",
        elect="spread", prefill_state="drafts", decode_state="taps first",
    ),
    "several groups over each other in one memory": plain(
        7, second="beside", prefill_padding="overlaid", decode_padding="overlaid", prefill_groups="halves",
        decode_groups="together", prefill_mesh="2", decode_mesh="3", prefill_block="16x3", decode_block="48",
    ),
    "planes fused in a row against planes inside a block": plain(
        8, heads="6", second="beside", prefill_padding="fused row", decode_padding="fused row",
        prefill_groups="together", decode_order="BLHNC", prefill_mesh="3", decode_mesh="2", state_groups="4",
    ),
    "records with scales apart, against records in one place": plain(
        9, kind="records", heads="6", prefill_order="planes", decode_order="BLNHC", prefill_mesh="4",
        decode_mesh="3", prefill_padding="row", decode_block="4x25", optional="prefill",
    ),
    "a cache with a length of its own, stages cut unlike": plain(
        10, second="own length", prefill_stages="cut", decode_stages="cut", prefill_mesh="2", decode_mesh="1",
        prefill_order="apart", decode_order="parts", prefill_block="4x13", decode_block="16x3", needs="window",
    ),
    "layers inside the block, cut into stages on the other side": plain(
        11, heads="5", prefill_order="BHLNC", decode_stages="cut", decode_groups="halves", prefill_mesh="4 by blocks",
        decode_mesh="2", decode_ids="shared", decode_state="parts", state_groups="4", needs="chunk",
    ),
    "equal sides, planes fused in a row, blocks side by side": plain(
        12, second="beside", prefill_mesh="2", decode_mesh="2", prefill_padding="fused row",
        decode_padding="fused row", prefill_groups="together", decode_groups="together", optional="decode",
    ),
    "a ring in blocks that workers take turns of elsewhere, rows of unlike sizes": plain(
        13, kind="unlike rows", second="beside", needs="window", prefill_mesh="6 by uneven turns", decode_mesh="3",
        decode_ring="tight", prefill_block="16x3", decode_block="4x13", decode_groups="together", elect="spread",
    ),
    "rings of unlike sizes, turns of everything else, tiles of tokens": plain(
        14, kind="rows of 4", needs="chunk", prefill_mesh="4 by blocks", decode_mesh="2 by rows", prefill_ring="spare",
        decode_ring="tight", prefill_order="token tiles", decode_order="BHLNC", prefill_block="48", decode_block="16",
    ),
}  # fmt: skip
