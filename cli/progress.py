"""Progress bars of commands that take long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Timer
from typing import TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kvplan.cli import terminal

T = TypeVar("T")
PATIENCE_S = 2.0


def watched(items: Sequence[T], say: Callable[[T], str] = str) -> Iterator[T]:
    """Each item, with a progress bar."""
    with progress() as bar:
        yield from stepped(bar, items, say)


@contextmanager
def progress() -> Iterator[Progress]:
    """A progress bar on a terminal's stderr, shown once a command has taken longer than PATIENCE_S."""
    console = terminal.console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    shown = Timer(PATIENCE_S, bar.start)
    shown.daemon = True
    if console.is_terminal:
        shown.start()
    try:
        yield bar
    finally:
        shown.cancel()
        if console.is_terminal:
            shown.join()
        bar.stop()


def stepped(bar: Progress, items: Sequence[T], say: Callable[[T], str] = str) -> Iterator[T]:
    """Each item, as a step on a new line of the progress bar; the line is removed after the last item."""
    task = bar.add_task("", total=len(items))
    for item in items:
        bar.update(task, description=say(item))
        yield item
        bar.advance(task)
    bar.remove_task(task)
