"""Pipeline parallelism: a model's layers dealt over stages, and the order in which each stage runs its micro-batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rpeg.backends.headed import named_parameters
from rpeg.backends.models import PolicyModel
from rpeg.backends.training.parallel.placed import Layout
from rpeg.errors import InputError


@dataclass(frozen=True)
class Pass:
    """One micro-batch through one of a stage's chunks of layers."""

    kind: Literal["forward", "backward"]
    number: int
    chunk: int = 0


def one_forward_one_backward(microbatches: int, stages: int, stage: int, chunks: int = 1) -> Iterator[Pass]:
    """The passes of a stage in order (Narayanan et al. 2019, PipeDream; without its flushes within a minibatch).

    Stage s of p is p - s - 1 forward passes ahead of its backward passes: so many micro-batches it holds, and one. With
    several chunks a stage they are interleaved (Narayanan et al. 2021, arXiv:2104.04473, section 2.2): p micro-batches go
    through one chunk before they go through the next, and a stage is 2 (p - s - 1) + (chunks - 1) p passes ahead. That
    order is for multiples of p micro-batches: those that are not there are left out of it.
    """
    whole = microbatches if chunks == 1 else -(-microbatches // stages) * stages
    total = whole * chunks
    ahead = stages - stage - 1
    ahead = min(ahead if chunks == 1 else 2 * ahead + (chunks - 1) * stages, total)
    order = [("forward", i) for i in range(ahead)]
    for i in range(ahead, total):
        order += [("forward", i), ("backward", i - ahead)]
    order += [("backward", i) for i in range(total - ahead, total)]
    for kind, i in order:
        group, within = divmod(i, stages * chunks) if chunks > 1 else (0, i)
        chunk, place = divmod(within, stages) if chunks > 1 else (0, within)
        number = group * stages + place
        if number < microbatches and kind == "forward":
            yield Pass("forward", number, chunk)
        elif number < microbatches:
            yield Pass("backward", number, chunks - 1 - chunk)


@dataclass(frozen=True)
class Ways:
    """Process groups of a pipeline for hidden states, and for their gradients, the other way.

    Each way has a group of its own: in one, what NCCL sends waits for what was sent before it the other way. around: from
    the last stage to the first one's next chunk, where stages have several.
    """

    forward: dist.ProcessGroup
    back: dist.ProcessGroup
    around: dist.ProcessGroup | None = None
    around_back: dist.ProcessGroup | None = None


class Neighbours:
    """Hidden states to the next stage and gradients to the one before. Sending does not wait for the receiver."""

    def __init__(self, ways: Ways) -> None:
        self.ways = ways
        self.stage, self.stages = dist.get_rank(ways.forward), dist.get_world_size(ways.forward)
        self._sent: list[tuple[Any, Tensor]] = []

    @property
    def is_last(self) -> bool:
        return self.stage == self.stages - 1

    def send(self, tensor: Tensor, step: Literal[-1, 1]) -> None:
        peer, group = self._across(step, gradients=step == -1)
        tensor = tensor.detach().contiguous()
        self._sent.append((dist.isend(tensor, peer, group=group), tensor))

    def receive(
        self, shape: tuple[int, ...], step: Literal[-1, 1], dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """From the stage `step` away: hidden states from the one before, gradients from the next."""
        out = torch.empty(shape, dtype=dtype, device=device)
        peer, group = self._across(step, gradients=step == 1)
        dist.recv(out, peer, group=group)
        return out

    def _across(self, step: Literal[-1, 1], *, gradients: bool) -> tuple[int, dist.ProcessGroup]:
        """(global rank of the neighbour, the group for it)."""
        ways, other = self.ways, self.stage + step
        group = ways.back if gradients else ways.forward
        if not 0 <= other < self.stages:
            around = ways.around_back if gradients else ways.around
            assert around is not None, "only chunks go around"
            group = around
        return dist.get_global_rank(ways.forward, other % self.stages), group

    def settle(self) -> None:
        """Waits until all that was sent is gone."""
        for work, _ in self._sent:
            work.wait()
        self._sent.clear()

    def from_last(self, tensor: Tensor) -> Tensor:
        """What the last stage has, on all of them; `tensor` is overwritten elsewhere."""
        group = self.ways.forward
        dist.broadcast(tensor, dist.get_global_rank(group, self.stages - 1), group=group)
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


def keep_stage(model: PolicyModel, layout: Layout, stages: int, stage: int, chunks: int = 1) -> Layout:
    """Takes the other stages' layers out of the model; the layout of what is left.

    Layers are dealt as evenly as they go, more to the first; with chunks, in `chunks` rounds. The first stage embeds; the
    last has norm and heads, and a copy of the embedding where the head is tied to it.
    """
    layers = model.layers()
    if len(layers) < stages * chunks:
        many = f"pp {stages}" if chunks == 1 else f"pp {stages} × vpp {chunks}"
        raise InputError(f"{many} is more than the {len(layers)} layers of {type(model.hf).__name__}")
    dealt = [_even(len(layers), stages * chunks, chunk * stages + stage) for chunk in range(chunks)]
    kept_layers = {id(layer) for start, stop in dealt for layer in layers[start:stop]}
    gone = {id(layer) for layer in layers} - kept_layers
    model.is_first, model.is_last, model.chunks = stage == 0, stage == stages - 1, chunks
    if chunks > 1:
        for chunk, (start, stop) in enumerate(dealt):
            for layer in layers[start:stop]:
                _run_within(model, layer, chunk)
        _run_within(model, model.final_norm(), chunks - 1)
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


def _run_within(model: PolicyModel, module: nn.Module, chunk: int) -> None:
    """Lets a module pass hidden states on while another chunk of the model runs."""
    own = module.forward

    def forward(hidden_states: Tensor, *args: Any, **options: Any) -> Any:
        return own(hidden_states, *args, **options) if model.chunk == chunk else hidden_states

    module.forward = forward


def _replace(model: nn.Module, gone: set[int]) -> None:
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if id(child) in gone:
                setattr(module, name, Elsewhere(child))


def _even(layers: int, stages: int, stage: int) -> tuple[int, int]:
    least, more = divmod(layers, stages)
    start = stage * least + min(stage, more)
    return start, start + least + (stage < more)
