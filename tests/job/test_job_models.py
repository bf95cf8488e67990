from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from rpeg.errors import InputError
from rpeg.job import bundled
from rpeg.job.gguf import ArrayOf, metadata
from rpeg.job.models import ModelSource, resolve_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "org" / "model"
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps({"text_config": {"max_position_embeddings": 77}}))
    return directory


def test_directory_comes_before_a_hub_id(model: Path, tmp_path: Path) -> None:
    source = resolve_model("org/model", tmp_path)
    assert source == ModelSource("org/model", model.resolve())
    assert source.context() == 77
    assert source.pretrained == str(model.resolve())
    assert source.load_options == {}


def test_a_typo_below_an_existing_directory_is_no_hub_id(model: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Did you mean 'model'"):
        resolve_model("org/modle", tmp_path)


def test_hub_id_that_is_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    source = resolve_model("some-org/name", tmp_path)
    assert source == ModelSource("some-org/name", None)
    assert source.pretrained == "some-org/name"
    with pytest.raises(InputError, match="hf download some-org/name"):
        source.config()


def test_hub_id_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    cached = tmp_path / "models--some-org--name"
    snapshot = cached / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("abc")
    (snapshot / "config.json").write_text('{"n_positions": 5}')
    source = resolve_model("some-org/name", tmp_path / "elsewhere")
    assert source.directory == snapshot
    assert source.context() == 5


def test_bundled_names_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "config.json").write_text("{}")
    monkeypatch.setattr(bundled, "ASSETS", tmp_path)
    assert resolve_model("bundled:small").directory == tmp_path / "small"
    with pytest.raises(InputError, match="Did you mean 'small'"):
        resolve_model("bundled:smal")
    with pytest.raises(InputError):
        resolve_model("bundled:../small")


def test_package_is_found_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "some_model_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match="holds 0 GGUF files"):
        resolve_model("package:some_model_package")
    write_gguf(package / "weights.gguf")
    source = resolve_model("package:some_model_package")
    assert source.load_options == {"gguf_file": "weights.gguf"}
    assert source.config() == {"model_type": "llama", "max_position_embeddings": 64, "vocab_size": 2}


def test_gguf_metadata(tmp_path: Path) -> None:
    values = metadata(write_gguf(tmp_path / "a.gguf"))
    assert values["general.architecture"] == "llama"
    assert values["tokenizer.ggml.tokens"] == ArrayOf(2)
    assert values["llama.rope.freq_base"] == 0.5
    assert values["after.arrays"] == -1


@pytest.mark.parametrize("kept", [0, 3, 10, 40, 90])
def test_damaged_gguf(kept: int, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf")
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InputError, match="GGUF"):
        metadata(path)


def write_gguf(path: Path) -> Path:
    """A header without tensors: strings, numbers, an array of strings and one of arrays."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    entries = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("llama.context_length") + struct.pack("<II", 4, 64),
        text("llama.rope.freq_base") + struct.pack("<If", 6, 0.5),
        text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc"),
        text("nested") + struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ", 4, 1) + struct.pack("<I", 7),
        text("after.arrays") + struct.pack("<Iq", 11, -1),
    ]
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries))
    return path
