"""Running a plan on real processes."""

from rpeg.runtime.record import StepRecord
from rpeg.runtime.recorder import View
from rpeg.runtime.run_directory import Checkpoint, RunDirectory
from rpeg.runtime.train import Options, Outcome, prepare_directory, train

__all__ = [
    "Checkpoint",
    "Options",
    "Outcome",
    "RunDirectory",
    "StepRecord",
    "View",
    "prepare_directory",
    "train",
]
