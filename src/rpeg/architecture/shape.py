"""Architectures from a few flat numbers, as tables of measurements give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rpeg.architecture import library
from rpeg.architecture.layers import Experts, FeedForward, Latent, Layer
from rpeg.architecture.model import Architecture
from rpeg.errors import InputError, nearest
from rpeg.fields import shown

# Fields of such tables. Those of the last line tell where a number is from.
FIELDS = frozenset(
    {
        "name",
        "layers",
        "hidden",
        "heads",
        "kv_heads",
        "head_dim",
        "ffn",
        "vocab",
        "gated_mlp",
        "tied_embeddings",
    }
    | {"learned_pos", "n_experts", "topk", "moe_ffn", "n_shared_experts", "n_shared", "first_k_dense"}
    | {
        "moe_layer_freq",
        "mla",
        "q_lora_rank",
        "kv_lora_rank",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "v_head_dim",
    }
    | {"hybrid_override_pattern", "dims_source", "n_params"}
)
_NEEDED = ("layers", "hidden", "heads", "vocab")


def from_shape(shape: Mapping[str, Any], context: int = 8192) -> Architecture:
    """The architecture that flat fields describe, completed with what the library knows of a model of that name.

    A known model keeps what the fields do not tell (windows, biases, linear layers); of the fields it takes the number
    of layers, the vocabulary and whether embeddings are tied. The name counts only where hidden width and heads agree,
    so that a shortened or changed namesake is described by its own numbers.
    context: length of the position table where positions are learned and no named model tells it.
    InputError names an unknown or a missing field.
    """
    for key in shape:
        if key not in FIELDS:
            raise InputError(
                f"the shape of {shape.get('name', 'a model')} has '{key}'. {nearest(key, FIELDS)}"
            )
    fields = {key: value for key, value in shape.items() if value is not None}
    name = str(fields.get("name", "model"))
    known = library.find(name)
    if known is not None and _agrees(known, fields):
        return _adapted(known, fields, name)
    missing = [key for key in _NEEDED if key not in fields]
    if len(missing) == len(_NEEDED):
        return library.named(name)
    if missing:
        raise InputError(f"the shape of {name} lacks '{missing[0]}'. {nearest(missing[0], fields)}")
    return _described(fields, name, context)


def _agrees(known: Architecture, fields: Mapping[str, Any]) -> bool:
    return all(fields.get(key, getattr(known, key)) == getattr(known, key) for key in ("hidden", "heads"))


def _adapted(known: Architecture, fields: Mapping[str, Any], name: str) -> Architecture:
    """The known model with the layers, the vocabulary and the tying that the fields tell."""
    layers = _count(fields, "layers", name, known.layers)
    times = -(-layers // known.layers)
    return replace(
        known,
        name=name,
        layers=layers,
        pattern=(known.pattern * times)[:layers],
        vocabulary=_count(fields, "vocab", name, known.vocabulary),
        tied_embeddings=bool(fields.get("tied_embeddings", known.tied_embeddings)),
    )


def _described(fields: Mapping[str, Any], name: str, context: int) -> Architecture:
    """By the fields alone: of the layers of Llama where gated, else of GPT (LayerNorm and biases)."""
    if "hybrid_override_pattern" in fields:
        raise InputError(
            f"{name} has recurrent layers whose shape is not told; known are {', '.join(_hybrids())}"
        )
    layers, heads = _count(fields, "layers", name), _count(fields, "heads", name)
    hidden = _count(fields, "hidden", name)
    gated = bool(fields.get("gated_mlp", True))
    experts, latent = _experts(fields, name, gated), _latent(fields, name)
    feeds = _feeds(fields, layers) if experts else ["dense"] * layers
    mixer = "latent" if latent else "full"
    pattern = tuple(Layer(mixer, feed) for feed in feeds)  # type: ignore[arg-type]
    alike = set(pattern) == {Layer(mixer, "moe" if experts else "dense")}  # type: ignore[arg-type]
    return Architecture(
        name=name,
        family="llama" if gated else "gpt2",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads if latent else _count(fields, "kv_heads", name, heads),
        head_dim=latent.query_head_dim
        if latent
        else _count(fields, "head_dim", name, max(1, hidden // heads)),
        ffn=_count(fields, "ffn", name, experts.ffn if experts else 4 * hidden),
        vocabulary=_count(fields, "vocab", name),
        context=context,
        tied_embeddings=bool(fields.get("tied_embeddings", False)),
        activation="silu" if gated else "gelu",
        gated=gated,
        learned_positions=bool(fields.get("learned_pos", False)),
        norm_bias=not gated,
        qkv_bias=not gated,
        output_bias=not gated,
        ffn_bias=not gated,
        pattern=() if alike else pattern,
        experts=experts,
        latent=latent,
    )


def _experts(fields: Mapping[str, Any], name: str, gated: bool) -> Experts | None:
    if not fields.get("n_experts"):
        return None
    width = _count(fields, "moe_ffn", name, fields.get("ffn"))
    shared = int(fields.get("n_shared_experts", fields.get("n_shared", 0)))
    return Experts(
        _count(fields, "n_experts", name), _count(fields, "topk", name), width, shared * width, gated=gated
    )


def _latent(fields: Mapping[str, Any], name: str) -> Latent | None:
    """Latent attention; `mla` alone stands for the widths that Megatron-LM has as defaults.

    Source: Megatron-LM, megatron/core/transformer/transformer_config.py, MLATransformerConfig.
    """
    if not fields.get("kv_lora_rank") and not fields.get("mla"):
        if fields.get("q_lora_rank"):
            raise InputError(f"the shape of {name} has q_lora_rank without kv_lora_rank: it is not described")
        return None
    usual = (512, 128, 64, 128) if fields.get("mla") else (None,) * 4
    keys = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    widths = [_count(fields, key, name, default) for key, default in zip(keys, usual, strict=True)]
    rank = fields.get("q_lora_rank") or (512 if fields.get("mla") else None)
    return Latent(rank, *widths)


def _feeds(fields: Mapping[str, Any], layers: int) -> list[FeedForward]:
    """Experts after the first dense layers, or as `moe_layer_freq` lists them: `([0]*3+[1]*13)` of Megatron-LM."""
    frequency = fields.get("moe_layer_freq")
    if isinstance(frequency, str):
        sparse = _listed(frequency)
        if len(sparse) != layers:
            raise InputError(f"moe_layer_freq {frequency} lists {len(sparse)} layers of {layers}")
        return ["moe" if one else "dense" for one in sparse]
    first = int(fields.get("first_k_dense", 0))
    every = int(frequency or 1)
    return ["moe" if index >= first and index % every == 0 else "dense" for index in range(layers)]


def _listed(text: str) -> list[int]:
    """The numbers of a sum of lists times counts, `([0]*3+[1]*13)`; InputError on anything else."""
    numbers: list[int] = []
    for part in text.strip("() ").split("+"):
        inner, _, times = part.strip().partition("*")
        try:
            values = [int(word) for word in inner.strip("[] ").split(",")]
            numbers += values * (int(times) if times else 1)
        except ValueError:
            raise InputError(
                f"moe_layer_freq is {shown(text)}, a form like ([0]*3+[1]*13) is needed"
            ) from None
    return numbers


def _hybrids() -> list[str]:
    return [name for name in library.names() if library.named(name).recurrent]


def _count(fields: Mapping[str, Any], key: str, name: str, default: Any = None) -> int:
    value = fields.get(key, default)
    if value is None:
        raise InputError(f"the shape of {name} lacks '{key}'. {nearest(key, fields)}")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"the shape of {name} has {key} = {shown(value)}, a positive whole number is needed")
    return value
