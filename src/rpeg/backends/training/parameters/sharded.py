"""`Sharded`: FSDP2 (ZeRO-3): each rank holds a slice along dimension 0 of every parameter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from rpeg.backends.boxes import Piece
from rpeg.backends.headed import Headed, named_parameters
from rpeg.backends.training import collectives
from rpeg.backends.training.grid import Grid
from rpeg.backends.training.parallel.placed import Layout
from rpeg.backends.training.parameters.protocol import squared_norm, sum_partial


class Sharded:
    """Parameters are gathered layer by layer; with fewer shards than ranks there are replicas of them (hybrid).

    Gradients are accumulated unsharded over a minibatch's micro-batches and reduced once, or, with
    `reduce_every_microbatch`, reduced each time: less memory, more communication.
    The module inside is then no longer fit for generation.
    """

    def __init__(
        self,
        model: Headed,
        grid: Grid,
        layout: Layout,
        *,
        trainable: bool,
        compute_dtype: torch.dtype | None = None,
        reduce_every_microbatch: bool = False,
    ) -> None:
        self.grid, self.layout, self.reduce_every_microbatch = grid, layout, reduce_every_microbatch
        device = next(model.parameters()).device
        for name, parameter in named_parameters(model):
            parameter.requires_grad_(trainable and name not in model.frozen)
        self.root = _shard(model, _mesh(grid, device.type), compute_dtype)
        every: dict[str, Any] = dict(named_parameters(model))
        self.parameters = {name: p for name, p in every.items() if name not in model.frozen}
        self.local = [parameter.detach().to_local() for parameter in self.parameters.values()]
        self.frozen = {name: p.detach().to_local() for name, p in every.items() if name in model.frozen}

    def zero_gradients(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None

    def before_backward(self, last: bool) -> None:
        self.root.set_requires_gradient_sync(last or self.reduce_every_microbatch)

    def after_backward(self) -> None:
        pass

    def reduced_gradients(self) -> list[Tensor]:
        gradients = [
            torch.zeros_like(local) if parameter.grad is None else parameter.grad.to_local()
            for parameter, local in zip(self.parameters.values(), self.local, strict=True)
        ]
        sum_partial(zip(self.parameters, gradients, strict=True), self.layout, self.grid)
        return gradients

    def squared_norm(self, gradients: Sequence[Tensor]) -> Tensor:
        owned = [g for name, g in zip(self.parameters, gradients, strict=True) if self.layout[name].owned]
        total = collectives.all_reduce_sum(squared_norm(owned), self.grid.group("shard"))
        return collectives.all_reduce_sum(total, self.grid.group("model"))

    def updated(self) -> None:
        pass

    def weights(self) -> list[Piece]:
        self.release()
        return [*self.placed(self.local), *self._pieces(self.frozen.items())]

    def placed(self, local: Sequence[Tensor]) -> list[Piece]:
        return self._pieces(zip(self.parameters, local, strict=True))

    def _pieces(self, named: Iterable[tuple[str, Tensor]]) -> list[Piece]:
        ranks, rank = self.grid.size("shard"), self.grid.index("shard")
        first = self.grid.index("replica") == 0
        return [
            Piece(name, at.shape, at.box.chunk(0, ranks, rank), tensor, at.owned and first)
            for name, tensor in named
            for at in (self.layout[name],)
        ]

    def storage(self) -> list[Tensor]:
        return [*self.local, *self.frozen.values()]

    def scratch(self) -> list[Tensor]:
        self.zero_gradients()
        return []

    def release(self) -> None:
        self.root.reshard()


def _mesh(grid: Grid, device: str) -> DeviceMesh:
    """Over the shards alone, or over replicas of them."""
    shards, replicas = grid.group("shard"), grid.group("replica")
    assert shards is not None, "sharding is for more than one rank"
    if replicas is None:
        return DeviceMesh.from_group(shards, device)
    rows = [_ranks_at(grid, replica) for replica in range(grid.size("replica"))]
    return DeviceMesh.from_group(
        [replicas, shards], device, mesh=torch.tensor(rows), mesh_dim_names=("replica", "shard")
    )


def _ranks_at(grid: Grid, replica: int) -> list[int]:
    """Global ranks of the shards of one replica: `data` ranks are numbered replica by replica."""
    data = grid.group("data")
    assert data is not None
    every, size = dist.get_process_group_ranks(data), grid.size("shard")
    return every[replica * size : (replica + 1) * size]


def _shard(model: Headed, mesh: DeviceMesh, compute_dtype: torch.dtype | None) -> FSDPModule:
    """Each decoder layer is a unit; the rest (embedding, final norm, heads, tied or not) is the root's."""
    policy = MixedPrecisionPolicy(
        param_dtype=compute_dtype, reduce_dtype=torch.float32 if compute_dtype else None
    )
    units = [*model.layers(), model]
    for unit in units:
        module = fully_shard(unit, mesh=mesh, mp_policy=policy)
        # A plain sum: token weights are already those of the whole minibatch, and gloo has no scaled sum.
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)
        module.set_reduce_scatter_unused_params(True)
    root: Any = model
    assert isinstance(root, FSDPModule)
    return root
