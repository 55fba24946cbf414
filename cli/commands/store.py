"""kvplan store: list a store, verify it, and remove old objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvplan.cli.errors import WRONG
from kvplan.cli.options import format_option
from kvplan.cli.terminal import say
from kvplan.compiler.words import many

if TYPE_CHECKING:
    from kvplan.store.index import StoredObject
    from kvplan.store.store import Store

UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
place = click.argument("place", metavar="DIR|URL")
index = click.option(
    "--index",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The index on this machine of a store at a URL. Without it all objects are read.",
)


def in_bytes(text: str) -> int:
    """500MB as bytes. Raises BadParameter."""
    return _amount_of(text.removesuffix("B"), UNITS, f"{text!r} is no size: write 500MB or 2TB")


def in_seconds(text: str) -> int:
    """12h as seconds. Raises BadParameter."""
    return _amount_of(text, SECONDS, f"{text!r} is no age: write 12h or 30d")


def _amount_of(text: str, units: Mapping[str, int], otherwise: str) -> int:
    number = re.fullmatch(r"(\d+) ?([a-zA-Z]*)", text)
    if number is None or number[2] not in units:
        raise click.BadParameter(otherwise)
    return int(number[1]) * units[number[2]]


@click.group("store")
def command() -> None:
    """Look at stored caches, check them, and remove what is old.

    DIR is the folder of a store, as `Store.open` takes it, a URL one of `Store.at`: s3://bucket/folder.
    """


@command.command("ls")
@place
@index
@format_option("text", "json")
def ls(place: str, index: Path | None, form: str) -> None:
    """List how much of each cache a store has; --format json lists every object."""
    with _opened(place, index) as store:
        # An index in memory begins empty: the objects have to be looked for.
        entries = store.take_stock() if store.forgets else store.entries()
    if form == "json":
        click.echo(json.dumps([_row(entry) for entry in entries], indent=2))
        return
    caches: dict[str, list[int]] = {}
    for entry in entries:
        caches.setdefault(entry.name.rpartition("/")[2].partition(".")[2], []).append(entry.size)
    click.echo(_amount([entry.size for entry in entries]))
    width = max(map(len, caches), default=0)
    for name, sizes in sorted(caches.items()):
        click.echo(f"{name:{width}}  {_amount(sizes).replace(', ', '  ')}")


@command.command("verify")
@place
@index
@click.option("--remove", is_flag=True, help="Remove what is wrong.")
@format_option("text", "json")
def verify(place: str, index: Path | None, remove: bool, form: str) -> None:
    """Read every object and compare it with its checksums; exit code 1 where one is wrong."""
    with _opened(place, index) as store:
        every = list(store.verify())
        wrong = [(name, error) for name, error in every if error is not None]
        if remove:
            store.remove([name for name, _ in wrong])
    if form == "json":
        faults = [{"name": name, "code": error.code, "message": str(error)} for name, error in wrong]
        click.echo(json.dumps({"objects": len(every), "wrong": faults}, indent=2))
    else:
        for _, error in wrong:
            say(f"error[{error.code}]: {error}")
        click.echo(f"{many(len(every), 'object')}: {f'{len(wrong)} wrong' if wrong else 'all as they were written'}")
    if wrong:
        click.get_current_context().exit(WRONG)


@command.command("gc")
@place
@index
@click.option("--max-bytes", "most", type=in_bytes, metavar="SIZE", help="Keep at most that many: what was used last.")
@click.option("--age", type=in_seconds, metavar="AGE", help="Remove what was not used for so long: 12h, 30d.")
def collect(place: str, index: Path | None, most: int | None, age: int | None) -> None:
    """Remove what is old or too much, and what a process that was killed left behind."""
    with _opened(place, index) as store:
        done = store.collect(most, age)
    removed, kept = _sized(done.removed, done.removed_bytes), _sized(done.kept, done.kept_bytes)
    left_behind = f"; {done.unfinished} unfinished files" if done.unfinished else ""
    click.echo(f"removed {removed}{left_behind}; {kept} left")


def _row(entry: StoredObject) -> dict[str, object]:
    times = {"created": entry.created, "used": entry.used}
    return {"name": entry.name, "bytes": entry.size, "tokens": entry.end, **times}


def _opened(place: str, index: Path | None) -> Store:
    """The store at a place. Raises UsageError if there is none, because reading creates no store; StoreFileError."""
    from kvplan.store.store import OBJECTS, Store

    if "://" in place:
        return Store.at(place, index or ":memory:")
    if index is not None:
        raise click.UsageError("a folder has its index: --index is for URLs")
    if not (Path(place) / OBJECTS).is_dir():
        raise click.UsageError(f"{place} is no store: it has no folder {OBJECTS!r}")
    return Store.open(place)


def _amount(sizes: Iterable[int]) -> str:
    every = list(sizes)
    return _sized(len(every), sum(every))


def _sized(count: int, size: int) -> str:
    unit = next((unit for unit, one in reversed(UNITS.items()) if size >= one), "")
    text = f"{size} B" if not unit else f"{size / UNITS[unit]:.1f} {unit}B"
    return f"{many(count, 'object')}, {text}"
