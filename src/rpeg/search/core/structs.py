"""What the core is given, as C sees it: pointers into numpy arrays, which are kept alive beside them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rpeg.search.core.layout import Rows, Shape, Site, State
from rpeg.search.core.library import library

_Number, _Real, _Pointer = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p


class Struct(ctypes.Structure):
    """With the arrays that its pointers lead to."""

    kept: tuple[npt.NDArray[Any], ...]


def _struct(name: str, **types: str) -> type[Struct]:
    """types: names of fields by type, separated by blanks, in order."""
    of = {"numbers": _Number, "reals": _Real, "pointers": _Pointer}
    fields = [(field, of[kind]) for kind, names in types.items() for field in names.split()]
    return type(name, (Struct,), {"_fields_": fields})


_Shape = _struct(
    "_Shape",
    numbers="stages arc_count edge_count base_count data_count items most_arcs",
    pointers="kind first parts arcs model feed edges rests profile bases data",
)
_Rows = _struct(
    "_Rows",
    numbers="kinds most_units aligns hash_size",
    pointers="where layout holds core levels moved least work held host engine seconds",
)
_Site = _struct(
    "_Site", numbers="kinds draws", reals="dispatch", pointers="capacity share host units unit width"
)
_State = _struct("_State", numbers="islands stages", pointers="size kind mask option offload shift")


def _made(kind: type[Struct], numbers: tuple[float, ...], *arrays: npt.NDArray[Any]) -> Struct:
    for array in arrays:
        if not array.flags.c_contiguous or array.dtype not in (np.int64, np.float64):
            raise TypeError(f"the core takes contiguous 64-bit arrays, not {array.dtype}")
    made = kind(*numbers, *(array.ctypes.data for array in arrays))
    made.kept = arrays
    return made


def shape_struct(s: Shape, islands: int) -> Struct:
    """islands: most that a state of it has."""
    stages, edges = len(s.kind), len(s.edges)
    items = int(s.parts.sum()) + edges + 2 * stages
    most = int(s.parts.max(initial=1))
    arcs = len(s.arcs) + stages + edges * (2 * most + 2) + 2 * stages * (items + 2) + items * (islands + 1)
    counts = (stages, len(s.arcs), edges, len(s.bases), len(s.data), items, arcs)
    return _made(_Shape, counts, *s)


def rows_struct(r: Rows) -> Struct:
    _, kinds, units, aligns, _ = r.where.shape
    counts = (kinds, units, aligns, len(r.moved))
    return _made(
        _Rows,
        counts,
        r.where,
        r.layout,
        r.holds,
        r.core,
        r.levels,
        r.moved,
        r.least,
        r.work,
        r.held,
        r.host,
        r.engine,
        r.seconds,
    )


def site_struct(s: Site) -> Struct:
    counts = (len(s.units), s.draws, s.dispatch)
    return _made(_Site, counts, s.capacity, s.share, s.host, s.units, s.unit, s.width)


def state_struct(s: State) -> Struct:
    return _made(_State, (len(s.size), len(s.mask)), *s)


class Work:
    """Room for the evaluations of one chain over one structure, freed with it."""

    def __init__(self, shape: Struct, draws: int) -> None:
        self.pointer = library().rpeg_work(ctypes.byref(shape), draws)
        if not self.pointer:
            raise MemoryError("no room for a structure's plans")

    def __del__(self) -> None:
        if getattr(self, "pointer", None):
            library().rpeg_work_free(self.pointer)

    @property
    def missing(self) -> list[int]:
        """What the last evaluation lacked: its code, and what it asked for."""
        return library().rpeg_missing(self.pointer)[:8]  # type: ignore[no-any-return]

    def items(self, shape: Struct, draws: int) -> Items:
        """Of the last evaluation."""
        found = _Items()
        library().rpeg_items(ctypes.byref(shape), self.pointer, ctypes.byref(found))
        n, bases = found.count, found.bases
        return Items(
            found.kind[:n],
            found.stage[:n],
            found.mean[:n],
            found.offset_mean[:bases],
            [found.duration[d * found.stride : d * found.stride + n] for d in range(draws)],
            [found.offset[d * bases : (d + 1) * bases] for d in range(draws)],
        )

    def rows(self, stages: int) -> list[int]:
        """The row of each stage's option in the last evaluation."""
        return library().rpeg_rows(self.pointer)[:stages]  # type: ignore[no-any-return]


class _Items(ctypes.Structure):
    _fields_ = [
        *((name, _Number) for name in ("count", "stride", "bases")),
        *((name, ctypes.POINTER(ctypes.c_int)) for name in ("kind", "stage")),
        *((name, ctypes.POINTER(_Real)) for name in ("mean", "duration", "offset_mean", "offset")),
    ]


@dataclass(frozen=True)
class Items:
    """The items of an evaluation. kind: `RUN`, `TRANSFER`, `RELOAD` or `OFFLOAD`; stage: or weights edge.

    mean, offset_mean: seconds of each item, and from its start to when each base part leaves; durations, offsets: the
    same by draw.
    """

    kind: list[int]
    stage: list[int]
    mean: list[float]
    offset_mean: list[float]
    durations: list[list[float]]
    offsets: list[list[float]]


class Chain(ctypes.Structure):
    """How far an annealing has come.

    random: never 0. hot, cold: of the temperature, in mean worsenings (`spread`). now, best: objectives. best_seconds:
    inf where the best does not fit. allowance: what rows that are missing may still cost to ask, about in milliseconds.
    """

    _fields_ = [
        *((name, _Number) for name in ("step", "steps", "placed", "evaluations", "accepted", "allowance")),
        ("random", ctypes.c_uint64),
        *((name, _Real) for name in ("hot", "cold", "spread", "now", "best", "best_seconds")),
    ]


class Count(ctypes.Structure):
    """How far the way through all states of a space has come. best: the objective of the best."""

    _fields_ = [("number", _Number), ("end", _Number), ("evaluations", _Number), ("best", _Real)]
