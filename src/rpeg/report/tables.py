"""Tables of text for a terminal, which also read well in a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table
from rich.text import Text


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], marked: int | None = None) -> Table:
    """A table whose first column is text and whose others are aligned right; row `marked` is bold.

    Cells are shown as they are: what looks like markup in them is not.
    """
    found = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for i, name in enumerate(columns):
        numeric = name.startswith(">")
        found.add_column(
            escape(name.removeprefix(">")),
            justify="right" if numeric else "left",
            no_wrap=numeric,
            min_width=len(name) if i == 0 else None,
            overflow="fold" if i == 0 else "ellipsis",
        )
    for i, row in enumerate(rows):
        found.add_row(*(Text(cell) for cell in row), style="bold" if i == marked else None)
    return found


def percent(share: float) -> str:
    """0.034 → ``3 %``."""
    return f"{share:.0%}".replace("%", " %")
