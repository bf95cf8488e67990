"""Architectures from the `config.json` of a Hugging Face model directory.

A family is one function in `families`, found by `model_type`; models that also see or hear are read by their
`text_config`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rpeg.architecture.families import FAMILIES, Config
from rpeg.architecture.families.unread import notes, refuse_unread
from rpeg.architecture.model import Architecture
from rpeg.errors import InputError, nearest


def from_config(config: Mapping[str, Any], name: str = "") -> Architecture:
    """The architecture that a Hugging Face config describes.

    name: how messages and reports call it; default: what the config says.
    InputError names an unknown model_type, a missing field, or one that shapes models but not this family's.
    """
    return _read(config, name)[0]


def config_notes(config: Mapping[str, Any], name: str = "") -> tuple[str, ...]:
    """What the architecture of a config leaves out, and fields that are not known: a sentence each."""
    return _read(config, name)[1]


def read(directory: str | Path, name: str = "") -> Architecture:
    """The architecture of the model in a directory, from its `config.json`."""
    return from_config(_config_of(directory), name or Path(directory).name)


def read_notes(directory: str | Path, name: str = "") -> tuple[str, ...]:
    """`config_notes` of the model in a directory."""
    return config_notes(_config_of(directory), name or Path(directory).name)


def _read(data: Mapping[str, Any], name: str) -> tuple[Architecture, tuple[str, ...]]:
    label = name or str(data.get("_name_or_path") or data.get("model_type"))
    data, beside = _text_part(data, label)
    kind = data.get("model_type")
    if not isinstance(kind, str):
        raise InputError(
            f"the config of {name or 'the model'} has no 'model_type': is it a Hugging Face model?"
        )
    if kind not in FAMILIES:
        raise InputError(
            f"model_type '{kind}' of {name or 'the model'} is not known. {nearest(kind, FAMILIES)}"
        )
    config = Config(data, label)
    architecture = FAMILIES[kind](config)
    refuse_unread(config)
    return architecture, beside + notes(config)


def _text_part(data: Mapping[str, Any], name: str) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The config of the language model, where it is nested, and a note on what stands beside it."""
    text = data.get("text_config")
    kind = data.get("model_type")
    if not isinstance(text, Mapping) or (isinstance(kind, str) and kind in FAMILIES):
        return data, ()
    inner = {"model_type": f"{kind}_text", **text}
    if isinstance(data.get("tie_word_embeddings"), bool):
        inner.setdefault("tie_word_embeddings", data["tie_word_embeddings"])
    return inner, (f"{name}: the language model of '{kind}' alone is counted, not what sees or hears",)


def _config_of(directory: str | Path) -> Mapping[str, Any]:
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
    return config
