"""`Partitioned`: ZeRO-1 and 2 (Rajbhandari et al. 2020, arXiv:1910.02054): whole parameters, moments in shares.

A rank's share is a slice along dimension 0 of every parameter. Under ZeRO-2 gradients, too, are kept in shares: those of
a layer are reduced as soon as a backward pass has them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rpeg.backends.boxes import Box, Piece
from rpeg.backends.headed import Headed, named_parameters
from rpeg.backends.training import collectives
from rpeg.backends.training.grid import Grid
from rpeg.backends.training.parallel.placed import Layout
from rpeg.backends.training.parameters.protocol import squared_norm, sum_partial, sum_together


class Partitioned:
    """keep_whole: gradients of a minibatch accumulate whole and are reduced once (ZeRO-1)."""

    def __init__(self, model: Headed, grid: Grid, layout: Layout, *, keep_whole: bool) -> None:
        self.grid, self.layout, self.keep_whole = grid, layout, keep_whole
        group = grid.group("shard")
        assert group is not None, "shares are for more than one rank"
        self.group: dist.ProcessGroup = group
        self.ranks, self.rank = dist.get_world_size(group), dist.get_rank(group)
        every = dict(named_parameters(model))
        self.parameters = {name: p for name, p in every.items() if name not in model.frozen}
        self.frozen = {name: p for name, p in every.items() if name in model.frozen}
        for name, parameter in every.items():
            parameter.requires_grad_(name in self.parameters)
        self.local = [self._own(p.detach()) for p in self.parameters.values()]
        self.gradients = [torch.zeros_like(own) for own in self.local]
        self.units = _units(model)
        self._waiting: list[set[str]] = []
        self._next = 0
        if not keep_whole:
            self._hook()

    def zero_gradients(self) -> None:
        for gradient in self.gradients:
            gradient.zero_()
        for parameter in self.parameters.values():
            parameter.grad = None

    def before_backward(self, last: bool) -> None:
        self._waiting, self._next = [set(unit) for unit in self.units], 0

    def after_backward(self) -> None:
        """Reduces what the pass has not reached, so that all ranks make the same collectives."""
        if not self.keep_whole:
            for unit in self.units[self._next :]:
                self._reduce(unit)
            self._next = len(self.units)

    def reduced_gradients(self) -> list[Tensor]:
        if self.keep_whole:
            self._reduce(list(self.parameters))
        sum_together(self.gradients, self.grid.group("replica"))
        sum_partial(zip(self.parameters, self.gradients, strict=True), self.layout, self.grid)
        return self.gradients

    def squared_norm(self, gradients: Sequence[Tensor]) -> Tensor:
        owned = [g for name, g in zip(self.parameters, gradients, strict=True) if self.layout[name].owned]
        total = collectives.all_reduce_sum(squared_norm(owned), self.group)
        return collectives.all_reduce_sum(total, self.grid.group("model"))

    @torch.no_grad()
    def updated(self) -> None:
        """Every rank takes the others' shares, in one all-gather for each dtype."""
        for names in self._by_dtype():
            chunks = [self._chunk(name) for name in names]
            row = self.parameters[names[0]].new_zeros(sum(chunks))
            for name, part in zip(names, torch.split(row, chunks), strict=True):
                own = self._own(self.parameters[name].detach()).reshape(-1)
                part[: own.numel()].copy_(own)
            columns = torch.split(collectives.all_gather(row, self.group), chunks, dim=1)
            for name, column in zip(names, columns, strict=True):
                parameter = self.parameters[name]
                parameter.detach().copy_(column.reshape(-1)[: parameter.numel()].view(parameter.shape))

    def weights(self) -> list[Piece]:
        first = self.grid.index("data") == 0
        return [
            Piece(name, at.shape, at.box, parameter.detach(), at.owned and first)
            for name, parameter in (*self.parameters.items(), *self.frozen.items())
            for at in (self.layout[name],)
        ]

    def placed(self, local: Sequence[Tensor]) -> list[Piece]:
        first = self.grid.index("replica") == 0
        return [
            Piece(name, at.shape, at.box.chunk(0, self.ranks, self.rank), tensor, at.owned and first)
            for name, tensor in zip(self.parameters, local, strict=True)
            for at in (self.layout[name],)
        ]

    def storage(self) -> list[Tensor]:
        return [parameter.detach() for parameter in (*self.parameters.values(), *self.frozen.values())]

    def scratch(self) -> list[Tensor]:
        return self.gradients

    def release(self) -> None:
        pass

    def _hook(self) -> None:
        unit_of = {name: number for number, unit in enumerate(self.units) for name in unit}
        for name, parameter in self.parameters.items():
            hook = partial(self._arrived, name, unit_of[name])
            parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    def _arrived(self, name: str, unit: int, _parameter: Tensor) -> None:
        """Units are reduced in one order on all ranks, whatever the order in which gradients come."""
        self._waiting[unit].discard(name)
        while self._next < len(self.units) and not self._waiting[self._next]:
            self._reduce(self.units[self._next])
            self._next += 1

    @torch.no_grad()
    def _reduce(self, names: list[str]) -> None:
        """Adds the sums over the group to this rank's shares, and forgets the whole gradients."""
        places = {name: i for i, name in enumerate(self.parameters)}
        for together in self._by_dtype(names):
            chunks = [self._chunk(name) for name in together]
            rows = self.parameters[together[0]].new_zeros(self.ranks, sum(chunks))
            for name, part in zip(together, torch.split(rows, chunks, dim=1), strict=True):
                _fill_rows(part, self.parameters[name].grad)
                self.parameters[name].grad = None
            own = torch.empty_like(rows[0])
            dist.reduce_scatter_tensor(own, rows.view(-1), group=self.group)
            for name, part in zip(together, torch.split(own, chunks), strict=True):
                gradient = self.gradients[places[name]]
                gradient.add_(part[: gradient.numel()].view(gradient.shape))

    def _own(self, whole: Tensor) -> Tensor:
        return whole[Box.whole(whole.shape).chunk(0, self.ranks, self.rank).within(Box.whole(whole.shape))]

    def _chunk(self, name: str) -> int:
        """Numbers in the largest share of a parameter."""
        shape = self.parameters[name].shape
        return -(-shape[0] // self.ranks) * shape[1:].numel()

    def _by_dtype(self, names: Sequence[str] | None = None) -> list[list[str]]:
        found: dict[torch.dtype, list[str]] = {}
        for name in self.parameters if names is None else names:
            found.setdefault(self.parameters[name].dtype, []).append(name)
        return list(found.values())


def _fill_rows(rows: Tensor, whole: Tensor | None) -> None:
    """(ranks, k): each rank's slice of a tensor in its row, zeros behind the shorter ones."""
    if whole is None:
        return
    flat: Any = whole.reshape(-1)
    size = rows.shape[1]
    for row, start in zip(rows, range(0, flat.numel(), size), strict=False):
        part = flat[start : start + size]
        row[: len(part)].copy_(part)


def _units(model: Headed) -> list[list[str]]:
    """Names of the parameters of each layer, last layer first, and of all else, which is complete at the end."""
    names = {id(parameter): name for name, parameter in named_parameters(model) if name not in model.frozen}
    layers: list[nn.Module] = list(reversed(model.layers()))
    units = [[names[id(p)] for p in layer.parameters() if id(p) in names] for layer in layers]
    inside = {name for unit in units for name in unit}
    units.append([name for name in names.values() if name not in inside])
    return [unit for unit in units if unit]
