"""`Placed`: which part of a parameter a rank holds before ZeRO, and exchanging a module's parameters for such parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from rpeg.backends.boxes import Box
from rpeg.backends.headed import Headed, named_parameters


@dataclass(frozen=True)
class Placed:
    """shape: of the whole parameter. box: this rank's part.

    owned: whether this rank is the first of the tensor-, pipeline- and expert-parallel ranks that hold the box.
    partial: each tensor-parallel rank computes a part of the gradient, to be summed over them.
    tied: a stage at the other end of the pipeline holds the same and has the other part of the gradient.
    expert: gradients are complete but for the ranks that hold the same experts.
    """

    shape: tuple[int, ...]
    box: Box
    owned: bool = True
    partial: bool = False
    tied: bool = False
    expert: bool = False


Layout = dict[str, Placed]


def whole(model: nn.Module) -> Layout:
    """Every parameter whole on this rank."""
    return {name: Placed(tuple(p.shape), Box.whole(p.shape)) for name, p in named_parameters(model)}


@torch.no_grad()
def keep_boxes(model: Headed, boxes: Mapping[str, Box]) -> None:
    """Exchanges parameters for their parts, tied ones for the same part."""
    parts = {
        id(parameter): nn.Parameter(
            parameter.detach()[boxes[name].within(Box.whole(parameter.shape))].clone(),
            requires_grad=parameter.requires_grad,
        )
        for name, parameter in named_parameters(model)
        if name in boxes
    }
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if id(parameter) in parts:
                setattr(module, name, parts[id(parameter)])
