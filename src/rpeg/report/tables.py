"""Tables of text for a terminal, which also read well in a file."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    marked: int | None = None,
    ends: Container[int] = (),
) -> Table:
    """A table; columns whose name begins with ``>`` are aligned right. Row `marked` is bold; `ends` end a section.

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
            overflow="ellipsis" if numeric else "fold",
        )
    for i, row in enumerate(rows):
        found.add_row(*map(_cell, row), style="bold" if i == marked else None, end_section=i in ends)
    return found


def fitting(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[Table]:
    """A wide table as several, each with the first column: none is wider than `width` if one more column fits in it.

    A row of which a table has no cell is left out of it.
    """
    needs = [
        max(map(len, (name.removeprefix(">"), *cells))) for name, *cells in zip(columns, *rows, strict=True)
    ]
    blocks: list[list[int]] = []
    for i, need in enumerate(needs[1:], 1):
        taken = needs[0] + sum(_GAP + needs[j] for j in blocks[-1]) if blocks else width
        if taken + _GAP + need > width:
            blocks.append([])
        blocks[-1].append(i)
    for block in blocks:
        held = (row for row in rows if any(row[i] for i in block))
        yield table([columns[i] for i in (0, *block)], ([row[i] for i in (0, *block)] for row in held))


_GAP = 2
"""Characters between two columns."""


def _cell(text: str) -> Text | Padding:
    """As it is; folded lines are indented as the first."""
    indent = len(text) - len(text.lstrip(" "))
    return Padding(Text(text[indent:]), (0, 0, 0, indent)) if indent else Text(text)


def facts(rows: Iterable[tuple[str, Iterable[str]]]) -> Table:
    """Lines of text under a word each; long lines fold beside the word. A word without lines is left out."""
    found = Table.grid(padding=(0, 2))
    found.add_column(no_wrap=True)
    found.add_column()
    for word, lines in rows:
        for i, line in enumerate(lines):
            found.add_row(Text("" if i else word, style="bold"), Text(line))
    return found


def percent(share: float) -> str:
    """0.034 → ``3 %``."""
    return f"{share:.0%}".replace("%", " %")
