"""Where a model's parameters and gradients lie: `Replicated` on every rank, or `Sharded` over the group.

Both show the optimizer plain local tensors, so that nothing above needs to know which one it is, and both
turn lists of tensors laid out like those (weights, moments) into full tensors by name and back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from rpeg.backends.models import Headed, named_parameters
from rpeg.backends.training import collectives
from rpeg.backends.training.collectives import Group

ALIGNMENT_ELEMENTS = 16


class Parameters(Protocol):
    """local: this rank's tensors, which the optimizer updates in place."""

    local: list[Tensor]

    def zero_gradients(self) -> None:
        """Forgets what has been accumulated."""

    def before_backward(self, last: bool) -> None:
        """last: this backward is the minibatch's last, after which gradients are complete on this rank."""

    def reduced_gradients(self) -> list[Tensor]:
        """This rank's part of the gradients summed over the group, laid out as `local`. Collective."""

    def squared_norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """Squared 2-norm of the whole gradient, the same on every rank. Collective when sharded."""

    def full(self, local: Sequence[Tensor]) -> dict[str, Tensor]:
        """Full tensors by parameter name of tensors laid out as `local`. Collective when sharded."""

    def scatter(self, full: Mapping[str, Tensor], local: Sequence[Tensor]) -> None:
        """Copies full tensors by parameter name into tensors laid out as `local`; the inverse of `full`."""

    def release(self) -> None:
        """Frees what a forward pass without a backward has left gathered."""


