"""`Headed`: a Hugging Face module with heads, as trainers and whatever cuts models over ranks know any model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn

from rpeg.backends.training.logprobs import Vocabulary
from rpeg.errors import InputError

VALUE_HEAD_FILE = "value_head.safetensors"


class Headed(nn.Module):
    """A Hugging Face module and the heads on it: what trainers need to know of any model.

    hf: the Hugging Face module. heads: what it computes. vocab_size: of its token ids. frozen: names of parameters that
    are not trained, where others beside them are (`adapters`).

    What `training.parallel` makes of it on one rank: is_first, is_last: whether it embeds tokens and has the heads.
    vocabulary: where the head gives logits of a part of it. align: rows of tokens are padded to a multiple of it. chunks,
    chunk: parts of its layers that are far from each other in the whole model, and which of them runs.
    """

    frozen: frozenset[str] = frozenset()
    backbone_name = ""
    is_first = is_last = True
    vocabulary: Vocabulary | None = None
    align = 1
    chunks, chunk = 1, 0

    def __init__(self, hf: Any, heads: tuple[str, ...]) -> None:
        super().__init__()
        self.hf: Any = hf
        self.heads = heads
        self.vocab_size = int(hf.config.get_text_config().vocab_size)

    @property
    def ends_here(self) -> bool:
        """Whether what runs ends with the heads."""
        return self.is_last and self.chunk == self.chunks - 1

    @property
    def backbone(self) -> Any:
        """The module from token ids to hidden states."""
        return getattr(self.hf, self.backbone_name) if self.backbone_name else self.hf

    def final_norm(self) -> nn.Module:
        """What comes after the last layer. InputError where an architecture calls it otherwise."""
        norm = getattr(self.backbone, "norm", None)
        if not isinstance(norm, nn.Module):
            raise InputError(f"{type(self.hf).__name__} has no `norm` after its layers; use dp, with zero 3")
        return norm

    def layers(self) -> list[nn.Module]:
        """The layers, in order: the units of sharding."""
        names = set(getattr(self.hf, "_no_split_modules", None) or ())
        return [m for m in self.hf.modules() if type(m).__name__ in names]

    def recompute_layers(self) -> None:
        """Makes layers keep only their inputs and run again in the backward pass.

        Hugging Face does so only in training mode, so a model with dropout is refused (ValueError).
        """
        rates = [module.p for module in self.modules() if isinstance(module, nn.Dropout)]
        rates += [getattr(self.hf.config, name, 0.0) for name in ("attention_dropout", "attn_pdrop")]
        if any(rates):
            raise ValueError("recompute needs a model without dropout: log-probabilities would be random")
        # The older name goes in transformers 6, the newer came within 5.
        newer = getattr(self.hf, "activation_checkpointing_enable", None)
        (newer or self.hf.gradient_checkpointing_enable)({"use_reentrant": False})
        self.train()

    def save(self, directory: str, weights: dict[str, Tensor] | None = None) -> None:
        """Writes a Hugging Face directory and, with a value head, `value_head.safetensors`.

        weights: full tensors by `parameter_name`, where this module holds only shards of them.
        """
        if weights is None:
            weights = {name: p.detach().cpu() for name, p in named_parameters(self)}
        head = {n.removeprefix("value_head."): t for n, t in weights.items() if n.startswith("value_head.")}
        body = {name: tensor for name, tensor in weights.items() if not name.startswith("value_head.")}
        Path(directory).mkdir(parents=True, exist_ok=True)
        # Not `save_pretrained`: it writes weights on the first rank of the whole world only, which need not train.
        self.hf.config.architectures = [type(self.hf).__name__]
        self.hf.config.save_pretrained(directory)
        if (generation := getattr(self.hf, "generation_config", None)) is not None:
            generation.save_pretrained(directory)
        contiguous = {name: tensor.contiguous() for name, tensor in body.items()}
        save_file(contiguous, str(Path(directory) / "model.safetensors"), metadata={"format": "pt"})
        if head:
            save_file(head, str(Path(directory) / VALUE_HEAD_FILE))


def named_parameters(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Every parameter once (tied ones under their first name), named as in the Hugging Face module.

    A PolicyModel and the Hugging Face module in it give the same names; a value head's begin `value_head.`.
    """
    return [(name.removeprefix("hf."), parameter) for name, parameter in module.named_parameters()]
