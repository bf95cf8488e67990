"""`Replicated`: every data-parallel rank holds the whole of what model parallelism has left it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from rpeg.backends.boxes import Piece
from rpeg.backends.headed import Headed, named_parameters
from rpeg.backends.training import collectives
from rpeg.backends.training.grid import Grid
from rpeg.backends.training.parallel.placed import Layout
from rpeg.backends.training.parameters.protocol import squared_norm, sum_partial

ALIGNMENT_ELEMENTS = 16


class Replicated:
    """One flat buffer for each dtype (and one for experts); parameters and gradients are views of it. What is frozen
    beside adapters has buffers of its own.

    One buffer makes the all-reduce one collective and the optimizer one kernel, whatever the number of
    parameters. The module must not be moved to another device or dtype afterwards: that would cut the views.
    """

    def __init__(self, model: Headed, grid: Grid, layout: Layout, *, trainable: bool) -> None:
        self.grid, self.layout, self.trainable = grid, layout, trainable
        self.places: dict[str, tuple[int, int, torch.Size]] = {}
        self.frozen_places: dict[str, tuple[int, int, torch.Size]] = {}
        self.local: list[Tensor] = []
        self.frozen: list[Tensor] = []
        self.gradients: list[Tensor] = []
        self.axes: list[str] = []
        buffers: dict[tuple[torch.dtype, bool, bool], list[tuple[str, nn.Parameter]]] = {}
        for name, parameter in named_parameters(model):
            key = parameter.dtype, layout[name].expert, name in model.frozen
            buffers.setdefault(key, []).append((name, parameter))
        for (_, expert, frozen), named in buffers.items():
            if frozen:
                flat, _ = _flatten(named, len(self.frozen), self.frozen_places, trainable=False)
                self.frozen.append(flat)
                continue
            flat, gradient = _flatten(named, len(self.local), self.places, trainable=trainable)
            self.local.append(flat)
            self.gradients.append(gradient)
            self.axes.append("expert_data" if expert else "data")

    def zero_gradients(self) -> None:
        for gradient in self.gradients:
            gradient.zero_()

    def before_backward(self, last: bool) -> None:
        del last

    def after_backward(self) -> None:
        pass

    def reduced_gradients(self) -> list[Tensor]:
        sum_partial(self._views(self.gradients), self.layout, self.grid)
        for gradient, axis in zip(self.gradients, self.axes, strict=True):
            collectives.all_reduce_sum(gradient, self.grid.group(axis))
        return self.gradients

    def squared_norm(self, gradients: Sequence[Tensor]) -> Tensor:
        if not {"model", "ep"} & self.grid.groups.keys():
            return squared_norm(gradients)
        experts, dense = (
            [
                g
                for name, g in self._views(gradients)
                if self.layout[name].owned and self.layout[name].expert is e
            ]
            for e in (True, False)
        )
        total = squared_norm(dense) if dense else gradients[0].new_zeros(())
        if experts:
            total = total + collectives.all_reduce_sum(squared_norm(experts), self.grid.group("ep"))
        return collectives.all_reduce_sum(total, self.grid.group("model"))

    def updated(self) -> None:
        pass

    def weights(self) -> list[Piece]:
        return [*self.placed(self.local), *self._pieces(_views(self.frozen, self.frozen_places))]

    def placed(self, local: Sequence[Tensor]) -> list[Piece]:
        return self._pieces(self._views(local))

    def _pieces(self, views: Iterable[tuple[str, Tensor]]) -> list[Piece]:
        return [
            Piece(name, at.shape, at.box, tensor, at.owned and self._is_first(at.expert))
            for name, tensor in views
            for at in (self.layout[name],)
        ]

    def storage(self) -> list[Tensor]:
        return [*self.local, *self.frozen]

    def scratch(self) -> list[Tensor]:
        return self.gradients if self.trainable else []

    def release(self) -> None:
        pass

    def _is_first(self, expert: bool) -> bool:
        return self.grid.index("expert_data" if expert else "data") == 0

    def _views(self, local: Sequence[Tensor]) -> Iterator[tuple[str, Tensor]]:
        return _views(local, self.places)


def _flatten(
    named: list[tuple[str, nn.Parameter]],
    number: int,
    places: dict[str, tuple[int, int, torch.Size]],
    *,
    trainable: bool,
) -> tuple[Tensor, Tensor]:
    """Buffer `number` of these parameters, and of their gradients, empty where there are none; notes where they lie.

    Padding between parameters is zero and stays so: it has no gradient, and zero decays to zero.
    """
    starts, total = [], 0
    for _, parameter in named:
        starts.append(total)
        total += -(-parameter.numel() // ALIGNMENT_ELEMENTS) * ALIGNMENT_ELEMENTS
    flat = torch.zeros(total, dtype=named[0][1].dtype, device=named[0][1].device)
    gradient = torch.zeros_like(flat) if trainable else flat[:0]
    for start, (name, parameter) in zip(starts, named, strict=True):
        places[name] = (number, start, parameter.shape)
        view = _part(flat, start, parameter.shape)
        view.copy_(parameter.detach())
        parameter.data = view
        parameter.requires_grad_(trainable)
        parameter.grad = _part(gradient, start, parameter.shape) if trainable else None
    return flat, gradient


def _views(
    buffers: Sequence[Tensor], places: Mapping[str, tuple[int, int, torch.Size]]
) -> Iterator[tuple[str, Tensor]]:
    for name, (buffer, start, shape) in places.items():
        yield name, _part(buffers[buffer], start, shape)


def _part(flat: Tensor, start: int, shape: torch.Size) -> Tensor:
    return flat[start : start + shape.numel()].view(shape)
