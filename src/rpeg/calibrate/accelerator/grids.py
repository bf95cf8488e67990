"""`Grids`: the shapes that are measured, on a large device and on one core."""

from __future__ import annotations

from dataclasses import dataclass

Points = tuple[float, ...]


@dataclass(frozen=True)
class Grids:
    """Points of each table's axes. Attention: work and length such that whole sequences of `heads` heads result.

    layer: (hidden, heads, KV heads, inner width, tokens) of the layer that is timed whole.
    """

    m: Points
    sides: Points
    heads: int
    share: Points
    work: Points
    length: Points
    head_dims: tuple[int, ...]
    kv_heads: int
    group: Points
    rows: Points
    context: Points
    sizes: Points
    messages: Points
    layer: tuple[int, int, int, int, int]


def _powers(*exponents: int) -> Points:
    return tuple(float(2**i) for i in exponents)


ACCELERATOR = Grids(
    m=_powers(0, 4, 6, 8, 10, 12, 14),
    sides=_powers(9, 10, 11, 12, 13, 14),
    heads=4,
    share=(0.25, 1.0),
    work=_powers(15, 17, 19, 21),
    length=_powers(7, 9, 11, 13),
    head_dims=(64, 128),
    kv_heads=4,
    group=(4.0,),
    rows=_powers(2, 4, 6, 8),
    context=_powers(7, 9, 11, 13, 15),
    sizes=_powers(12, 16, 20, 24, 28, 30),
    messages=_powers(10, 14, 18, 20, 22, 24, 26, 28, 30),
    layer=(4096, 32, 8, 14336, 4096),
)

CORE = Grids(
    m=_powers(0, 4, 7, 9),
    sides=_powers(6, 8, 10),
    heads=4,
    share=(0.25, 1.0),
    work=_powers(11, 13),
    length=_powers(6, 9),
    head_dims=(64,),
    kv_heads=4,
    group=(4.0,),
    rows=_powers(2, 5),
    context=_powers(6, 8, 10),
    sizes=_powers(12, 16, 20, 24),
    messages=_powers(10, 14, 18, 22),
    layer=(256, 4, 2, 688, 256),
)
