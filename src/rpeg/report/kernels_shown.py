"""Which kernels and collectives were measured, and on what, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from rpeg.cluster import DeviceKind, device_kinds, kind_named
from rpeg.cost.kernels.sources import source_of
from rpeg.cost.kernels.table import Table
from rpeg.cost.network.measured import collectives_of
from rpeg.units import count_text

_NOTHING = "nothing was measured: times are rooflines of its advertised peaks"


def names() -> tuple[str, ...]:
    """All kinds of devices: of each it is known what its estimates rest on."""
    return device_kinds()


def overview(name: str) -> str:
    """One line."""
    return f"{name:18} {basis(name)}"


def basis(name: str) -> str:
    """What the times of a kind's kernels rest on."""
    source = source_of(kind_named(name))
    if not source.tables:
        return _NOTHING
    return f"{_count(source.own, len(source.tables))}: {source.what}"


def lines(name: str) -> Iterator[str]:
    """A line for each kernel of each library, with the shapes that were measured, and for each collective."""
    kind = kind_named(name)
    source = source_of(kind)
    yield kind.name
    yield f"  {basis(kind.name)}"
    groups: dict[tuple[str, str, str], list[Table]] = {}
    for (op, dtype, library, _), table in sorted(source.tables.items()):
        groups.setdefault((op, dtype, library), []).append(table)
    for (op, dtype, library), tables in groups.items():
        yield f"  {op} {dtype}, {library or 'any library'}: {_shapes(tables)}"
    yield from _collectives(kind)


def _count(own: bool, tables: int) -> str:
    return (
        f"{tables} tables of kernels measured on it"
        if own
        else f"none measured on it; {tables} tables stand in"
    )


def _shapes(tables: list[Table]) -> str:
    first = tables[0]
    axes = ", ".join(
        f"{axis} {count_text(points[0])} to {count_text(points[-1])}"
        for axis, points in zip(first.axes, first.points, strict=True)
    )
    sizes = sorted(table.head_dim for table in tables if table.head_dim)
    return axes + (f", head_dim {', '.join(map(str, sizes))}" if sizes else "")


def _collectives(kind: DeviceKind) -> Iterator[str]:
    name, found = collectives_of(kind)
    where = "measured on it" if name == kind.name else f"measured on {name}, scaled to its links"
    for (library, op), most in found.items():
        yield f"  {op}, {library}, within a node: up to {most} ranks {where}"
    if not found:
        yield "  collectives: none was measured, times are those of its links"
