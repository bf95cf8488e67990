"""`PolicyModel`: a Hugging Face causal language model with an `lm` and/or a `value` head."""

from __future__ import annotations

import os
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from rpeg.backends.headed import VALUE_HEAD_FILE, Headed
from rpeg.backends.training.logprobs import token_logprobs
from rpeg.backends.training.parallel.context import Context
from rpeg.errors import InputError, nearest

HEADS = ("lm", "value")


@dataclass(frozen=True)
class Wanted:
    """What a forward pass is to compute at the response positions.

    logit_chunk: rows of logits that exist at a time; None is all of them.
    value_gradient_scale: what the gradient of the values is multiplied by where it enters the backbone.
    """

    logprobs: bool = False
    entropy: bool = False
    values: bool = False
    temperature: float = 1.0
    logit_chunk: int | None = None
    value_gradient_scale: float = 1.0


class PolicyModel(Headed):
    """A language model and its heads.

    hf: the unchanged Hugging Face module, for generation: a causal language model, or the backbone alone
    where there is no `lm` head (a critic then neither stores nor computes one). heads: from `HEADS`.

    context: who has the other parts of each sequence, where they are cut (`training.parallel`).
    """

    context: Context | None = None

    def __init__(self, hf: Any, heads: tuple[str, ...], *, seed: int = 0) -> None:
        super().__init__(hf, _checked_heads(heads))
        self.backbone_name = hf.base_model_prefix if "lm" in heads else ""
        like = next(hf.parameters())
        if like.dtype is torch.float64:  # grouped matrix products have no double precision
            hf.config.get_text_config()._experts_implementation = "eager"
        if "value" in heads:
            self.value_head = _value_head(int(hf.config.get_text_config().hidden_size), seed, like)
        if "lm" in heads:
            _verify_head(self, like.device)

    def logits(self, hidden: Tensor) -> Tensor:
        """(…, vocabulary) logits of (…, hidden size) hidden states, scaled as the architecture does."""
        logits: Tensor = self.hf.get_output_embeddings()(hidden)
        config = self.hf.config.get_text_config()
        if divisor := getattr(config, "logits_scaling", None):  # Granite
            logits = logits / divisor
        if factor := getattr(config, "logit_scale", None):  # Cohere
            logits = logits * factor
        if cap := getattr(config, "final_logit_softcapping", None):  # Gemma
            logits = torch.tanh(logits / cap) * cap
        return logits

    def forward(
        self,
        tokens: Tensor,
        index: Tensor,
        targets: Tensor,
        wanted: Wanted,
        positions: Tensor | None = None,
        arriving: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """What is `wanted` at k positions, each (k,): `logprobs` and `entropy` of `targets`, `new_values`.

        tokens: (n, S) right-padded. index: (k,) into the n·S positions. targets: (k,) what follows there.
        positions: (1, S) of packed samples; None: tokens are at their columns.
        arriving: `hidden` of the pipeline stage before, which is all that a stage gives that is not the last.
        """
        length = tokens.shape[1]
        hidden = self._hidden(tokens, positions, arriving)
        if not self.ends_here:
            return {"hidden": hidden}
        if self.context is None:
            if self.align > 1:
                index = index + index // length * (hidden.shape[1] - length)
            return self._outputs(hidden.reshape(-1, hidden.shape[-1])[index], targets, wanted)
        rows, mine = self.context.own_rows(index, length, hidden.shape[1])
        out = self._outputs(hidden.reshape(-1, hidden.shape[-1])[rows], targets[mine], wanted)
        return {name: self.context.joined(column, mine, len(index)) for name, column in out.items()}

    def _hidden(self, tokens: Tensor, positions: Tensor | None, arriving: Tensor | None) -> Tensor:
        """(n, S, hidden size) after this rank's layers, of its part of the sequence."""
        options: dict[str, Any] = {"use_cache": False}
        missing = -tokens.shape[1] % self.align
        if positions is not None:
            options["position_ids"] = nn.functional.pad(positions, (0, missing))
        if missing:
            tokens = nn.functional.pad(tokens, (0, missing))
        if self.context is not None:
            tokens, options["position_ids"] = self.context.own(tokens)
        source = {"input_ids": tokens} if arriving is None else {"inputs_embeds": arriving}
        hidden: Tensor = self.backbone(**source, **options).last_hidden_state
        return hidden

    def _outputs(self, hidden: Tensor, targets: Tensor, wanted: Wanted) -> dict[str, Tensor]:
        out: dict[str, Tensor] = {}
        if wanted.logprobs:
            out["logprobs"], entropy = token_logprobs(
                hidden,
                targets,
                self.logits,
                temperature=wanted.temperature,
                entropy=wanted.entropy,
                chunk=wanted.logit_chunk,
                vocabulary=self.vocabulary,
            )
            if entropy is not None:
                out["entropy"] = entropy
        if wanted.values:
            values = self.value_head(scaled_gradient(hidden, wanted.value_gradient_scale))[:, 0]
            out["new_values"] = values if values.dtype is torch.float64 else values.float()
        return out


def load_model(
    directory: str,
    *,
    heads: tuple[str, ...],
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    gguf_file: str | None = None,
    seed: int = 0,
) -> PolicyModel:
    """A model from a Hugging Face directory (or id), or from a GGUF file in it, in evaluation mode.

    A value head comes from `value_head.safetensors` where there is one, else is drawn from `seed`.
    Runs no code that comes with a model and reads no pickles. InputError where nothing loadable is there.
    """
    from transformers import AutoModel, AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    loader = AutoModelForCausalLM if "lm" in _checked_heads(heads) else AutoModel
    options: dict[str, Any] = {"dtype": dtype, "attn_implementation": "sdpa", "trust_remote_code": False}
    try:
        if gguf_file is not None:
            hf = _load_gguf(loader, directory, gguf_file, options)
        else:
            hf = loader.from_pretrained(directory, use_safetensors=True, **options)
    except (OSError, ValueError, ImportError) as error:
        raise InputError(f"cannot load a model from {directory!r}: {error}") from error
    model = PolicyModel(hf, heads, seed=seed)
    stored = Path(directory) / VALUE_HEAD_FILE
    if "value" in heads and stored.exists():
        model.value_head.load_state_dict(load_file(str(stored)))
    return model.to(device).eval()


def convert_gguf(directory: str, gguf_file: str, target: str) -> None:
    """Writes a GGUF file's language model as a Hugging Face directory in float32, unless that is there already.

    Reading GGUF takes many times as long as safetensors: convert once before several processes load a model.
    """
    out = Path(target)
    if (out / "config.json").exists():
        return
    fresh = out.with_name(f"{out.name}.new-{os.getpid()}")
    load_model(directory, heads=("lm",), dtype=torch.float32, gguf_file=gguf_file).save(str(fresh))
    fresh.rename(out)


def _load_gguf(loader: Any, directory: str, gguf_file: str, options: dict[str, Any]) -> Any:
    """Dequantised, and moved into a plain module: what comes back counts as quantised and cannot be saved."""
    with redirect_stderr(StringIO()):  # its progress bars know no switch
        source = loader.from_pretrained(directory, gguf_file=gguf_file, **options)
    config = type(source.config).from_dict(
        {key: value for key, value in source.config.to_dict().items() if key != "quantization_config"}
    )
    plain = loader.from_config(config, **options)
    plain.load_state_dict(source.state_dict())
    return plain


def scaled_gradient(tensor: Tensor, scale: float) -> Tensor:
    """The same values; on the way back the gradient is multiplied by `scale`."""
    if scale == 1.0:
        return tensor
    fixed = tensor.detach()
    return fixed + scale * (tensor - fixed)


def _checked_heads(heads: tuple[str, ...]) -> tuple[str, ...]:
    for head in heads:
        if head not in HEADS:
            raise InputError(f"unknown head {head!r}. {nearest(head, HEADS)}")
    if not heads:
        raise InputError(f"a model needs a head, one or more of {', '.join(HEADS)}")
    return tuple(heads)


def _value_head(hidden_size: int, seed: int, like: Tensor) -> nn.Linear:
    """Linear to one number: weights of standard deviation 1/(hidden size + 1), so that values start near 0.

    Drawn in float32 on the CPU whatever the model's dtype and device: a seed means one head everywhere.
    """
    head = nn.Linear(hidden_size, 1)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        head.weight.normal_(0.0, 1.0 / (hidden_size + 1), generator=generator)
        head.bias.zero_()
    return head.to(like.device, like.dtype)


@torch.no_grad()
def _verify_head(model: PolicyModel, device: torch.device) -> None:
    """Training computes logits from hidden states itself: they must be those of the model's own forward."""
    tokens = (torch.arange(8, device=device) % model.vocab_size)[None]
    was_training = model.training
    model.eval()
    expected = model.hf(input_ids=tokens, use_cache=False).logits.float()
    got = model.logits(model.backbone(input_ids=tokens, use_cache=False).last_hidden_state).float()
    model.train(was_training)
    scale = float(expected.abs().max())
    if float((got - expected).abs().max()) > 1e-3 * max(scale, 1e-3):
        raise InputError(
            f"{type(model.hf).__name__} treats its logits in a way that is not known here "
            f"(largest {scale:.4g} in its own forward, {float(got.abs().max()):.4g} here); "
            "use another architecture"
        )
