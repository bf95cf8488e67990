"""Which kind of parameters a grid and its ZeRO stage ask for."""

from __future__ import annotations

import torch

from rpeg.backends.headed import Headed
from rpeg.backends.training.grid import Grid
from rpeg.backends.training.parallel.placed import Layout
from rpeg.backends.training.parameters.partitioned import Partitioned
from rpeg.backends.training.parameters.protocol import Parameters
from rpeg.backends.training.parameters.replicated import Replicated
from rpeg.backends.training.parameters.sharded import Sharded


def parameters_of(
    model: Headed,
    grid: Grid,
    layout: Layout,
    trainable: bool,
    compute_dtype: torch.dtype | None,
    *,
    reduce_every_microbatch: bool,
) -> Parameters:
    """Of a model that is cut already, by `layout`."""
    zero, shared = grid.parallelism.zero, grid.size("shard") > 1
    if zero == 3 and shared:
        return Sharded(
            model,
            grid,
            layout,
            trainable=trainable,
            compute_dtype=compute_dtype,
            reduce_every_microbatch=reduce_every_microbatch,
        )
    if trainable and shared:
        return Partitioned(model, grid, layout, keep_whole=zero == 1)
    return Replicated(model, grid, layout, trainable=trainable)
