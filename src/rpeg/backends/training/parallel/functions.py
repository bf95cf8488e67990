"""Collectives within a forward pass, each with the collective that its backward pass needs.

Tensors between `enter` and `leave` differ from rank to rank; outside they, and their gradients, are the same on all
(Shoeybi et al. 2019, arXiv:1909.08053, section 3). Along a sequence that is cut (Korthikanti et al. 2022,
arXiv:2205.05198) `gather` and `scatter_sum` take their place.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

ProcessGroup = dist.ProcessGroup


def enter(x: Tensor, group: ProcessGroup) -> Tensor:
    """The same on the way forward; gradients are summed over the group."""
    return _call(_Enter, x, group)


def leave(x: Tensor, group: ProcessGroup) -> Tensor:
    """The sum over the group; gradients pass as they are."""
    return _call(_Leave, x, group)


def gather(x: Tensor, group: ProcessGroup, dim: int) -> Tensor:
    """All ranks' parts along `dim`; gradients, which differ, are summed and cut again."""
    return _call(_Gather, x, group, dim)


def scatter_sum(x: Tensor, group: ProcessGroup, dim: int) -> Tensor:
    """This rank's part along `dim` of the sum; gradients are gathered."""
    return _call(_ScatterSum, x, group, dim)


def split(x: Tensor, group: ProcessGroup, dim: int) -> Tensor:
    """This rank's part along `dim` of what all hold; gradients are gathered."""
    return _call(_Split, x, group, dim)


def join(x: Tensor, group: ProcessGroup, dim: int) -> Tensor:
    """All ranks' parts along `dim`; of gradients, which are the same on all, each takes its own part."""
    return _call(_Join, x, group, dim)


def exchange(x: Tensor, group: ProcessGroup, cut: int, joined: int) -> Tensor:
    """Cuts along one dimension, sends each rank its part and joins what comes along the other (all-to-all)."""
    return _call(_Exchange, x, group, cut, joined)


def route(x: Tensor, group: ProcessGroup, sent: list[int], received: list[int]) -> Tensor:
    """Rows to other ranks, so many to each, and so many from each (all-to-all of uneven parts)."""
    return _call(_Route, x, group, sent, received)


def _call(function: Any, *arguments: Any) -> Tensor:
    out: Tensor = function.apply(*arguments)
    return out


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _sum(gradients[0], ctx.group), None


class _Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup) -> Tensor:
        return _sum(x, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup, dim: int) -> Tensor:
        ctx.group, ctx.dim = group, dim
        return _all(x, group, dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _own_of_sum(gradients[0], ctx.group, ctx.dim), None, None


class _ScatterSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup, dim: int) -> Tensor:
        ctx.group, ctx.dim = group, dim
        return _own_of_sum(x, group, dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _all(gradients[0], ctx.group, ctx.dim), None, None


class _Split(_ScatterSum):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup, dim: int) -> Tensor:
        ctx.group, ctx.dim = group, dim
        return _own(x, group, dim)


class _Join(_Gather):
    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _own(gradients[0], ctx.group, ctx.dim), None, None


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup, cut: int, joined: int) -> Tensor:
        ctx.group, ctx.cut, ctx.joined = group, cut, joined
        return _all_to_all(x, group, cut, joined)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        return _all_to_all(gradients[0], ctx.group, ctx.joined, ctx.cut), None, None, None


class _Route(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup, sent: list[int], received: list[int]) -> Tensor:
        ctx.group, ctx.sent, ctx.received = group, sent, received
        return _routed(x, group, sent, received)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        return _routed(gradients[0], ctx.group, ctx.received, ctx.sent), None, None, None


def _sum(x: Tensor, group: ProcessGroup) -> Tensor:
    out = x.contiguous().clone()
    dist.all_reduce(out, group=group)
    return out


def _all(x: Tensor, group: ProcessGroup, dim: int) -> Tensor:
    ranks = dist.get_world_size(group)
    out = x.new_empty((ranks, *x.shape))
    dist.all_gather_into_tensor(out.view(-1), x.contiguous().view(-1), group=group)
    return torch.cat(list(out), dim)


def _own(x: Tensor, group: ProcessGroup, dim: int) -> Tensor:
    return x.chunk(dist.get_world_size(group), dim)[dist.get_rank(group)].contiguous()


def _own_of_sum(x: Tensor, group: ProcessGroup, dim: int) -> Tensor:
    parts = torch.stack(x.chunk(dist.get_world_size(group), dim))
    out = torch.empty_like(parts[0])
    dist.reduce_scatter_tensor(out.view(-1), parts.view(-1), group=group)
    return out


def _all_to_all(x: Tensor, group: ProcessGroup, cut: int, joined: int) -> Tensor:
    parts = torch.stack(x.chunk(dist.get_world_size(group), cut))
    out = torch.empty_like(parts)
    dist.all_to_all_single(out.view(-1), parts.view(-1), group=group)
    return torch.cat(list(out), joined)


def _routed(x: Tensor, group: ProcessGroup, sent: list[int], received: list[int]) -> Tensor:
    out = x.new_empty((sum(received), *x.shape[1:]))
    dist.all_to_all_single(out, x.contiguous(), received, sent, group=group)
    return out
