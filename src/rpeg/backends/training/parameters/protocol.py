"""`Parameters`: what a trainer needs to know of a model's parameters, and what all kinds of them have in common.

All show the optimizer plain local tensors, so that nothing above needs to know which kind it is, and all say of lists
of tensors laid out like those (weights, moments) which pieces of which parameters they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from rpeg.backends.boxes import Piece
from rpeg.backends.training import collectives
from rpeg.backends.training.collectives import Group
from rpeg.backends.training.grid import Grid
from rpeg.backends.training.parallel.placed import Layout


class Parameters(Protocol):
    """local: this rank's tensors, which the optimizer updates in place. layout: of the model before ZeRO."""

    local: list[Tensor]
    layout: Layout

    def zero_gradients(self) -> None:
        """Forgets what has been accumulated."""

    def before_backward(self, last: bool) -> None:
        """last: this backward is the minibatch's last, after which gradients are complete on this rank."""

    def after_backward(self) -> None:
        """Ends what a backward pass has begun. Collective under ZeRO-2."""

    def reduced_gradients(self) -> list[Tensor]:
        """This rank's part of the gradients summed over the grid, laid out as `local`. Collective."""

    def squared_norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """Squared 2-norm of the whole gradient, the same on every rank. Collective where a rank has not all of it."""

    def updated(self) -> None:
        """The optimizer has changed `local`. Collective where ranks hold more than they update."""

    def weights(self) -> list[Piece]:
        """What this rank holds of each parameter at rest. Collective over nothing: a rank tells what it has."""

    def placed(self, local: Sequence[Tensor]) -> list[Piece]:
        """The pieces that tensors laid out as `local` are."""

    def storage(self) -> list[Tensor]:
        """Tensors that hold what must not be lost between steps."""

    def scratch(self) -> list[Tensor]:
        """Tensors that hold nothing between steps."""

    def release(self) -> None:
        """Frees what a forward pass without a backward has left gathered."""


def sum_partial(named: Iterable[tuple[str, Tensor]], layout: Layout, grid: Grid) -> None:
    """Sums in place, of whole gradients or equal parts of them, those that model-parallel ranks have only parts of."""
    named = list(named)
    sum_together([g for name, g in named if layout[name].partial], grid.group("tp"))
    sum_together([g for name, g in named if layout[name].tied], grid.group("tied"))


def sum_together(gradients: Sequence[Tensor], group: Group) -> None:
    """Sums each in place over the group, in one collective."""
    if group is None or not gradients:
        return
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    collectives.all_reduce_sum(flat, group)
    for gradient, part in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view(gradient.shape))


def squared_norm(tensors: Sequence[Tensor]) -> Tensor:
    """() squared 2-norm of all together, at least in single precision."""
    norms = torch._foreach_norm(list(tensors))
    wide = [norm.to(torch.promote_types(norm.dtype, torch.float32)) for norm in norms]
    return torch.stack(wide).square().sum()