class Replicated:
    """Every rank holds everything, in one flat buffer a dtype; parameters and gradients are views of it.

    One buffer makes the all-reduce one collective and the optimizer one kernel, whatever the number of
    parameters. The module must not be moved to another device or dtype afterwards: that would cut the views.
    """

    def __init__(self, model: nn.Module, group: Group, *, trainable: bool) -> None:
        self.group = group
        self.places: dict[str, tuple[int, int, torch.Size]] = {}
        self.local: list[Tensor] = []
        self.gradients: list[Tensor] = []
        by_dtype: dict[torch.dtype, list[tuple[str, nn.Parameter]]] = {}
        for name, parameter in named_parameters(model):
            by_dtype.setdefault(parameter.dtype, []).append((name, parameter))
        for named in by_dtype.values():
            self._flatten(named, trainable)

    def _flatten(self, named: list[tuple[str, nn.Parameter]], trainable: bool) -> None:
        """Padding between parameters is zero and stays so: it has no gradient, and zero decays to zero."""
        starts, total = [], 0
        for _, parameter in named:
            starts.append(total)
            total += -(-parameter.numel() // ALIGNMENT_ELEMENTS) * ALIGNMENT_ELEMENTS
        flat = torch.zeros(total, dtype=named[0][1].dtype, device=named[0][1].device)
        gradient = torch.zeros_like(flat) if trainable else flat[:0]
        for start, (name, parameter) in zip(starts, named, strict=True):
            self.places[name] = (len(self.local), start, parameter.shape)
            view = _part(flat, start, parameter.shape)
            view.copy_(parameter.detach())
            parameter.data = view
            parameter.requires_grad_(trainable)
            parameter.grad = _part(gradient, start, parameter.shape) if trainable else None
        self.local.append(flat)
        self.gradients.append(gradient)

    def zero_gradients(self) -> None:
        for gradient in self.gradients:
            gradient.zero_()

    def before_backward(self, last: bool) -> None:
        del last

    def reduced_gradients(self) -> list[Tensor]:
        for gradient in self.gradients:
            collectives.all_reduce_sum(gradient, self.group)
        return self.gradients

    def squared_norm(self, gradients: Sequence[Tensor]) -> Tensor:
        return _squared_norm(gradients)

    def full(self, local: Sequence[Tensor]) -> dict[str, Tensor]:
        return {name: _part(local[b], start, shape) for name, (b, start, shape) in self.places.items()}

    def scatter(self, full: Mapping[str, Tensor], local: Sequence[Tensor]) -> None:
        for name, tensor in self.full(local).items():
            tensor.copy_(full[name])

    def release(self) -> None:
        pass


class Sharded:
    """FSDP2 (ZeRO-3): each rank holds a slice along dimension 0 of every parameter, gathered layer by layer.

    Gradients are accumulated unsharded over a minibatch's micro-batches and reduced once, or, with
    `reduce_every_microbatch`, reduced each time: less memory, more communication.
    The module inside is then no longer fit for generation.
    """

    def __init__(
        self,
        model: Headed,
        group: dist.ProcessGroup,
        *,
        trainable: bool,
        compute_dtype: torch.dtype | None = None,
        reduce_every_microbatch: bool = False,
    ) -> None:
        self.group, self.reduce_every_microbatch = group, reduce_every_microbatch
        device = next(model.parameters()).device
        self.shapes = {name: parameter.shape for name, parameter in named_parameters(model)}
        model.requires_grad_(trainable)
        self.root = _shard(model, DeviceMesh.from_group(group, device.type), compute_dtype)
        self.parameters: list[Any] = [parameter for _, parameter in named_parameters(model)]
        self.local = [parameter.detach().to_local() for parameter in self.parameters]

    def zero_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def before_backward(self, last: bool) -> None:
        self.root.set_requires_gradient_sync(last or self.reduce_every_microbatch)

    def reduced_gradients(self) -> list[Tensor]:
        return [
            torch.zeros_like(local) if parameter.grad is None else parameter.grad.to_local()
            for parameter, local in zip(self.parameters, self.local, strict=True)
        ]

    def squared_norm(self, gradients: Sequence[Tensor]) -> Tensor:
        return collectives.all_reduce_sum(_squared_norm(gradients), self.group)

    def full(self, local: Sequence[Tensor]) -> dict[str, Tensor]:
        """In one all-gather a dtype: tensor by tensor costs a latency each."""
        named = list(zip(self.shapes, local, strict=True))
        out: dict[str, Tensor] = {}
        for dtype in {tensor.dtype for tensor in local}:
            out.update(self._gather([(name, tensor) for name, tensor in named if tensor.dtype is dtype]))
        return {name: out[name] for name in self.shapes}

    def _gather(self, named: list[tuple[str, Tensor]]) -> dict[str, Tensor]:
        chunks = [self._chunk(self.shapes[name]) for name, _ in named]
        row = named[0][1].new_zeros(sum(chunks))
        for part, (_, tensor) in zip(torch.split(row, chunks), named, strict=True):
            part[: tensor.numel()].copy_(tensor.reshape(-1))
        columns = torch.split(collectives.all_gather(row, self.group), chunks, dim=1)
        return {
            name: column.reshape(-1)[: self.shapes[name].numel()].view(self.shapes[name])
            for (name, _), column in zip(named, columns, strict=True)
        }

    def _chunk(self, shape: torch.Size) -> int:
        """Elements of the largest slice: slices are as `torch.chunk` along dimension 0 cuts them."""
        return -(-shape[0] // collectives.size(self.group)) * shape[1:].numel()

    def scatter(self, full: Mapping[str, Tensor], local: Sequence[Tensor]) -> None:
        self.release()
        me = collectives.rank(self.group)
        for (name, shape), tensor in zip(self.shapes.items(), local, strict=True):
            start = me * self._chunk(shape)
            mine = full[name].reshape(-1)[start : start + tensor.numel()]
            tensor.copy_(mine.view(tensor.shape))

    def release(self) -> None:
        self.root.reshard()


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


def _part(flat: Tensor, start: int, shape: torch.Size) -> Tensor:
    return flat[start : start + shape.numel()].view(shape)


def _squared_norm(tensors: Sequence[Tensor]) -> Tensor:
    norms = torch._foreach_norm(list(tensors))
    wide = [norm.to(torch.promote_types(norm.dtype, torch.float32)) for norm in norms]
    return torch.stack(wide).square().sum()
