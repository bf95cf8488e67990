"""Low-rank adapters (Hu et al. 2021, arXiv:2106.09685): small products beside linear modules whose weights stay.

Modules keep their names and weights, to which `lora_a` and `lora_b` are added, so that whatever cuts, sends or stores
parameters needs to know of two more names alone. (The library `peft` wraps modules under other names.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from rpeg.backends.headed import Headed, named_parameters
from rpeg.errors import InputError

DOWN, UP = "lora_a", "lora_b"
ATTENTION = ("q_proj", "v_proj")
ROUTERS = ("gate", "router")
"""Linear modules of mixtures that choose experts; they get no adapter."""


@dataclass(frozen=True)
class Adapters:
    """rank: columns of each. scale: by which what they give is multiplied. targets: as in a job's `lora`."""

    rank: int
    scale: float
    targets: Literal["all", "attention"] = "all"


class Adapted(nn.Linear):
    """x Wᵀ + bias + scale · (x Aᵀ) Bᵀ, with A (rank, in) drawn and B (out, rank) zero at first."""

    def __init__(self, module: nn.Linear, adapters: Adapters, seed: int) -> None:
        super().__init__(module.in_features, module.out_features, module.bias is not None, device="meta")
        self.weight, self.bias = module.weight, module.bias
        self.scale, self.off = adapters.scale, False
        like = module.weight
        down = torch.empty(adapters.rank, module.in_features)
        generator = torch.Generator().manual_seed(seed)
        nn.init.normal_(down, std=module.in_features**-0.5, generator=generator)
        up = torch.zeros(module.out_features, adapters.rank)
        self.lora_a = nn.Parameter(down.to(like.device, like.dtype))
        self.lora_b = nn.Parameter(up.to(like.device, like.dtype))

    def forward(self, x: Tensor) -> Tensor:
        out = linear(x, self.weight, self.bias)
        if self.off:
            return out
        return out + linear(linear(x, self.lora_a), self.lora_b) * self.scale

    def whole_weight(self) -> Tensor:
        """The weight with the adapter added to it."""
        product = self.lora_b.double() @ self.lora_a.double()
        return (self.weight.double() + self.scale * product).to(self.weight.dtype)


def adapt(model: Headed, adapters: Adapters, seed: int) -> None:
    """Puts adapters beside a whole model's matrices and freezes all but them and a value head.

    seed: of their draw, which is the same on every rank. InputError where there is no matrix to put one beside: nothing
    but a head would be trained.
    """
    found = [
        (parent, name, module)
        for layer in model.layers()
        for parent in layer.modules()
        for name, module in parent.named_children()
        if isinstance(module, nn.Linear) and _wanted(name, adapters)
    ]
    if not found:
        raise InputError(
            f"lora.targets {adapters.targets} finds no matrix in the layers of {type(model.hf).__name__}; "
            "use targets: all, or train without lora"
        )
    names = {id(module): name.removeprefix("hf.") for name, module in model.named_modules()}
    for parent, name, module in found:
        setattr(parent, name, Adapted(module, adapters, _seed(seed, names[id(module)])))
    model.frozen = frozenset(name for name, _ in named_parameters(model) if not _is_trained(name))


def is_adapter(name: str) -> bool:
    """Whether a parameter is part of an adapter."""
    return name.endswith((f".{DOWN}", f".{UP}"))


@contextmanager
def switched_off(model: nn.Module) -> Iterator[None]:
    """Within it the model computes what it did before it had adapters."""
    own = [module for module in model.modules() if isinstance(module, Adapted)]
    for module in own:
        module.off = True
    try:
        yield
    finally:
        for module in own:
            module.off = False


@torch.no_grad()
def merged(weights: Mapping[str, Tensor], scale: float) -> dict[str, Tensor]:
    """Whole parameters by name without adapters: each is added to the weight that it is beside."""
    out = {name: tensor for name, tensor in weights.items() if not is_adapter(name)}
    for name in (name for name in weights if name.endswith(f".{DOWN}")):
        module = name.removesuffix(f".{DOWN}")
        weight = f"{module}.weight"
        product = weights[f"{module}.{UP}"].double() @ weights[name].double()
        out[weight] = (out[weight].double() + scale * product).to(out[weight].dtype)
    return out


@torch.no_grad()
def whole_parameters(hf: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """A Hugging Face module's parameters under their own names, tied ones under each, with adapters added to them."""
    adapted = {f"{name}.weight": module for name, module in hf.named_modules() if isinstance(module, Adapted)}
    for name, parameter in hf.named_parameters(remove_duplicate=False):
        if name in adapted:
            yield name, adapted[name].whole_weight()
        elif not is_adapter(name):
            yield name, parameter


def scale_of(model: nn.Module) -> float:
    """Of the model's adapters; 0 where it has none."""
    return next((module.scale for module in model.modules() if isinstance(module, Adapted)), 0.0)


def _is_trained(name: str) -> bool:
    return is_adapter(name) or name.startswith("value_head.")


def _wanted(name: str, adapters: Adapters) -> bool:
    return name in ATTENTION if adapters.targets == "attention" else name not in ROUTERS


def _seed(seed: int, name: str) -> int:
    digest = hashlib.blake2b(f"{seed} {name}".encode(), digest_size=7).digest()
    return int.from_bytes(digest, "little")
