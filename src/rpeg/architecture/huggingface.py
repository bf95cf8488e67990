"""Architectures from the `config.json` of a Hugging Face model directory.

A family is one function from the config to an `Architecture`; `FAMILIES` finds it by `model_type`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rpeg.architecture.model import Architecture
from rpeg.errors import InputError, nearest

Config = Mapping[str, Any]


def from_config(config: Config, name: str = "") -> Architecture:
    """The architecture that a Hugging Face config describes.

    name: how messages and reports call it; default: what the config says.
    InputError names an unknown model_type or a missing field.
    """
    kind = config.get("model_type")
    if not isinstance(kind, str):
        raise InputError(
            f"the config of {name or 'the model'} has no 'model_type': is it a Hugging Face model?"
        )
    if kind not in FAMILIES:
        raise InputError(
            f"model_type '{kind}' of {name or 'the model'} is not known. {nearest(kind, FAMILIES)}"
        )
    label = name or str(config.get("_name_or_path") or kind)
    return FAMILIES[kind](config, label)


def read(directory: str | Path, name: str = "") -> Architecture:
    """The architecture of the model in a directory, from its `config.json`."""
    path = Path(directory) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{path} does not exist: a model is a directory in the Hugging Face layout"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(config, dict):
        raise InputError(f"{path} holds a {type(config).__name__}, a JSON object is needed")
    return from_config(config, name or Path(directory).name)


def _llama(config: Config, name: str) -> Architecture:
    """Llama, SmolLM and the many that share their layer: no biases unless the config asks for them."""
    bias = bool(config.get("attention_bias", False))
    return _decoder(
        config, name, qkv_bias=bias, output_bias=bias, ffn_bias=bool(config.get("mlp_bias", False))
    )


def _mistral(config: Config, name: str) -> Architecture:
    return _decoder(config, name, window=config.get("sliding_window"))


def _qwen2(config: Config, name: str) -> Architecture:
    window = config.get("sliding_window") if config.get("use_sliding_window", False) else None
    return _decoder(config, name, qkv_bias=True, window=window)


def _qwen3(config: Config, name: str) -> Architecture:
    """Qwen3's heads are 128 wide unless said otherwise, whatever hidden / heads is."""
    bias = bool(config.get("attention_bias", False))
    window = config.get("sliding_window") if config.get("use_sliding_window", False) else None
    config = {"head_dim": 128, **config}
    return _decoder(config, name, qkv_bias=bias, output_bias=bias, qk_norm=True, window=window)


def _gpt2(config: Config, name: str) -> Architecture:
    hidden = _positive(config, "n_embd", name)
    heads = _positive(config, "n_head", name)
    return Architecture(
        name=name,
        family="gpt2",
        layers=_positive(config, "n_layer", name),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=_optional(config, "n_inner", 4 * hidden, name),
        vocabulary=_positive(config, "vocab_size", name),
        context=_positive(config, "n_positions", name),
        tied_embeddings=bool(config.get("tie_word_embeddings", True)),
        activation=str(config.get("activation_function", "gelu_new")),
        gated=False,
        learned_positions=True,
        norm_bias=True,
        qkv_bias=True,
        output_bias=True,
        ffn_bias=True,
    )


def _decoder(config: Config, name: str, **traits: Any) -> Architecture:
    """What Llama-like families have in common: rotary positions, RMSNorm, gated feed-forward."""
    hidden = _positive(config, "hidden_size", name)
    heads = _positive(config, "num_attention_heads", name)
    return Architecture(
        name=name,
        family=str(config["model_type"]),
        layers=_positive(config, "num_hidden_layers", name),
        hidden=hidden,
        heads=heads,
        kv_heads=_optional(config, "num_key_value_heads", heads, name),
        head_dim=_optional(config, "head_dim", hidden // heads, name),
        ffn=_positive(config, "intermediate_size", name),
        vocabulary=_positive(config, "vocab_size", name),
        context=_positive(config, "max_position_embeddings", name),
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        activation=str(config.get("hidden_act", "silu")),
        **traits,
    )


def _positive(config: Config, key: str, name: str) -> int:
    if key not in config:
        raise InputError(f"the config of {name} lacks '{key}'. {nearest(key, config)}")
    value = config[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"the config of {name} has {key} = {value!r}, a positive whole number is needed")
    return value


def _optional(config: Config, key: str, default: int, name: str) -> int:
    return default if config.get(key) is None else _positive(config, key, name)


FAMILIES: Mapping[str, Callable[[Config, str], Architecture]] = {
    "gpt2": _gpt2,
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
}


def to_config(architecture: Architecture) -> dict[str, Any]:
    """A Hugging Face config of this shape: `from_config` reads the same architecture back.

    It describes shapes alone: what `Architecture` does not know (rotary bases, tokens) keeps its default.
    """
    a = architecture
    if a.family == "gpt2":
        return {
            "model_type": "gpt2",
            "n_embd": a.hidden,
            "n_head": a.heads,
            "n_layer": a.layers,
            "n_inner": a.ffn,
            "n_positions": a.context,
            "vocab_size": a.vocabulary,
            "tie_word_embeddings": a.tied_embeddings,
            "activation_function": a.activation,
        }
    return {
        "model_type": a.family,
        "hidden_size": a.hidden,
        "num_attention_heads": a.heads,
        "num_key_value_heads": a.kv_heads,
        "num_hidden_layers": a.layers,
        "head_dim": a.head_dim,
        "intermediate_size": a.ffn,
        "vocab_size": a.vocabulary,
        "max_position_embeddings": a.context,
        "tie_word_embeddings": a.tied_embeddings,
        "hidden_act": a.activation,
        "attention_bias": a.output_bias,
        "mlp_bias": a.ffn_bias,
        "sliding_window": a.window,
        "use_sliding_window": a.window is not None,
    }
