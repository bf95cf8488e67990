"""What an architecture must satisfy to be one."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, get_args

from rpeg.architecture.layers import FeedForward, Mixer
from rpeg.errors import InputError, nearest

if TYPE_CHECKING:
    from rpeg.architecture.model import Architecture

_COUNTS = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocabulary", "context")
# fields of the parts that may be 0
_OPTIONAL = {"shared_ffn", "index_heads", "index_head_dim"}


def check(architecture: Architecture) -> None:
    """InputError where the numbers describe no model; it names the fields and their values."""
    where = f"architecture {architecture.name}"
    for field in _COUNTS:
        _positive(where, field, getattr(architecture, field))
    if architecture.heads % architecture.kv_heads:
        raise InputError(f"{where}: {architecture.heads} heads cannot share {architecture.kv_heads} kv_heads")
    if architecture.window is not None:
        _positive(where, "window", architecture.window)
    for name in ("experts", "latent", "recurrent"):
        _check_part(f"{where}: {name}", getattr(architecture, name))
    _check_experts(where, architecture)
    _check_pattern(where, architecture)


def _positive(where: str, field: str, value: Any) -> None:
    if not isinstance(value, int) or value < 1:
        raise InputError(f"{where}: {field} is {value}, at least 1 is needed")


def _check_part(where: str, part: Any) -> None:
    """Every number of a part is at least 1 (or absent, where it may be)."""
    for field in dataclasses.fields(part) if part is not None else ():
        value = getattr(part, field.name)
        if isinstance(value, bool | str) or value is None or (field.name in _OPTIONAL and value == 0):
            continue
        _positive(where, field.name, value)


def _check_experts(where: str, architecture: Architecture) -> None:
    experts = architecture.experts
    if experts and experts.active > experts.count:
        raise InputError(f"{where}: a token cannot pass {experts.active} of {experts.count} experts")
    recurrent = architecture.recurrent
    if recurrent and recurrent.heads % recurrent.groups:
        raise InputError(f"{where}: {recurrent.heads} recurrent heads cannot share {recurrent.groups} groups")


def _check_pattern(where: str, architecture: Architecture) -> None:
    pattern = architecture.pattern
    if pattern and len(pattern) != architecture.layers:
        raise InputError(f"{where}: pattern names {len(pattern)} layers, layers is {architecture.layers}")
    needs = {
        "window": architecture.window,
        "latent": architecture.latent,
        "recurrent": architecture.recurrent,
        "moe": architecture.experts,
    }
    for layer in dict.fromkeys(pattern):
        for word, known in ((layer.mixer, get_args(Mixer)), (layer.feed_forward, get_args(FeedForward))):
            if word not in known:
                raise InputError(f"{where}: pattern has a layer '{word}'. {nearest(word, known)}")
            if word in needs and not needs[word]:
                field = "experts" if word == "moe" else word
                raise InputError(f"{where}: pattern has a {word} layer, but {field} is not given")
        if (layer.mixer, layer.feed_forward) == ("none", "none"):
            raise InputError(f"{where}: pattern has a layer with neither mixer nor feed-forward part")
