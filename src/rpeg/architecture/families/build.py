"""From the fields of a config to an `Architecture`: what families share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rpeg.architecture.families.config import Config
from rpeg.architecture.layers import Experts, FeedForward, Layer, Mixer
from rpeg.architecture.model import Architecture
from rpeg.errors import InputError, nearest

# what `layer_types` of transformers calls the mixers
_MIXERS: dict[str, Mixer] = {
    "full_attention": "full",
    "sliding_attention": "window",
    "chunked_attention": "window",
    "linear_attention": "recurrent",
}


def decoder(
    config: Config,
    *,
    mixers: Iterable[Mixer] | None = None,
    feeds: Iterable[FeedForward] | None = None,
    defaults: dict[str, int] | None = None,
    **traits: Any,
) -> Architecture:
    """An architecture from the field names of Llama, which most families use.

    mixers, feeds: of each layer; None: full attention, and experts where there are any. defaults: of fields that the
    family may leave out. traits: fields of `Architecture` that stand instead of what is read.
    """
    known = defaults or {}
    layers = config.count("num_hidden_layers", default=known.get("num_hidden_layers"))
    fields: dict[str, Any] = {
        "hidden": config.count("hidden_size"),
        "heads": config.count("num_attention_heads", default=known.get("num_attention_heads")),
        "vocabulary": config.count("vocab_size", default=known.get("vocab_size")),
        "context": config.count("max_position_embeddings", default=known.get("max_position_embeddings")),
        "tied_embeddings": config.flag("tie_word_embeddings"),
        "activation": config.text("hidden_act", "hidden_activation", default="silu"),
    }
    fields |= {key: value for key, value in traits.items() if key in fields}
    width = fields["hidden"] // fields["heads"]
    fields["kv_heads"] = config.count("num_key_value_heads", default=known.get("kv_heads", fields["heads"]))
    fields["head_dim"] = config.count("head_dim", default=known.get("head_dim", max(1, width)))
    if "ffn" not in traits:
        fields["ffn"] = config.count("intermediate_size")
    return assemble(config, layers, mixers, feeds, **{**fields, **traits})


def assemble(
    config: Config,
    layers: int,
    mixers: Iterable[Mixer] | None = None,
    feeds: Iterable[FeedForward] | None = None,
    **fields: Any,
) -> Architecture:
    """An architecture whose `pattern` is empty where the layers are all alike, without parts that no layer has."""
    plain, after = _usual(fields)
    mixing = list(mixers) if mixers is not None else [plain] * layers
    feeding = list(feeds) if feeds is not None else [after] * layers
    if "window" not in mixing:
        fields["window"] = None
    if "moe" not in feeding:
        fields["experts"] = None
    pattern = tuple(Layer(mixer, feed) for mixer, feed in zip(mixing, feeding, strict=True))
    made = {"name": config.name, "family": str(config.get("model_type")), "layers": layers, **fields}
    alike = set(pattern) == {Layer(*_usual(fields))}
    return Architecture(**made, pattern=() if alike else pattern)


def _usual(fields: dict[str, Any]) -> tuple[Mixer, FeedForward]:
    """What each layer of an architecture without a pattern is."""
    mixer: Mixer = "latent" if fields.get("latent") else "window" if fields.get("window") else "full"
    return mixer, "moe" if fields.get("experts") else "dense"


def layer_count(config: Config) -> int:
    """How many layers the config asks for."""
    return config.count("num_hidden_layers", "n_layer", "n_layers")


def mixers_of(config: Config, otherwise: Iterable[Mixer]) -> list[Mixer]:
    """How each layer mixes: `layer_types` where the config has them, else as given."""
    kinds = config.items("layer_types", layer_count(config))
    if kinds is None:
        return list(otherwise)
    for kind in kinds:
        if kind not in _MIXERS:
            raise InputError(f"layer_types of {config.name} has '{kind}'. {nearest(str(kind), _MIXERS)}")
    return [_MIXERS[kind] for kind in kinds]


def every(layers: int, period: int, rare: Mixer, common: Mixer) -> list[Mixer]:
    """`rare` in each period-th layer, `common` in the others."""
    return [rare if (index + 1) % period == 0 else common for index in range(layers)]


def dense_first(config: Config) -> list[FeedForward]:
    """Experts in all layers but the first `first_k_dense_replace`, or in each `moe_layer_freq`-th (or as listed)."""
    layers, first = layer_count(config), config.zero_or_more("first_k_dense_replace")
    frequency = config.get("moe_layer_freq") or 1
    if isinstance(frequency, list):
        listed = config.items("moe_layer_freq", layers) or []
        return ["moe" if sparse else "dense" for sparse in listed]
    frequency = config.count("moe_layer_freq", default=1)
    kinds = config.items("mlp_layer_types", layers)
    if kinds is not None:
        return ["moe" if kind == "sparse" else "dense" for kind in kinds]
    return ["moe" if index >= first and index % frequency == 0 else "dense" for index in range(layers)]


def sparse_steps(config: Config) -> list[FeedForward]:
    """Experts in each `decoder_sparse_step`-th layer that `mlp_only_layers` does not name (Qwen)."""
    layers, step = layer_count(config), config.count("decoder_sparse_step", default=1)
    dense = config.items("mlp_only_layers") or []
    return ["dense" if index in dense or (index + 1) % step else "moe" for index in range(layers)]


def experts_of(config: Config, *, ffn: str = "moe_intermediate_size", **traits: Any) -> Experts:
    """The mixture from its usual fields; shared experts are `n_shared_experts` of the routed ones' width."""
    width = config.count(ffn)
    if "shared_ffn" not in traits:
        traits["shared_ffn"] = config.zero_or_more("n_shared_experts") * width
    return Experts(
        count=config.count("n_routed_experts", "num_local_experts", "num_experts"),
        active=config.count("num_experts_per_tok", "experts_per_token"),
        ffn=width,
        **traits,
    )
