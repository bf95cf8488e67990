"""The form of records: values of the wrong kind are refused before a reader stumbles over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rpeg.errors import InputError
from rpeg.fields import is_number, is_text, shown
from rpeg.validation.outcome import Kind

Record = Mapping[str, Any]

_COUNTS = (
    *("seq_len", "global_batch", "micro_batch", "isl", "osl", "concurrency", "grad_accum", "local_batch"),
    *("lora_rank", "lora_r", "max_seq_len", "avg_seq_len", "max_total_sequence_length", "samples_per_step"),
    *("gen_batch", "train_batch", "train_gbs", "train_global_batch_size", "train_micro_batch_size"),
    *("logprob_batch_size", "num_prompts_per_step", "kl_penalty", "gen_gpu_mem_util"),
    *("staleness_bound_steps", "gpu_memory_utilization", "train_batch_size", "ppo_mini_batch_size"),
    *("micro", "mean_prompt", "mean_response"),
    *(
        "prompt_length/mean",
        "response_length/mean",
        "response_length/max",
        "max_seen_response",
        "max_response",
    ),
    *("actor_b", "ref_b", "critic_b", "reward_b", "batch_size", "prompt_len", "gen_len", "ppo_minibatches"),
)
_MOST = 10**9
_MOST_LAYERS = 10_000  # each is an object
# What lengths are drawn for one by one.
_SAMPLES = (
    "batch",
    "samples_per_step",
    "gen_batch",
    "num_prompts_per_step",
    "train_batch_size",
    "batch_size",
)
_MOST_SAMPLES = 10**6
_DEVICES = (
    *(
        "n_gpus",
        "gpus",
        "gpus_per_node",
        "tp",
        "pp",
        "cp",
        "ep",
        "dp",
        "vpp",
        "etp",
        "attention_dp",
        "moe_tp",
    ),
    *(
        f"{side}_{degree}"
        for side in ("train", "gen")
        for degree in ("tp", "pp", "cp", "ep", "gpus", "nodes")
    ),
    *(
        "gen_num_nodes",
        "gen_gpus_per_node",
        "tensor_parallelism",
        "pipeline_parallelism",
        "expert_parallelism",
    ),
    *("generation_tensor_parallelism", "generation_expert_parallelism", "rollout_tp", "infer_tp"),
    *("trainer_ranks", "rollout_ranks", "num_generations_per_prompt", "rollout_n"),
)
_MOST_DEVICES = 10**5
_WHOLE = (
    *("seq_len", "global_batch", "micro_batch", "isl", "osl", "concurrency", "train_micro_batch_size"),
    *(
        "logprob_batch_size",
        *_DEVICES,
        "batch",
        "grad_accum",
        "layers",
        "hidden",
        "heads",
        "kv_heads",
        "n_experts",
        "topk",
    ),
)
_POSITIVE: Mapping[Kind, tuple[str, ...]] = {
    "infer_static": ("isl", "osl", "batch"),
    "infer_loop": ("isl", "osl", "concurrency"),
    "rl": (
        "gpus",
        "n_gpus",
        "samples_per_step",
        "gen_batch",
        "train_global_batch_size",
        "train_gbs",
        "train_batch",
    ),
    "real": ("batch_size", "ppo_minibatches"),
}
_TEXTS = (
    *("gpu", "framework", "engine", "mode", "precision", "weight_precision", "kv_precision", "moe_precision"),
    *("recompute", "interconnect", "mem_basis", "attention", "status", "sharding", "task", "mechanism"),
)
_OBJECTS = ("measured", "target", "setting", "metrics", "derived", "options", "recipe_resolved", "lengths")
_OBJECTS_OF: Mapping[Kind, tuple[str, ...]] = {"real": ("plan", "calls")}
_LOOKED_INTO = ("setting", "recipe_resolved", "batch", "lengths", "train", "gen", "plan", "calls")
_SHAPES = (
    *("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "head_dim", "n_experts", "topk", "moe_ffn"),
    *("n_shared_experts", "first_k_dense", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim"),
    *("qk_rope_head_dim", "v_head_dim"),
)
_FLAGS = ("gated_mlp", "tied_embeddings", "learned_pos")
_REQUIRED: Mapping[Kind, tuple[str, ...]] = {
    "train": ("model", "gpu"),
    "infer_static": ("model", "gpu", "engine", "isl", "osl", "batch", "measured"),
    "infer_loop": ("model", "gpu", "engine", "isl", "osl", "concurrency", "measured"),
    "memory": ("model", "gpu"),
}
# The one figure that a kind is compared by has one value; others may have several.
_FIGURES: Mapping[Kind, tuple[str, ...]] = {
    "train": ("step_time_s",),
    "infer_static": ("latency_s", "ttft_ms", "output_tokens_per_s"),
    "infer_loop": ("tpot_ms",),
    "memory": ("peak_mem",),
    "rl": ("step_time_s", "tokens_per_s_per_gpu", "tokens_per_s_per_gpu_e2e"),
    "weightsync": ("bucket_gib",),
}
_CALLS = ("actor_gen", "rew_inf", "ref_inf", "critic_inf", "actor_train", "critic_train")


def check_form(record: Record, kind: Kind) -> None:
    """InputError names a field that is missing or whose value is none of its kind; null is as good as missing."""
    for key in _REQUIRED.get(kind, ()):
        if record.get(key) is None:
            raise InputError(f"a record of {kind} needs '{key}'")
    for fields in _places(record, kind):
        _each(fields, (*_COUNTS, *_DEVICES), _is_count, "a number of at least 0")
        _each(fields, _COUNTS, _at_most(_MOST), f"a number up to {_MOST:,}")
        _each(fields, _DEVICES, _at_most(_MOST_DEVICES), f"a number up to {_MOST_DEVICES:,}")
        _each(fields, _WHOLE, _is_whole, "a whole number")
        _each(fields, _POSITIVE.get(kind, ()), _is_positive, "a number of at least 1")
        _each(fields, _TEXTS, is_text, "a text")
        samples = (key for key in _SAMPLES if not isinstance(fields.get(key), Mapping))
        _each(fields, tuple(samples), _at_most(_MOST_SAMPLES), f"a number from 0 to {_MOST_SAMPLES:,}")
    _each(record, ("zero_stage",), lambda value: value in (0, 1, 2, 3), "0, 1, 2 or 3")
    _each(
        record, ("model",), lambda value: is_text(value) or isinstance(value, Mapping), "an object or a name"
    )
    model = record.get("model")
    if isinstance(model, Mapping):
        _check_shape(model)
    _check_figures(record, kind)


def _places(record: Record, kind: Kind) -> Iterator[Record]:
    """The record and the objects in it that readers look into, each checked to be an object."""
    inner = (*_OBJECTS, *_OBJECTS_OF.get(kind, ()))
    _each(record, inner, _is_object, "an object")
    yield record
    if kind == "rl" and "metrics" in record:
        _each(record, ("batch",), _is_object, "an object")
    for key in _LOOKED_INTO:
        fields = record.get(key)
        if isinstance(fields, Mapping):
            yield from _places(fields, kind)
    if kind == "real" and record.get("calls"):
        yield from _calls(record["calls"])


def _calls(calls: Record) -> Iterator[Record]:
    """ReaL's calls, each with its three degrees."""
    for call in _CALLS:
        layout = calls.get(call)
        if not isinstance(layout, Mapping) or not all(layout.get(key) for key in ("tp", "pp", "dp")):
            raise InputError(f"the call {call} has {shown(layout)}, an object with tp, pp and dp is needed")
        yield layout


