"""Seconds of training and of scoring, op by op."""

from rpeg.cost.training.microbatches import Lengths
from rpeg.cost.training.seconds import infer_seconds, train_seconds
from rpeg.cost.training.stage import infer_stage, train_stage

__all__ = ["Lengths", "infer_seconds", "infer_stage", "train_seconds", "train_stage"]
