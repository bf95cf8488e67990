"""Loading a model's tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rpeg.errors import InputError
from rpeg.job.models import ModelSource

if TYPE_CHECKING:
    from rpeg.backends.data.prompts import Prompt

HUB_LIMIT_SECONDS = 10.0


def load_tokenizer(source: ModelSource) -> Any:
    """The `PreTrainedTokenizerFast` that comes with a model. InputError when it cannot be loaded."""
    from transformers import AutoTokenizer

    if source.directory is None:
        _check_reachable(source.label)
    try:
        # Code from a model repository is never run.
        return AutoTokenizer.from_pretrained(
            source.pretrained, trust_remote_code=False, **source.load_options
        )
    except Exception as error:  # whatever transformers raises on files that others wrote
        raise InputError(
            f"the tokenizer of model {source.label} cannot be loaded: {_first_line(error)}"
        ) from error


def _check_reachable(label: str) -> None:
    """InputError unless the hub knows the model. Asked once: `from_pretrained` retries for a minute."""
    from huggingface_hub import HfApi

    try:
        HfApi().model_info(label, timeout=HUB_LIMIT_SECONDS)
    except Exception as error:  # no network, no such model, no permission: all end here
        raise InputError(
            f"model {label} is not on this machine, and cannot be fetched: {_first_line(error)}. "
            "Check its name and the network, or give the model's directory"
        ) from error


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__


def notes(tokenizer: Any, prompts: Sequence[Prompt], *, chat_template: bool) -> Iterator[str]:
    """What about a tokenizer and its prompts makes training go wrong in silence, a sentence each."""
    if tokenizer.eos_token_id is None:
        yield "the tokenizer has no end-of-sequence token: every response goes on to lengths.max_response"
    bos = tokenizer.bos_token_id
    twice = sum(prompt.tokens[:2] == (bos, bos) for prompt in prompts) if bos is not None else 0
    if twice:
        yield f"{twice} of {len(prompts)} prompts begin with two begin-of-sequence tokens: take one out of the data"
    if tokenizer.chat_template is not None and not chat_template:
        yield (
            "the tokenizer has a chat template, and data.chat_template is false: a model trained on chats sees "
            "plain text"
        )
