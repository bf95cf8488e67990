"""Weights & Biases. Without a key and WANDB_MODE it stays offline in RUN/wandb (`wandb sync` sends it later)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rpeg.job import Job, dump_job

PACKAGE = "wandb"


class _WandB:
    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


def open_logger(job: Job, run: Path, first_step: int) -> _WandB:
    """A run of the job's name; a resumed one goes on under the same id. (docs.wandb.ai/ref/python/init)"""
    import wandb
    import yaml

    os.environ.setdefault("WANDB_SILENT", "true")  # the console is the view's
    mode = os.environ.get("WANDB_MODE") or (None if _has_key() else "offline")
    opened = wandb.init(
        project=os.environ.get("WANDB_PROJECT", "rpeg"),
        name=job.name,
        id=_id(run),
        resume="allow",
        dir=str(run),
        mode=mode,
        config=yaml.safe_load(dump_job(job)),
    )
    return _WandB(opened)


def _has_key() -> bool:
    """By environment or by `wandb login`, which writes to ~/.netrc."""
    netrc = Path(os.environ.get("NETRC") or "~/.netrc").expanduser()
    return bool(os.environ.get("WANDB_API_KEY")) or (
        netrc.is_file() and "wandb" in netrc.read_text(errors="ignore")
    )


def _id(run: Path) -> str:
    """One for a run's directory, kept in it."""
    file = run / "wandb-id"
    if not file.exists():
        import secrets

        file.write_text(secrets.token_hex(4))
    return file.read_text().strip()
