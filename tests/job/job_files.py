"""A valid job with its model and data in a directory, and ways to break it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import yaml

VALID: dict[str, Any] = {
    "name": "tiny",
    "algorithm": {"name": "ppo", "lam": 0.9},
    "models": {"actor": {"path": "./model"}},
    "data": {"train": "train.jsonl", "heldout": "heldout.jsonl"},
    "reward": {"name": "numeric"},
    "batch": {"prompts": 4, "samples_per_prompt": 2, "minibatches": 2},
    "lengths": {"max_prompt": 16, "max_response": 8},
    "optimizer": {"lr": "3e-4"},
    "cluster": {"cpu": 1},
    "steps": 3,
    "evaluation": {"every": 1, "prompts": 4},
    "output": "run",
}

REMOVE = object()


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    """The valid job with values set (or removed, by REMOVE) at dotted keys."""
    job = copy.deepcopy(VALID)
    for dotted, value in changes.items():
        *path, last = dotted.split(".")
        section = job
        for name in path:
            section = section.setdefault(name, {})
        if value is REMOVE:
            del section[last]
        else:
            section[last] = value
    return job


def write_records(path: Path, count: int, prompt: str = "prompt") -> Path:
    """Additions, one a line."""
    rows = [{prompt: f"{a} + {a + 1} =", "answer": str(2 * a + 1)} for a in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_job(directory: Path, changes: dict[str, Any] | None = None) -> Path:
    """`job.yaml` with a model of context 32, 8 training and 6 held-out prompts beside it."""
    write_model(directory / "model")
    write_records(directory / "train.jsonl", 8)
    write_records(directory / "heldout.jsonl", 6)
    job = directory / "job.yaml"
    job.write_text(
        yaml.safe_dump(changed({"output": str(directory / "run"), **(changes or {})}), sort_keys=False)
    )
    return job


def write_model(directory: Path, context: int = 32) -> Path:
    """A directory with the config of a model, without weights."""
    directory.mkdir()
    config = {
        "model_type": "llama",
        "vocab_size": 300,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "max_position_embeddings": context,
    }
    (directory / "config.json").write_text(json.dumps(config))
    return directory
