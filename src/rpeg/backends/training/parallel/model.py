"""Cuts a loaded model to what one rank of a grid holds."""

from __future__ import annotations

from rpeg.backends.headed import Headed
from rpeg.backends.models import PolicyModel
from rpeg.backends.training.grid import Grid
from rpeg.backends.training.parallel.attention import exchange_heads
from rpeg.backends.training.parallel.context import Context
from rpeg.backends.training.parallel.experts import keep_experts
from rpeg.backends.training.parallel.pipeline import keep_stage
from rpeg.backends.training.parallel.placed import Layout, whole
from rpeg.backends.training.parallel.tensor import cut_tensors
from rpeg.errors import InputError


def cut(model: Headed, grid: Grid) -> Layout:
    """Cuts in place by pp, ep, tp and cp; the layout says what is left. InputError where the model cannot be cut so."""
    layout = whole(model)
    p = grid.parallelism
    if not isinstance(model, PolicyModel):
        return _cut_rewarding(model, layout, grid)
    if grid.size("pp") > 1:
        layout = keep_stage(model, layout, grid.size("pp"), grid.index("pp"), p.vpp)
    if (group := grid.group("ep")) is not None:
        layout = keep_experts(model, layout, group)
    if (group := grid.group("tp")) is not None:
        layout = cut_tensors(model, layout, group, sequence=p.sequence_parallel)
    if (group := grid.group("cp")) is not None:
        _check_context(model, grid)
        exchange_heads(model.hf, group)
        model.context = Context(group)
    model.align = p.cp * (p.tp if p.sequence_parallel else 1)
    return layout


def _cut_rewarding(model: Headed, layout: Layout, grid: Grid) -> Layout:
    """Of a reward model, whose passes end with a number a sequence."""
    degrees = [f"{axis} {grid.size(axis)}" for axis in ("pp", "ep", "cp") if grid.size(axis) > 1]
    if degrees:
        raise InputError(
            f"{type(model).__name__} cannot be cut by {', '.join(degrees)}; use tp, or dp with zero 0 or 3"
        )
    group = grid.group("tp")
    return layout if group is None else cut_tensors(model, layout, group, sequence=False)


def _check_context(model: PolicyModel, grid: Grid) -> None:
    config = model.hf.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    if heads % (grid.size("cp") * grid.size("tp")):
        raise InputError(
            f"cp {grid.size('cp')} with tp {grid.size('tp')} does not divide the {heads} key and value heads of "
            f"{type(model.hf).__name__}: context parallelism deals heads to ranks"
        )
    if any(getattr(module, "sliding_window", None) for module in model.hf.modules()):
        raise InputError(
            f"{type(model.hf).__name__} attends within a window, which cp here does not; use dp or tp"
        )
