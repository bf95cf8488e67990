"""Pipeline parallelism: a model's layers dealt over stages, and the order in which each stage runs its micro-batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rpeg.backends.headed import named_parameters
from rpeg.backends.models import PolicyModel
from rpeg.backends.training.parallel.placed import Layout
from rpeg.errors import InputError

Pass = tuple[Literal["forward", "backward"], int]


def one_forward_one_backward(microbatches: int, stages: int, stage: int) -> Iterator[Pass]:
    """The passes of a stage in order (Narayanan et al. 2019, PipeDream; without its flushes within a minibatch).

    Stage s of p is p - s - 1 forward passes ahead of its backward passes: so many micro-batches it holds, and one.
    """
    ahead = min(stages - stage - 1, microbatches)
    yield from (("forward", i) for i in range(ahead))
    for i in range(ahead, microbatches):
        yield "forward", i
        yield "backward", i - ahead
    yield from (("backward", i) for i in range(microbatches - ahead, microbatches))


class Neighbours:
    """Hidden states to the next stage and gradients to the one before. Sending does not wait for the receiver.

    group, back: each way has a group of its own: in one, what NCCL sends waits for what was sent before it the other way.
    """

    def __init__(self, group: dist.ProcessGroup, back: dist.ProcessGroup) -> None:
        self.group, self.back = group, back
        self.stage, self.stages = dist.get_rank(group), dist.get_world_size(group)
        self._sent: list[tuple[Any, Tensor]] = []

    @property
    def is_last(self) -> bool:
        return self.stage == self.stages - 1

    def send(self, tensor: Tensor, step: Literal[-1, 1]) -> None:
        peer = dist.get_global_rank(self.group, self.stage + step)
        tensor = tensor.detach().contiguous()
        group = self.group if step == 1 else self.back
        self._sent.append((dist.isend(tensor, peer, group=group), tensor))

    def receive(
        self, shape: tuple[int, ...], step: Literal[-1, 1], dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        out = torch.empty(shape, dtype=dtype, device=device)
        group = self.group if step == -1 else self.back
        dist.recv(out, dist.get_global_rank(self.group, self.stage + step), group=group)
        return out

    def settle(self) -> None:
        """Waits until all that was sent is gone."""
        for work, _ in self._sent:
            work.wait()
        self._sent.clear()

    def from_last(self, tensor: Tensor) -> Tensor:
        """What the last stage has, on all of them; `tensor` is overwritten elsewhere."""
        dist.broadcast(tensor, dist.get_global_rank(self.group, self.stages - 1), group=self.group)
        return tensor


class Elsewhere(nn.Module):
    """Stands where another stage's layer was: passes hidden states on."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        for name in ("attention_type", "layer_type"):  # what Hugging Face asks of a layer before it calls it
            if hasattr(layer, name):
                setattr(self, name, getattr(layer, name))

    def forward(self, hidden_states: Tensor, **_: Any) -> Tensor:
        return hidden_states


def keep_stage(model: PolicyModel, layout: Layout, stages: int, stage: int) -> Layout:
    """Takes the other stages' layers out of the model; the layout of what is left.

    Layers are dealt as evenly as they go, more to the first stages. The first stage embeds; the last has norm and heads,
    and a copy of the embedding where the head is tied to it.
    """
    layers = model.layers()
    if len(layers) < stages:
        raise InputError(f"pp {stages} is more than the {len(layers)} layers of {type(model.hf).__name__}")
    start, stop = _even(len(layers), stages, stage)
    gone = {id(layer) for number, layer in enumerate(layers) if not start <= number < stop}
    model.is_first, model.is_last = stage == 0, stage == stages - 1
    head = model.hf.get_output_embeddings() if "lm" in model.heads else None
    embedding = model.backbone.get_input_embeddings()
    tied = head is not None and head.weight is embedding.weight
    keep_embedding = model.is_first or (tied and model.is_last)
    if not keep_embedding:
        gone.add(id(embedding))
    if not model.is_last:
        gone |= {id(model.final_norm())}
        gone |= {id(m) for m in (head, getattr(model, "value_head", None)) if m is not None}
    _replace(model, gone)
    present = {name for name, _ in named_parameters(model)}
    shared = id(embedding.weight) if tied else None
    names = {id(p): name for name, p in named_parameters(model)}
    kept = {name: placed for name, placed in layout.items() if name in present}
    if shared in names:
        name = names[shared]
        kept[name] = replace(kept[name], tied=True, owned=model.is_first)
    return kept


def _replace(model: nn.Module, gone: set[int]) -> None:
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if id(child) in gone:
                setattr(module, name, Elsewhere(child))


def _even(layers: int, stages: int, stage: int) -> tuple[int, int]:
    least, more = divmod(layers, stages)
    start = stage * least + min(stage, more)
    return start, start + least + (stage < more)
