"""Tensor parallelism: matrices cut by columns and rows, the vocabulary cut over embedding and head.

The cut of each family is the one that its Hugging Face configuration declares (`base_model_tp_plan`); collectives are
hooks on the modules. With `sequence_parallel` what is not cut works on a part of the sequence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from rpeg.backends.adapters import DOWN, UP, is_adapter
from rpeg.backends.boxes import Box
from rpeg.backends.headed import Headed
from rpeg.backends.training.parallel.functions import enter, gather, join, leave, scatter_sum, split
from rpeg.backends.training.parallel.placed import Layout, keep_boxes
from rpeg.errors import InputError

SEQUENCE = 1
STYLES = {"colwise": 0, "rowwise": 1}
"""The dimension of a linear module's weight that each style cuts."""
WHOLE = ("replicated_with_grad_allreduce",)


def cut_tensors(model: Headed, layout: Layout, group: dist.ProcessGroup, *, sequence: bool) -> Layout:
    """Cuts the model in place and hooks the collectives in; the layout with this rank's boxes.

    sequence: along it, too (sequence parallelism). InputError where the family has no cut or it does not divide.
    """
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    styles = _styles(model)
    _check(model, ranks, styles)
    inside = [f"{_name_of(model, layer)}." for layer in model.layers()]
    cut: Layout = {}
    for name, placed in layout.items():
        dim = _dimension(name, styles, model)
        if dim is not None:
            cut[name] = replace(placed, box=placed.box.chunk(dim, ranks, rank))
            continue
        heads = any(
            re.fullmatch(pattern + r"\.\w+", name) for pattern, style in styles.items() if style in WHOLE
        )
        within = any(name.startswith(prefix) for prefix in inside) or name.startswith(_norm_prefix(model))
        partial = heads or is_adapter(name) or (sequence and within)
        cut[name] = replace(placed, owned=placed.owned and rank == 0, partial=partial)
    keep_boxes(model, {name: placed.box for name, placed in cut.items()})
    _hook(model, styles, group, sequence)
    _hook_vocabulary(model, cut, group)
    return cut


def _styles(model: Headed) -> dict[str, str]:
    """By regular expression of a module's name."""
    declared = getattr(model.hf.config.get_text_config(), "base_model_tp_plan", None)
    family = type(model.hf).__name__
    if not declared:
        raise InputError(
            f"{family} declares no tensor-parallel cut (base_model_tp_plan); use dp, with zero 3"
        )
    prefix = f"{model.backbone_name}." if model.backbone_name else ""
    styles = {re.escape(prefix + key).replace(r"\*", r"\d+"): style for key, style in declared.items()}
    present = {name.removeprefix("hf.") for name, _ in model.named_modules()}
    used = {p: s for p, s in styles.items() if any(re.fullmatch(p, name) for name in present)}
    odd = sorted({style for style in used.values() if style not in STYLES and style not in WHOLE})
    if odd:
        raise InputError(
            f"{family} is cut as {', '.join(odd)}, which tensor parallelism here is not; use dp or ep"
        )
    return used


def _check(model: Headed, ranks: int, styles: dict[str, str]) -> None:
    config = model.hf.config.get_text_config()
    sizes = {
        "attention heads": config.num_attention_heads,
        "key and value heads": getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
        "units of the feed-forward": config.intermediate_size,
    }
    for what, size in sizes.items():
        if size % ranks:
            raise InputError(f"tp {ranks} does not divide the {size} {what} of {type(model.hf).__name__}")
    if not Box.whole((model.vocab_size,)).chunk(0, ranks, ranks - 1).numel:
        raise InputError(f"tp {ranks} leaves a rank without any of the {model.vocab_size} tokens")
    for pattern, module in _matching(model, styles, "rowwise"):
        if getattr(module, "bias", None) is not None:
            raise InputError(f"{pattern} has a bias and is cut by rows; use dp, with zero 3")


def _dimension(name: str, styles: dict[str, str], model: Headed) -> int | None:
    """The dimension in which a parameter is cut; None where it is whole."""
    module, _, kind = name.rpartition(".")
    if kind in ("weight", "bias") and module in _vocabulary_names(model):
        return 0
    for pattern, style in styles.items():
        if style in STYLES and re.fullmatch(pattern, module):
            cuts_inputs = STYLES[style] == 1
            if kind in (DOWN, UP):  # of an adapter the side that is the matrix's own
                return STYLES[style] if cuts_inputs == (kind == DOWN) else None
            return 0 if kind == "bias" else STYLES[style]
    return None


def _vocabulary_names(model: Headed) -> set[str]:
    modules = [model.backbone.get_input_embeddings()]
    modules += [model.hf.get_output_embeddings()] if "lm" in model.heads else []
    return {_name_of(model, module) for module in modules}


