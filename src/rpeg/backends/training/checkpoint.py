"""A trainer's state on disk: safetensors and JSON, independent of how many ranks wrote it.

weights.safetensors     every parameter, full, by name
optimizer.safetensors   `exp_avg/<name>` and `exp_avg_sq/<name>`, where there is an optimizer
trainer.json            format, updates, skipped, optimizer configuration, digest of the weights
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from rpeg.backends.training import collectives
from rpeg.errors import InputError, RunError

if TYPE_CHECKING:
    from rpeg.backends.training.trainer import Trainer

FORMAT = 1
WEIGHTS, OPTIMIZER, COUNTS = "weights.safetensors", "optimizer.safetensors", "trainer.json"


def save(trainer: Trainer, directory: str) -> None:
    """Collective; the directory is there, whole, when it returns on any rank."""
    published = trainer.publish(trainer.updates)
    moments: dict[str, Tensor] = {}
    config = None
    if trainer.optimizer is not None:
        config = asdict(trainer.optimizer.config)
        for kind, local in trainer.optimizer.moments.items():
            full = trainer.parameters.full(local)
            moments.update({f"{kind}/{name}": tensor for name, tensor in full.items()})
    counts = {
        "format": FORMAT,
        "updates": trainer.updates,
        "skipped": trainer.skipped,
        "optimizer": config,
        "digest": published.digest,
    }

    def write(path: Path) -> None:
        save_file(published.tensors(), path / WEIGHTS)
        if moments:
            save_file(_plain(moments), path / OPTIMIZER)
        (path / COUNTS).write_text(json.dumps(counts, indent=1))

    _write_once(trainer, directory, write)


def save_model(trainer: Trainer, directory: str) -> None:
    """A Hugging Face directory (without tokenizer). Collective."""
    full = _plain(trainer.parameters.full(trainer.parameters.local))
    _write_once(trainer, directory, lambda path: trainer.model.save(str(path), full))


@torch.no_grad()
def load(trainer: Trainer, directory: str) -> None:
    """Raises InputError where the directory is not a state of this model."""
    path = Path(directory)
    try:
        counts = json.loads((path / COUNTS).read_text())
        weights = load_file(path / WEIGHTS)
        moments = load_file(path / OPTIMIZER) if trainer.optimizer is not None else {}
    except (OSError, ValueError) as error:
        raise InputError(f"{directory} holds no usable trainer state: {error}") from error
    if counts.get("format") != FORMAT:
        raise InputError(f"{path / COUNTS} has format {counts.get('format')}, this version reads {FORMAT}")
    _check_shapes(trainer, weights, path / WEIGHTS)
    trainer.parameters.scatter(weights, trainer.parameters.local)
    if trainer.optimizer is not None:
        for kind, local in trainer.optimizer.moments.items():
            named = {n.removeprefix(f"{kind}/"): t for n, t in moments.items() if n.startswith(f"{kind}/")}
            _check_shapes(trainer, named, path / OPTIMIZER)
            trainer.parameters.scatter(named, local)
    trainer.updates, trainer.skipped = int(counts["updates"]), int(counts["skipped"])


def _check_shapes(trainer: Trainer, tensors: Mapping[str, Tensor], path: Path) -> None:
    expected = {entry.name: entry.shape for entry in trainer.manifest.entries}
    for name in sorted(expected.keys() ^ tensors.keys()):
        where = "the model" if name in tensors else "the file"
        raise InputError(f"{path} is the state of another model: {name} is missing in {where}")
    for name, shape in expected.items():
        if tuple(tensors[name].shape) != shape:
            raise InputError(
                f"{path} is the state of another model: {name} is {tuple(tensors[name].shape)} there, "
                f"{shape} in the model"
            )


def _write_once(trainer: Trainer, directory: str, write: Callable[[Path], None]) -> None:
    """The first rank writes beside the target and renames; every rank learns how it went."""
    problem = ""
    if collectives.rank(trainer.group) == 0:
        try:
            _write_and_rename(Path(directory), write)
        except OSError as error:
            problem = str(error)
    problem = collectives.gather_json(problem, trainer.group, trainer.device)[0]
    if problem:
        raise RunError(f"cannot write {directory}: {problem}")


def _write_and_rename(target: Path, write: Callable[[Path], None]) -> None:
    """What stood at the target stays until the new directory is whole."""
    fresh, old = (target.with_name(f"{target.name}.{kind}-{os.getpid()}") for kind in ("new", "old"))
    fresh.mkdir(parents=True)
    try:
        write(fresh)
        if target.exists():
            target.rename(old)
        fresh.rename(target)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        if old.exists():
            old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the host that share no memory, as safetensors asks."""
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
