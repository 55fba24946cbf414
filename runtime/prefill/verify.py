"""Verification: checksums that a decode worker sends with its Done, compared with those of what is held here."""

from __future__ import annotations

from kvplan.plan import request as requests
from kvplan.plan.block_tables import Tables
from kvplan.plan.errors import BadRequestError, KvplanError
from kvplan.plan.request import Request
from kvplan.runtime.checksum.checksum import Sample, check, of_read
from kvplan.runtime.control.messages import Done, unpack
from kvplan.runtime.errors import cause_text
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.protocol.effects import Compare


def compare(pool: Pool, asked: Compare) -> tuple[Compare, KvplanError | None]:
    """Sum what a decode worker read from here, and compare. What was asked, and the error, None if all is the same."""
    try:
        _check(pool, asked, asked.done)
    except KvplanError as error:
        return asked, error
    except Exception as error:
        return asked, BadRequestError(f"the checksums cannot be compared: {cause_text(error)}")
    return asked, None


def _check(pool: Pool, compare: Compare, done: Done) -> None:
    """Raises ChecksumError with what differs first, or what is wrong with the message."""
    if done.asked is None or done.sample is None or done.asked.request != done.request:
        raise BadRequestError("checksums came without the request that they are of")
    plan, asked = compare.reader.plan, done.asked
    tables: Tables = {**unpack(asked.prefill), **compare.named}
    request = Request(asked.request, asked.tokens, tables, unpack(asked.decode), asked.lengths)
    # It may have been fed in chunks, which name no block of a group of which nothing is needed.
    request = requests.check(plan, request, pool.blocks, {}, fed=True)
    local = of_read(plan, pool.worker, compare.reader.claimant.worker, "prefill", pool, request, Sample(*done.sample))
    check({(cache, layer): value for cache, layer, value in done.sums}, local)