def _norm_prefix(model: Headed) -> str:
    return f"{_name_of(model, model.final_norm())}."


def _name_of(model: Headed, wanted: nn.Module) -> str:
    return str(next(name for name, m in model.named_modules() if m is wanted)).removeprefix("hf.")


def _matching(model: Headed, styles: dict[str, str], style: str) -> Iterator[tuple[str, nn.Module]]:
    patterns = [pattern for pattern, s in styles.items() if s == style]
    for full, module in model.named_modules():
        name = full.removeprefix("hf.")
        if any(re.fullmatch(pattern, name) for pattern in patterns):
            yield name, module


def _hook(model: Headed, styles: dict[str, str], group: dist.ProcessGroup, sequence: bool) -> None:
    """A block of matrices begins with the module that holds column-wise ones and ends with a row-wise one."""
    modules = {full.removeprefix("hf."): module for full, module in model.named_modules()}
    blocks = {name.rpartition(".")[0] for name, _ in _matching(model, styles, "colwise")}
    along = _Sequence(sequence)
    if sequence and model.backbone is not model.hf:
        along.leave_whole_within(model.hf)
    for name in sorted(blocks):
        _before(modules[name], lambda x: gather(x, group, SEQUENCE) if along.cut else enter(x, group))
    for _, module in _matching(model, styles, "rowwise"):
        _after(module, lambda x: scatter_sum(x, group, SEQUENCE) if along.cut else leave(x, group))
    layers = model.layers()
    if sequence and layers:
        _before(layers[0], lambda x: split(x, group, SEQUENCE) if along.cut else x)
        last = model.final_norm() if model.is_last else layers[-1]
        _after(last, lambda x: join(x, group, SEQUENCE) if along.cut else x)


@dataclass
class _Sequence:
    """Whether sequences are cut. They are not where an engine calls the module itself, a token at a time."""

    cut: bool

    def leave_whole_within(self, hf: nn.Module) -> None:
        """Calls of the whole module find sequences whole."""
        hf.register_forward_pre_hook(lambda *_: setattr(self, "cut", False))
        hf.register_forward_hook(lambda *_: setattr(self, "cut", True), always_call=True)


def _before(module: nn.Module, change: Any) -> None:
    """Changes the hidden states that a module is called with, by position or by name."""

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args:
            return (change(args[0]), *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": change(kwargs["hidden_states"])}

    module.register_forward_pre_hook(hook, with_kwargs=True)


def _after(module: nn.Module, change: Any) -> None:
    module.register_forward_hook(lambda _module, _args, out: change(out))


def _hook_vocabulary(model: Headed, layout: Layout, group: dist.ProcessGroup) -> None:
    """Each rank embeds its own tokens and computes its own logits; `token_logprobs` puts these together."""
    if model.is_first:
        embedding = model.backbone.get_input_embeddings()
        box = layout[f"{_name_of(model, embedding)}.weight"].box
        _embed_own(embedding, box, group)
    if "lm" in model.heads and model.is_last:
        head = model.hf.get_output_embeddings()
        # Tied weights are listed once, under the embedding's name.
        name = f"{_name_of(model, head)}.weight"
        if name not in layout:
            name = f"{_name_of(model, model.backbone.get_input_embeddings())}.weight"
        _before(head, lambda x: enter(x, group))
        model.vocabulary = (group, layout[name].box.starts[0])
        # Who calls the module itself, as engines do, finds whole logits.
        model.hf.register_forward_hook(partial(_whole_logits, group, layout[name].shape[0]))


def _whole_logits(group: dist.ProcessGroup, vocabulary: int, _module: nn.Module, _args: Any, out: Any) -> Any:
    """All ranks' logits in place of this one's. The last parts of a vocabulary may be shorter."""
    ranks = dist.get_world_size(group)
    each = -(-vocabulary // ranks)
    own = nn.functional.pad(out.logits, (0, each - out.logits.shape[-1]))
    out.logits = gather(own, group, -1)[..., :vocabulary]
    return out


def _embed_own(embedding: nn.Module, box: Box, group: dist.ProcessGroup) -> None:
    start, rows = box.starts[0], box.shape[0]
    padding: Any = getattr(embedding, "padding_idx", None)
    if padding is not None:
        inside = start <= padding < start + rows
        setattr(embedding, "padding_idx", padding - start if inside else None)  # noqa: B010
    elsewhere: list[Tensor] = []

    def before(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        local = args[0] - start
        outside = (local < 0) | (local >= rows)
        elsewhere[:] = [outside]
        return (local.masked_fill(outside, 0), *args[1:])

    def after(_: nn.Module, args: Any, out: Tensor) -> Tensor:
        return leave(out.masked_fill(elsewhere.pop()[..., None], 0), group)

    embedding.register_forward_pre_hook(before)
    embedding.register_forward_hook(after)
