"""Loading a model's tokenizer."""

from __future__ import annotations

from typing import Any

from rpeg.errors import InputError
from rpeg.job.models import ModelSource


def load_tokenizer(source: ModelSource) -> Any:
    """The `PreTrainedTokenizerFast` that comes with a model. InputError when it cannot be loaded."""
    from transformers import AutoTokenizer

    try:
        # Code from a model repository is never run.
        return AutoTokenizer.from_pretrained(
            source.pretrained, trust_remote_code=False, **source.load_options
        )
    except (OSError, ValueError, ImportError, KeyError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"the tokenizer of model {source.label} cannot be loaded: {reason}") from error
