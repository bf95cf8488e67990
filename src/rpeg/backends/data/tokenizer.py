"""Loading a model's tokenizer."""

from __future__ import annotations

from typing import Any

from rpeg.errors import InputError
from rpeg.job.models import ModelSource

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
