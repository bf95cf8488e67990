"""A trained model out of a checkpoint, as users load it elsewhere."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import torch

from rpeg.backends.adapters import is_adapter, merged
from rpeg.backends.data import load_tokenizer
from rpeg.backends.headed import Headed, named_parameters
from rpeg.backends.models import load_model
from rpeg.backends.training.checkpoint import read_weights
from rpeg.errors import InputError
from rpeg.ir import Graph
from rpeg.job import load_job
from rpeg.plan import read_plan
from rpeg.runtime.holdings import DTYPES
from rpeg.runtime.model_files import model_files
from rpeg.runtime.run_directory import Checkpoint, RunDirectory
from rpeg.trace import sources


def export_model(
    run: RunDirectory, steps: int | None, model: str | None, output: Path | None, dtype: str | None
) -> Path:
    """Of the last checkpoint while a run goes on: one that is removed meanwhile is followed by a newer one.

    Otherwise as `_export`.
    """
    while True:
        last = run.last_checkpoint
        try:
            return _export(run, steps, model, output, dtype)
        except (InputError, FileNotFoundError):
            newest = run.last_checkpoint
            if steps is not None or newest is None or newest == last:
                raise


def _export(
    run: RunDirectory, steps: int | None, model: str | None, output: Path | None, dtype: str | None
) -> Path:
    """Writes a Hugging Face directory with its tokenizer, whatever layout the checkpoint is of; where it is.

    steps: of the checkpoint; None is the last. model: None is the first with an lm head. output: None is in the run's
    directory. dtype: None is that of training. Raises InputError where one of them does not exist, or output does.
    """
    if "fake" in sources(run.path):
        raise InputError(
            f"{run.path} is a run on fake devices: nothing was trained, and its checkpoints hold no weights"
        )
    checkpoint = _checkpoint(run, steps)
    job, graph = load_job(run.job), read_plan(run.plan).graph
    name = model if model is not None else _first(graph)
    if not (checkpoint.path / name).is_dir():
        trained = ", ".join(m.name for m in graph.models if m.trainable)
        raise InputError(f"{checkpoint.path} holds no {name}; trained are: {trained}")
    target = output or run.path / f"{name}-{checkpoint.steps:06d}"
    if target.exists():
        raise InputError(f"{target} exists; give another --output")
    heads = graph.model(name).heads
    kind = DTYPES[dtype or job.dtype]
    loaded = load_model(model_files(job, graph)[name], heads=heads, dtype=kind, device="cpu", seed=job.seed)
    _fill(loaded, checkpoint.path / name, job.lora.scale if job.lora else 0.0)
    loaded.hf.config.dtype = kind
    fresh = target.with_name(f"{target.name}.new-{os.getpid()}")
    try:
        loaded.save(str(fresh))
        load_tokenizer(job.models.source(name)).save_pretrained(fresh)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target


def _checkpoint(run: RunDirectory, steps: int | None) -> Checkpoint:
    found = run.checkpoints()
    if not found:
        raise InputError(f"{run.path} holds no whole checkpoint")
    of = {checkpoint.steps: checkpoint for checkpoint in found}
    if steps is not None and steps not in of:
        raise InputError(
            f"{run.path} holds no checkpoint after {steps} steps, only after {', '.join(map(str, of))}"
        )
    return found[-1] if steps is None else of[steps]


def first_policy(graph: Graph) -> str | None:
    """The first trained model with an lm head: what is exported where nobody names another."""
    return next((m.name for m in graph.models if m.trainable and "lm" in m.heads), None)


def _first(graph: Graph) -> str:
    name = first_policy(graph)
    if name is None:
        raise InputError(f"{graph.name} trains no language model; name one: --model")
    return name


@torch.no_grad()
def _fill(module: Headed, state: Path, adapter_scale: float) -> None:
    """Every parameter from a checkpoint; where that has adapters, what they are beside is as it was and they are added.

    InputError where it is of another model.
    """
    weights, parameters = read_weights(state), dict(named_parameters(module))
    if any(map(is_adapter, weights)):
        weights = merged({**parameters, **weights}, adapter_scale)
    if weights.keys() != parameters.keys():
        odd = sorted(weights.keys() ^ parameters.keys())
        raise InputError(f"{state} is the state of another model: {odd[0]} is in one of both only")
    for name, parameter in parameters.items():
        parameter.copy_(weights[name])
