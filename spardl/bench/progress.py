"""How far a run is, on stderr."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from spardl.bench.table import make_console

Tell = Callable[[str, int, int | None], object]  # what, done, of (None if nobody knows)
_EVERY = 2.0  # seconds between lines where there is no terminal


@contextmanager
def shown(visible: bool = True) -> Iterator[Tell]:
    """Yields ``tell(what, done, total)``, which draws a bar, or where there is no terminal writes a line now and then.

    It draws when it is told, never by itself: a refreshing thread would take its share of the time measured.
    """
    console = make_console(stderr=True)
    if not visible:
        yield lambda what, done, total: None
    elif console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, auto_refresh=False) as bars:
            task = bars.add_task("", total=None)
            yield lambda what, done, total: bars.update(
                task, description=what, completed=done, total=total, refresh=True
            )
    else:
        yield _lines(console)


def _lines(console: Console) -> Tell:
    """Under mpiexec stderr is a pipe, and a bar would be seen when all is over."""
    last = time.monotonic()

    def tell(what: str, done: int, total: int | None) -> None:
        nonlocal last
        if time.monotonic() - last >= _EVERY:
            last = time.monotonic()
            console.print(what if total is None else f"{what}: {done} of {total}", highlight=False)

    return tell
