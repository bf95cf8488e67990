"""Seconds of training and of scoring, op by op."""

from rpeg.cost.training.microbatches import Lengths
from rpeg.cost.training.seconds import Layouts
from rpeg.cost.training.stage import infer_stage, train_stage

__all__ = ["Layouts", "Lengths", "infer_stage", "train_stage"]
