"""The form of records: values of the wrong kind are refused before a reader stumbles over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rpeg.errors import InputError
from rpeg.fields import is_number, is_text, shown
from rpeg.validation.outcome import Kind

Record = Mapping[str, Any]

_COUNTS = (
    *("n_gpus", "gpus_per_node", "seq_len", "global_batch", "micro_batch", "isl", "osl", "concurrency"),
    *("tp", "pp", "cp", "ep", "dp", "vpp", "attention_dp", "moe_tp"),
)
_TEXTS = (
    *("gpu", "framework", "engine", "mode", "precision", "weight_precision", "kv_precision", "moe_precision"),
    *("recompute", "interconnect", "mem_basis", "attention", "status", "sharding", "task", "mechanism"),
)
_OBJECTS = ("measured", "target", "setting", "metrics", "train", "gen", "derived", "options")
_SHAPES = (
    *("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "head_dim", "n_experts", "topk", "moe_ffn"),
    *("n_shared_experts", "first_k_dense", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim"),
    *("qk_rope_head_dim", "v_head_dim", "n_params"),
)
_REQUIRED: Mapping[Kind, tuple[str, ...]] = {
    "train": ("model", "gpu"),
    "infer_static": ("model", "gpu", "engine", "isl", "osl"),
    "infer_loop": ("model", "gpu", "engine", "isl", "osl"),
    "memory": ("model", "gpu"),
}


def check_form(record: Record, kind: Kind) -> None:
    """InputError names a field that is missing or whose value is none of its kind; null is as good as missing."""
    for key in _REQUIRED.get(kind, ()):
        if record.get(key) is None:
            raise InputError(f"a record of {kind} needs '{key}'")
    _each(record, _COUNTS, _is_count, "a number of at least 0")
    _each(record, _TEXTS, is_text, "a text")
    _each(record, _OBJECTS, lambda value: isinstance(value, Mapping), "an object")
    _each(record, ("zero_stage",), lambda value: value in (0, 1, 2, 3), "0, 1, 2 or 3")
    _each(
        record, ("model",), lambda value: is_text(value) or isinstance(value, Mapping), "an object or a name"
    )
    model = record.get("model")
    if isinstance(model, Mapping):
        _each(model, _SHAPES, _is_count, "a number of at least 0")
        _each(model, ("name",), is_text, "a text")
    for part in ("measured", "target"):
        figures: Mapping[str, Any] = record.get(part) or {}
        _each(figures, tuple(filter(_is_figure, figures)), _is_measured, "a number")


def _each(record: Record, keys: tuple[str, ...], fits: Callable[[Any], bool], needed: str) -> None:
    for key in keys:
        value = record.get(key)
        if value is not None and not fits(value):
            raise InputError(f"the record has {key} = {shown(value)}, {needed} is needed")


def _is_count(value: Any) -> bool:
    """0 stands for a way of cutting that is not used."""
    return is_number(value) and value >= 0


def _is_figure(name: Any) -> bool:
    return is_text(name) and (name.startswith("peak_mem") or name.endswith(("_s", "_ms", "_bytes")))


def _is_measured(value: Any) -> bool:
    """A number, or several in a list or an object."""
    return is_number(value) or isinstance(value, list | Mapping)
