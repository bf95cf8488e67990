"""Numbers that a host stage carries from step to step, such as an adaptive coefficient.

Its state is a line for every step in a file of the run, `RUN/carried/STAGE.jsonl`: a step reads what the one before has
written, so that a resumed run goes on with the state of the step that it resumes at, however far the first has got.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rpeg.errors import RunError
from rpeg.runtime.run_directory import CARRIED


@dataclass(frozen=True)
class Carried:
    """The state of one stage of the run in directory `run`."""

    run: Path
    stage: str

    @property
    def path(self) -> Path:
        return self.run / CARRIED / f"{self.stage}.jsonl"

    def before(self, step: int, initial: Mapping[str, float]) -> dict[str, float]:
        """What the step begins with: `initial` before the first, else what the step before has written last.

        RunError where that has written nothing. Empty where nothing is carried.
        """
        if not initial or step == 0:
            return dict(initial)
        found = None
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            record = _parsed(line)
            found = record["values"] if record.get("step") == step - 1 else found
        if found is None:
            names = ", ".join(initial)
            raise RunError(f"step {step} needs {names} of step {step - 1}, which {self.path} does not hold")
        return {name: float(found[name]) for name in initial}

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """What the next step will begin with; nothing where nothing is carried."""
        if not values:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write("\n" + json.dumps({"step": step, "values": dict(values)}) + "\n")


def _parsed(line: str) -> dict[str, Any]:
    """The record of a line; empty where a crash has torn it."""
    try:
        return dict(json.loads(line))
    except ValueError:
        return {}
