"""Sums over a worker's cache memory, on the host with numpy or on a device with torch. Both give the same numbers.

An element of even size consists of words of 16 bits, any other of words of 8, little endian and unsigned. The sum over
rows r and words w of key[r] * table[w] * word[r, w] is modulo 2^64, because signed 64 bit arithmetic wraps. Each word
is read once and multiplied once, by its row's key; the sums of all rows are then multiplied by the table.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kvplan.plan.errors import BadRequestError
from kvplan.plan.types import Ints
from kvplan.runtime.checksum.elements import IndexDigit
from kvplan.runtime.errors import RegisterError
from kvplan.runtime.memory.device import enter, tensor_at
from kvplan.runtime.memory.register import Pool

# Bytes that are gathered at a time: they fit a core's cache on the host, and keep a device busy.
HOST, DEVICE = 1 << 17, 1 << 26


@dataclass(frozen=True, slots=True)
class TensorWords:
    """The words of a tensor in the pages of one plane: `offset` bytes from the page, then by `rows` and `digits`.

    An element has `count` words of `width` bytes.
    """

    plane: int
    offset: int
    rows: tuple[IndexDigit, ...]
    digits: tuple[IndexDigit, ...]
    count: int
    width: int

    @property
    def inner(self) -> tuple[IndexDigit, ...]:
        return (*self.digits, IndexDigit("", 1, self.count, self.width))

    @property
    def start(self) -> int:
        """The bytes from the page to the first word."""
        return self.offset + sum(digit.at * digit.step for digit in self.digits)


def words_of(size: int) -> tuple[int, int]:
    """Return how many words an element of `size` bytes has, and their width in bytes."""
    return (size // 2, 2) if size % 2 == 0 else (size, 1)


def total(pool: Pool, words: TensorWords, rows: tuple[Ints, Ints, Ints], table: Ints) -> int:
    """Return the sum over rows (kernel block, row in it, key) and words, as a signed 64 bit number.

    Raises BadRequestError for a block that the pool does not have.
    """
    block, second = rows[0], pool.further.get(words.plane)
    first = int(pool.geometry.count[words.plane])
    blocks = first if second is None else first + int(pool.geometry.count[second])
    if block.size and (block.min() < 0 or block.max() >= blocks):
        raise BadRequestError(f"kernel blocks from {block.min()} to {block.max()}, the pool has {blocks} from 0")
    if second is None:
        return _total(pool, words, rows, table)
    here, there = block < first, block >= first
    found = _total(pool, words, (block[here], rows[1][here], rows[2][here]), table)
    beyond = (block[there] - first, rows[1][there], rows[2][there])
    return found + _total(pool, replace(words, plane=second), beyond, table)


def _total(pool: Pool, words: TensorWords, rows: tuple[Ints, Ints, Ints], table: Ints) -> int:
    """Return the sum of rows that all lie in one extent of the plane, `words.plane`."""
    if pool.geometry.mem_types[pool.geometry.region[words.plane]] == "DRAM":
        return on_host(_host(pool, words.plane), _stride(pool, words), words, rows, table)
    return on_device(_device(pool, words.plane), _stride(pool, words), words, rows, table)


def on_host(
    memory: Any, stride: tuple[int, int], words: TensorWords, rows: tuple[Ints, Ints, Ints], table: Ints
) -> int:
    """Return the sum over a plane's bytes, a numpy array."""
    digits = (*words.rows, *words.inner)
    shape = (stride[0], *(digit.count for digit in digits))
    steps = (stride[1], *(digit.step for digit in digits))
    page = np.ndarray(shape, f"<u{words.width}", memory, words.start, steps)
    sums = np.zeros(table.size, np.int64)
    for block, row, key in _batches(rows, HOST // (table.size * words.width)):
        part = page[(block, *_row_index(words, row))].reshape(len(block), -1)
        sums += np.einsum("r,rw->w", key, part)
    return int((sums * table).sum())


def on_device(
    memory: Any, stride: tuple[int, int], words: TensorWords, rows: tuple[Ints, Ints, Ints], table: Ints
) -> int:
    """Return the sum over a plane's bytes, a torch tensor of uint8 on any device. Only the sum goes to the host."""
    import torch

    if words.width == 2 and not _aligned(memory, stride, words):
        words, table = _as_bytes(words, table)
    digits, width = (*words.rows, *words.inner), words.width
    typed = memory.view(torch.int16) if width == 2 else memory
    shape = (stride[0], *(digit.count for digit in digits))
    steps = (stride[1] // width, *(digit.step // width for digit in digits))
    page = typed.as_strided(shape, steps, typed.storage_offset() + words.start // width)
    sums = torch.zeros(table.size, dtype=torch.int64, device=memory.device)
    for block, row, key in _batches(rows, DEVICE // (table.size * 8)):
        at = tuple(torch.from_numpy(index).to(memory.device) for index in (block, *_row_index(words, row)))
        part = page[at].reshape(len(block), -1).to(torch.int64) & (0xFFFF if width == 2 else 0xFF)
        sums += (torch.from_numpy(key).to(memory.device)[:, None] * part).sum(0)
    return int((sums * torch.from_numpy(table).to(memory.device)).sum())


def _batches(rows: tuple[Ints, Ints, Ints], size: int) -> Iterator[tuple[Ints, Ints, Ints]]:
    step = max(1, size)
    for at in range(0, len(rows[0]), step):
        block, row, key = (np.ascontiguousarray(column[at : at + step]) for column in rows)
        yield block, row, key


def _row_index(words: TensorWords, row: Ints) -> tuple[Ints, ...]:
    return tuple(row // digit.weight % digit.count for digit in words.rows)


def _stride(pool: Pool, words: TensorWords) -> tuple[int, int]:
    """Return how many kernel blocks a plane has, and how many bytes they are apart."""
    return int(pool.geometry.count[words.plane]), int(pool.geometry.stride[words.plane])


def _extent(pool: Pool, plane: int) -> tuple[int, int]:
    base = int(pool.geometry.base[plane])
    return base, int(pool.geometry.end[plane]) - base


def _host(pool: Pool, plane: int) -> Any:
    base, size = _extent(pool, plane)
    return (ctypes.c_uint8 * size).from_address(base)


def _device(pool: Pool, plane: int) -> Any:
    enter(pool.geometry)
    base, size = _extent(pool, plane)
    try:
        return tensor_at(base, (size,), (1,), "|u1", int(pool.geometry.device[plane]))
    except ImportError as error:
        raise RegisterError("checksums of device memory are made with torch, which is not installed") from error


def _aligned(memory: Any, stride: tuple[int, int], words: TensorWords) -> bool:
    steps = (digit.step for digit in (*words.rows, *words.inner))
    places = (memory.storage_offset(), memory.data_ptr(), memory.numel(), stride[1], words.start, *steps)
    return all(place % 2 == 0 for place in places)


def _as_bytes(words: TensorWords, table: Ints) -> tuple[TensorWords, Ints]:
    """Return words of 16 bits as two of 8 bits: a word is its first byte plus 256 times its second."""
    halves = np.array([1, 256], np.int64)
    return (
        TensorWords(words.plane, words.offset, words.rows, words.digits, 2 * words.count, 1),
        (table[:, None] * halves).reshape(-1),
    )