def _check_shape(model: Record) -> None:
    _each(model, _SHAPES, _is_count, "a number of at least 0")
    _each(model, _SHAPES, _at_most(_MOST), f"a number up to {_MOST:,}")
    _each(model, _WHOLE, _is_whole, "a whole number")
    _each(model, ("layers",), _at_most(_MOST_LAYERS), f"a number up to {_MOST_LAYERS:,}")
    _each(model, ("n_params",), lambda value: is_number(value) and value >= 0, "a number of at least 0")
    _each(model, ("name",), is_text, "a text")
    _each(model, _FLAGS, lambda value: isinstance(value, bool), "true or false")


def _check_figures(record: Record, kind: Kind) -> None:
    for part in ("measured", "target"):
        figures: Record = record.get(part) or {}
        _each(figures, tuple(filter(_is_figure, figures)), _is_measured, "a number")
        _each(figures, _FIGURES.get(kind, ()), is_number, "a number")


def _each(record: Record, keys: tuple[str, ...], fits: Callable[[Any], bool], needed: str) -> None:
    for key in keys:
        value = record.get(key)
        if value is not None and not fits(value):
            raise InputError(f"the record has {key} = {shown(value)}, {needed} is needed")


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_count(value: Any) -> bool:
    """0 stands for a way of cutting that is not used."""
    return is_number(value) and value >= 0


def _is_whole(value: Any) -> bool:
    """8.0 is one; what is no number at all is for others to judge."""
    return not is_number(value) or value == int(value)


def _is_positive(value: Any) -> bool:
    return is_number(value) and value >= 1


def _at_most(most: int) -> Callable[[Any], bool]:
    return lambda value: is_number(value) and 0 <= value <= most


def _is_figure(name: Any) -> bool:
    return is_text(name) and (name.startswith("peak_mem") or name.endswith(("_s", "_ms", "_bytes")))


def _is_measured(value: Any) -> bool:
    """A number, or several in a list or an object."""
    return is_number(value) or isinstance(value, list | Mapping)
