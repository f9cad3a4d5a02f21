"""Tables for people."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TextIO

from rich.console import Console
from rich.table import Table

Row = dict[str, Any]
_WIDTH = 200


class Column(NamedTuple):
    """A table column: its title, the row's entry, and how to write that; missing entries stay blank."""

    title: str
    key: str
    spec: str = ""


def print_table(
    title: str, columns: Sequence[Column], rows: Sequence[Row], caption: str = "", file: TextIO | None = None
) -> None:
    """Columns with a format spec hold numbers and are aligned to the right; those that are blank in all rows go.

    To ``file``, or to the terminal.
    """
    shown = [column for column in columns if any(row.get(column.key) is not None for row in rows)]
    table = Table()
    for column in shown:
        table.add_column(column.title, justify="right" if column.spec else "left")
    for row in rows:
        table.add_row(*(_cell(row.get(column.key), column.spec) for column in shown))
    console = make_console() if file is None else Console(file=file, width=_WIDTH)
    console.print(title, highlight=False)  # not the table's own title, which would be wrapped to the table's width
    console.print(table)
    console.print(caption, highlight=False)


def _cell(entry: Any, spec: str) -> str:
    return "" if entry is None else f"{entry:{spec}}"


def make_console(stderr: bool = False) -> Console:
    console = Console(stderr=stderr)
    # Into a file, or through mpiexec, rich would assume 80 columns and break every line.
    return console if console.is_terminal else Console(stderr=stderr, width=_WIDTH)
