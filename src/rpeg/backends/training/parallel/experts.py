"""Expert parallelism: each rank has some of the experts, and tokens go to the ranks whose experts they chose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rpeg.backends.models import PolicyModel
from rpeg.backends.training.parallel.functions import route
from rpeg.backends.training.parallel.placed import Layout, keep_boxes
from rpeg.errors import InputError


def keep_experts(model: PolicyModel, layout: Layout, group: dist.ProcessGroup) -> Layout:
    """Cuts the model in place to this rank's experts; the layout of what is left. InputError where there are none."""
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    found = dict(_experts(model))
    if not found:
        raise InputError(f"ep {ranks} deals experts to ranks and {type(model.hf).__name__} has none; use dp")
    cut: Layout = {}
    for prefix, module in found.items():
        if module.num_experts % ranks:
            raise InputError(f"ep {ranks} does not divide the {module.num_experts} experts of {prefix}")
        for name, _ in module.named_parameters(recurse=False):
            placed = layout[f"{prefix}.{name}"]
            cut[f"{prefix}.{name}"] = replace(placed, box=placed.box.chunk(0, ranks, rank), expert=True)
        module.num_experts //= ranks
        module.forward = partial(_exchanged, module, group)
    keep_boxes(model, {name: placed.box for name, placed in cut.items()})
    return {name: cut.get(name, placed) for name, placed in layout.items()}


def _experts(model: PolicyModel) -> Iterator[tuple[str, Any]]:
    """(name, module) of those that hold all experts of a layer, one behind another in each parameter."""
    for name, module in model.named_modules():
        stacked = [p for _, p in module.named_parameters(recurse=False) if p.ndim == 3]
        if stacked and isinstance(getattr(module, "num_experts", None), int):
            yield name.removeprefix("hf."), module


def _exchanged(
    module: Any, group: dist.ProcessGroup, hidden: Tensor, chosen: Tensor, weights: Tensor
) -> Tensor:
    """(t, hidden size), as `hidden` is. chosen: (t, k) experts of each token. weights: (t, k) of their results."""
    rows, own = chosen.numel(), module.num_experts
    flat = chosen.reshape(-1)
    order = torch.argsort(flat, stable=True)  # by expert, so by rank
    token = order // chosen.shape[1]
    sent, received = _counts(flat, own, group)
    arrived = route(hidden[token], group, sent, received)
    with torch.no_grad():
        experts = route((flat[order] % own)[:, None], group, sent, received)
    done = _computed(module, arrived, experts)
    back = route(done, group, received, sent)
    scaled = back * weights.reshape(-1)[order][:, None].to(back.dtype)
    assert len(back) == rows
    return torch.zeros_like(hidden).index_add(0, token, scaled)


def _computed(module: nn.Module, rows: Tensor, experts: Tensor) -> Tensor:
    """What the experts here make of rows, one expert a row. Depends on the rows even where there are none, so that the
    backward pass comes by here on every rank."""
    ones = torch.ones(experts.shape, dtype=rows.dtype, device=rows.device)
    out: Tensor = type(module).forward(module, rows, experts, ones)
    return out + 0 * rows


def _counts(flat: Tensor, own: int, group: dist.ProcessGroup) -> tuple[list[int], list[int]]:
    """Rows to each rank, and from each."""
    ranks = dist.get_world_size(group)
    to = torch.bincount(flat // own, minlength=ranks)
    come = torch.empty_like(to)
    dist.all_to_all_single(come, to, group=group)
    return to.tolist(), come.tolist()
