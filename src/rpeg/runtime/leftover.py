"""Samples that a selector leaves to the next step: a file for every step, `RUN/carried/STAGE-STEP.npz`.

A step reads what the one before has written, so that a resumed run goes on with what there was at its checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rpeg.backends.samples import Samples
from rpeg.runtime.run_directory import CARRIED


@dataclass(frozen=True)
class Leftover:
    """Of one stage of the run in directory `run`."""

    run: Path
    stage: str

    def path(self, step: int) -> Path:
        return self.run / CARRIED / f"{self.stage}-{step}.npz"

    def read(self, step: int) -> Samples | None:
        """What the step before has left to this one; None where that is nothing."""
        path = self.path(step - 1)
        if not path.exists():
            return None
        with np.load(path, allow_pickle=False) as file:
            columns = {name: file[name] for name in file.files}
        token, sample = (
            {
                name.partition("/")[2]: column
                for name, column in columns.items()
                if name.startswith(f"{kind}/")
            }
            for kind in ("token", "sample")
        )
        return Samples(
            columns["ids"],
            columns["lengths"],
            token,
            sample,
            columns["prompts"],
            columns["prompt_lengths"],
            columns["responses"],
            columns.get("whole_lengths"),
            columns.get("drawn"),
        )

    def write(self, step: int, samples: Samples) -> None:
        """What this step leaves to the next one; a file of an earlier attempt goes."""
        path = self.path(step)
        if not len(samples):
            path.unlink(missing_ok=True)
            return
        assert samples.prompts is not None
        assert samples.prompt_lengths is not None
        assert samples.responses is not None
        columns = {
            "ids": samples.ids,
            "lengths": samples.lengths,
            "prompts": samples.prompts,
            "prompt_lengths": samples.prompt_lengths,
            "responses": samples.responses,
            **{n: c for n in ("whole_lengths", "drawn") if (c := getattr(samples, n)) is not None},
            **{f"token/{name}": column for name, column in samples.token.items()},
            **{f"sample/{name}": column for name, column in samples.sample.items()},
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            np.savez(file, **columns)
        partial.rename(path)
