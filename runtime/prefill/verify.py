"""Verification: checksums that a decode worker sends with its Done, compared with those of what is held here."""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.plan import request as requests
from kvplan.plan.block_tables import Tables
from kvplan.plan.errors import BadRequestError, KvplanError
from kvplan.plan.request import Request
from kvplan.runtime.checksum.checksum import Sample, check, of_read
from kvplan.runtime.control.messages import Done, unpack
from kvplan.runtime.errors import cause_text
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.prefill.clients import DecodeClient


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of one comparison: `error` is None where all is alike."""

    client: DecodeClient
    done: Done
    error: KvplanError | None = None


def compare(pool: Pool, client: DecodeClient, done: Done, named: Tables) -> Comparison:
    """Sum what a decode worker read from here, and compare. `named` tables count before those that it names."""
    try:
        _check(pool, client, done, named)
    except KvplanError as error:
        return Comparison(client, done, error)
    except Exception as error:
        return Comparison(client, done, BadRequestError(f"the checksums cannot be compared: {cause_text(error)}"))
    return Comparison(client, done)


def _check(pool: Pool, client: DecodeClient, done: Done, named: Tables) -> None:
    """Raises ChecksumError with what differs first, or what is wrong with the message."""
    if done.asked is None or done.sample is None or done.asked.request != done.request:
        raise BadRequestError("checksums came without the request that they are of")
    plan, asked = client.plan, done.asked
    tables = {**unpack(asked.prefill), **named}
    request = Request(asked.request, asked.tokens, tables, unpack(asked.decode), asked.lengths)
    # It may have been fed in chunks, which name no block of a group of which nothing is needed.
    request = requests.check(plan, request, pool.blocks, {}, fed=True)
    local = of_read(plan, pool.worker, client.claimant.worker, "prefill", pool, request, Sample(*done.sample))
    check({(cache, layer): value for cache, layer, value in done.sums}, local)
