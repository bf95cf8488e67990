"""`RewardModel`: one number for a sequence, from a Hugging Face sequence classifier or a value head."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from rpeg.backends.headed import VALUE_HEAD_FILE, Headed
from rpeg.errors import InputError

CLASSIFIER = "ForSequenceClassification"


class RewardModel(Headed):
    """hf: a sequence classifier of one label, or a backbone with `value_head`, (hidden size → 1), beside it."""

    def __init__(self, hf: Any, value_head: nn.Linear | None = None) -> None:
        super().__init__(hf, ("reward",))
        if value_head is None:
            self.backbone_name = hf.base_model_prefix
        else:
            self.value_head = value_head
        if getattr(hf.config, "use_cache", False):
            hf.config.use_cache = False

    def forward(self, tokens: Tensor, ends: Tensor) -> Tensor:
        """(n,) scores, float64 where the model is, else float32.

        tokens: (n, S) right-padded. ends: (n,) tokens of each row, at least 1. A classifier runs as its own class
        does; a value head reads the state at the last token.
        """
        if hasattr(self, "value_head"):
            hidden = self.hf(input_ids=tokens).last_hidden_state
            rows = torch.arange(len(tokens), device=tokens.device)
            scores: Tensor = self.value_head(hidden[rows, ends - 1])[:, 0]
        else:
            scores = self._classified(tokens, ends)
        return scores if scores.dtype is torch.float64 else scores.float()

    def _classified(self, tokens: Tensor, ends: Tensor) -> Tensor:
        """Hugging Face finds the last token as the last one that is not padding, so padding must be its padding."""
        inside = torch.arange(tokens.shape[1], device=tokens.device)[None, :] < ends[:, None]
        config = self.hf.config.get_text_config()
        own = config.pad_token_id
        pad = own if own is not None else _absent(tokens.gather(1, ends[:, None] - 1), self.vocab_size)
        config.pad_token_id = pad
        try:
            out = self.hf(input_ids=tokens.masked_fill(~inside, pad), attention_mask=inside.long())
        finally:
            config.pad_token_id = own
        scores: Tensor = out.logits[:, 0]
        return scores


def load_reward_model(
    directory: str, *, dtype: torch.dtype, device: torch.device | str = "cpu", begin: int | None = None
) -> RewardModel:
    """A reward model from a Hugging Face directory (or id), in evaluation mode.

    begin: for training, a seed: a language model gets a new head of one label, drawn from it. InputError where
    nothing loadable is there, or (without `begin`) no reward model is. Runs no code that comes with a model.
    """
    from transformers import AutoModel, AutoModelForSequenceClassification
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    options: dict[str, Any] = {"dtype": dtype, "trust_remote_code": False, "use_safetensors": True}
    head_file = Path(directory) / VALUE_HEAD_FILE
    try:
        if head_file.exists() and begin is None:
            backbone = AutoModel.from_pretrained(directory, **options)
            return RewardModel(backbone, _stored_head(head_file, dtype)).to(device).eval()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(begin or 0)
            labels = {} if begin is None else {"num_labels": 1}
            hf = AutoModelForSequenceClassification.from_pretrained(directory, **options, **labels)
    except (OSError, ValueError, ImportError) as error:
        raise InputError(f"cannot load a reward model from {directory!r}: {error}") from error
    if begin is None:
        _check_is_reward_model(directory, hf)
    return RewardModel(hf).to(device).eval()


def _check_is_reward_model(directory: str, hf: Any) -> None:
    """Hugging Face makes a classifier of anything, with a head of random numbers."""
    kinds = _architectures(directory)
    if kinds and not any(kind.endswith(CLASSIFIER) for kind in kinds):
        raise InputError(
            f"{directory} is {', '.join(kinds)}, a sequence classifier is needed. Train one: rpeg train-reward"
        )
    if hf.config.num_labels != 1:
        raise InputError(
            f"{directory} has {hf.config.num_labels} labels, a reward is one number. Take a classifier of one label"
        )


def _architectures(directory: str) -> list[str]:
    from transformers import AutoConfig

    file = Path(directory) / "config.json"
    if file.exists():
        return [str(kind) for kind in json.loads(file.read_text(encoding="utf-8")).get("architectures") or ()]
    return list(AutoConfig.from_pretrained(directory, trust_remote_code=False).architectures or ())


def _stored_head(file: Path, dtype: torch.dtype) -> nn.Linear:
    stored = load_file(str(file))
    head = nn.Linear(stored["weight"].shape[1], 1, bias="bias" in stored)
    head.load_state_dict(stored)
    return head.to(dtype)


def _absent(last: Tensor, vocabulary: int) -> int:
    """A token that no row ends with: of n rows, one of the first n + 1 tokens is."""
    used = set(last.flatten().tolist())
    return next(token for token in range(vocabulary) if token not in used)
