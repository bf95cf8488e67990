"""What a run leaves on disk, and where a resumed run goes on.

RUN/job.yaml                the job as it was understood
RUN/plan.json               the plan that it runs by; earlier ones are in the stretches that ran by them
RUN/metrics.jsonl           one step a line
RUN/evaluations.jsonl       one evaluation a line
RUN/data.json               what the prompts were when the run began
RUN/samples/                samples to read, see `rpeg.trace.kept`
RUN/trace-1/                see `rpeg.trace.files`
RUN/checkpoint-000020/      after 20 steps: state.json, a directory for each trained model, and `MODEL@VERSION` of each
                            older version that an exact edge reads at a later step
RUN/carried/                what host stages carry from step to step, see `carried`
RUN/predicted/              the simulated run of the same plan
RUN/model/                  the trained actor in the Hugging Face layout
RUN/trace.json              the last stretch, for a trace viewer
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rpeg.backends.disk import sync, write_durably
from rpeg.errors import InputError

SCHEMA = 2
CARRIED = "carried"
WRITTEN = "written-"
"""How the files begin that tell of what is whole in a checkpoint that is being written."""


@dataclass(frozen=True)
class Checkpoint:
    """steps: how many were done when it was written."""

    path: Path
    steps: int


@dataclass(frozen=True)
class RunDirectory:
    """The directory of one run."""

    path: Path

    @property
    def plan(self) -> Path:
        return self.path / "plan.json"

    @property
    def job(self) -> Path:
        return self.path / "job.yaml"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def evaluations(self) -> Path:
        return self.path / "evaluations.jsonl"

    @property
    def data(self) -> Path:
        return self.path / "data.json"

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def predicted(self) -> Path:
        return self.path / "predicted"

    @property
    def is_used(self) -> bool:
        """Whether a run has begun here."""
        return self.plan.exists() or self.job.exists() or any(self.path.glob("trace-*"))

    def clear(self) -> None:
        """Removes what a run left, and nothing else."""
        files = (self.plan, self.job, self.metrics, self.evaluations, self.data, self.path / "trace.json")
        for path in files:
            path.unlink(missing_ok=True)
        for directory in (
            *self.path.glob("trace-*"),
            *self.path.glob("checkpoint-*"),
            self.model,
            self.predicted,
            self.path / "samples",
            self.path / CARRIED,
        ):
            shutil.rmtree(directory, ignore_errors=True)

    def keep_plan_of_stretches(self) -> None:
        """Before another plan takes its place, those that ran by it get it for themselves."""
        for stretch in self.path.glob("trace-*"):
            if not (stretch / "plan.json").exists():
                shutil.copyfile(self.plan, stretch / "plan.json")

    def checkpoints(self) -> list[Checkpoint]:
        """Whole checkpoints, oldest first; damaged ones are passed over."""
        paths = sorted(path for path in self.path.glob("checkpoint-*") if not path.suffix)
        return [Checkpoint(path, steps) for path in paths if (steps := _steps_of(path)) is not None]

    @property
    def last_checkpoint(self) -> Checkpoint | None:
        """The newest whole one."""
        return next(reversed(self.checkpoints()), None)

    def damaged(self) -> list[Path]:
        """What is named like a checkpoint and is not whole."""
        whole = {checkpoint.path for checkpoint in self.checkpoints()}
        return sorted(p for p in self.path.glob("checkpoint-*") if not p.suffix and p not in whole)

    def begin_checkpoint(self, steps: int) -> Path:
        """Where trainers write the state after `steps` steps; invisible to a resume until it is committed."""
        path = self._partial(steps)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def take_over(self, model: str, version: int, partial: Path) -> None:
        """Links a version's weights from an older checkpoint into one that is being written, unless it has them."""
        target = partial / f"{model}@{version}"
        sources = [
            path
            for c in self.checkpoints()
            for path in (c.path / target.name, c.path / model)
            if path.is_dir() and (path.name == target.name or c.steps == version)
        ]
        if target.exists() or not sources:
            return
        target.mkdir()
        for file in sources[-1].glob("weights*"):
            _link(file, target / file.name)

    def drop_unfinished(self) -> None:
        """Removes what a run that broke off, or stopped early, had begun to write."""
        for path in self.path.glob("checkpoint-*.*"):
            shutil.rmtree(path, ignore_errors=True)

    def commit_checkpoint(self, steps: int, seed: int, keep: int) -> Checkpoint:
        """Makes a written checkpoint the newest and removes all but the last `keep`.

        Whenever a crash comes, the older ones are whole until this one is, on the disk.
        """
        partial, final = self._partial(steps), self.path / f"checkpoint-{steps:06d}"
        for mark in partial.glob(f"{WRITTEN}*"):
            mark.unlink()
        state = {"schema": SCHEMA, "steps": steps, "seed": seed, "files": _files(partial)}
        write_durably(partial / "state.json", json.dumps(state) + "\n")
        sync(partial)
        if final.exists():  # damaged: a whole one would have been gone on from
            _remove(final)
        partial.rename(final)
        sync(self.path)
        for old in self.checkpoints()[:-keep]:
            _remove(old.path)
        self._drop_carried_before(min((c.steps for c in self.checkpoints()), default=0) - 1)
        return Checkpoint(final, steps)

    def _drop_carried_before(self, step: int) -> None:
        """Files of samples that no checkpoint can go on with."""
        for path in (self.path / CARRIED).glob("*-*.npz"):
            number = path.stem.rpartition("-")[2]
            if number.isdigit() and int(number) < step:
                path.unlink()

    def steps_recorded(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, those of stretches before a resume included; a torn one is left out."""
        return _lines(self.metrics)

    def drop_metrics_from(self, step: int) -> None:
        """Forgets steps and evaluations that a resumed run will do again."""
        for file in (self.metrics, self.evaluations):
            if file.exists():
                kept = [record for record in _lines(file) if record["step"] < step]
                fresh = file.with_suffix(".kept")
                write_durably(fresh, "".join(f"{json.dumps(record)}\n" for record in kept))
                fresh.replace(file)

    def _partial(self, steps: int) -> Path:
        return self.path / f"checkpoint-{steps:06d}.partial"


def _remove(checkpoint: Path) -> None:
    """What makes it count goes first, so that none counts of which a part is gone."""
    (checkpoint / "state.json").unlink(missing_ok=True)
    shutil.rmtree(checkpoint)


def _link(file: Path, target: Path) -> None:
    """Another name for a file that is never changed; a copy where the file system has no such names."""
    try:
        target.hardlink_to(file)
    except OSError:
        shutil.copyfile(file, target)
        sync(target)


def _lines(file: Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file; a torn line is left out. InputError for one that is none of ours."""
    if not file.exists():
        return []
    try:
        found = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]
        if not all(isinstance(line["step"], int) for line in found):
            raise ValueError("a line without the number of a step")
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} is damaged: {error}. Repair or remove it") from None
    return found


def _files(checkpoint: Path) -> dict[str, str | int]:
    """What a checkpoint consists of: of small files the digest, of tensors, which have digests of their own, the size."""
    found = (path for path in sorted(checkpoint.rglob("*")) if path.is_file() and path.name != "state.json")
    return {str(path.relative_to(checkpoint)): _told(path) for path in found}


def _told(file: Path) -> str | int:
    if file.suffix == ".safetensors":
        return file.stat().st_size
    return hashlib.blake2b(file.read_bytes(), digest_size=8).hexdigest()


def _steps_of(checkpoint: Path) -> int | None:
    """How many steps were done when a checkpoint was written; None where it is not whole, or not the one it is named."""
    try:
        state = json.loads((checkpoint / "state.json").read_text())
        named = checkpoint.name == f"checkpoint-{state['steps']:06d}"
        if state["schema"] != SCHEMA or not named or _files(checkpoint) != state["files"]:
            return None
        return int(state["steps"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
