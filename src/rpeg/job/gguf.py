"""The header of a GGUF file: the key-value metadata before its tensors, without reading any tensor.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from rpeg.errors import InputError

_MAGIC = b"GGUF"
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LONGEST = 1 << 31  # bytes of a string, entries of an array: more means that the file is damaged


class ArrayOf(int):
    """The number of entries of an array; the entries are passed over."""


def metadata(path: Path) -> dict[str, Any]:
    """Every key with its value; of an array only its length (`ArrayOf`). InputError when it is no GGUF file."""
    try:
        with path.open("rb") as file:
            if file.read(4) != _MAGIC:
                raise InputError(f"{path} is not a GGUF file")
            version = _number(file, "I")
            if version not in (2, 3):
                raise InputError(f"{path} is GGUF version {version}, versions 2 and 3 can be read")
            _tensors, count = _number(file, "Q"), _number(file, "Q")
            return {_string(file): _value(file, _number(file, "I")) for _ in range(count)}
    except (OSError, struct.error, UnicodeDecodeError, KeyError, OverflowError) as error:
        raise InputError(f"{path} cannot be read as GGUF: {error}") from None


def huggingface_config(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a Hugging Face `config.json` that describe the shape, from GGUF metadata."""
    kind = str(values.get("general.architecture", ""))
    names = {
        "hidden_size": "embedding_length",
        "intermediate_size": "feed_forward_length",
        "num_hidden_layers": "block_count",
        "num_attention_heads": "attention.head_count",
        "num_key_value_heads": "attention.head_count_kv",
        "head_dim": "attention.key_length",
        "max_position_embeddings": "context_length",
        "vocab_size": "vocab_size",
    }
    config = {
        ours: values[f"{kind}.{theirs}"] for ours, theirs in names.items() if f"{kind}.{theirs}" in values
    }
    config.setdefault("vocab_size", int(values.get("tokenizer.ggml.tokens", 0)))
    return {"model_type": kind, **config}


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        return _skip_array(file)
    return _number(file, _SCALARS[kind])


def _skip_array(file: BinaryIO) -> ArrayOf:
    kind, count = _number(file, "I"), _bounded(_number(file, "Q"))
    if kind in (_STRING, _ARRAY):
        for _ in range(count):
            if kind == _ARRAY:
                _skip_array(file)
            else:
                file.seek(_bounded(_number(file, "Q")), 1)
    else:
        file.seek(count * struct.calcsize(_SCALARS[kind]), 1)
    return ArrayOf(count)


def _string(file: BinaryIO) -> str:
    return file.read(_bounded(_number(file, "Q"))).decode("utf-8")


def _number(file: BinaryIO, code: str) -> Any:
    return struct.unpack(f"<{code}", file.read(struct.calcsize(f"<{code}")))[0]


def _bounded(size: int) -> int:
    if size > _LONGEST:
        raise OverflowError(f"a length of {size} is beyond any real file")
    return size
