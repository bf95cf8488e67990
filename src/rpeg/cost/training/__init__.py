"""Seconds of training and of scoring, op by op."""

from rpeg.cost.training.stage import infer_stage, train_stage

__all__ = ["infer_stage", "train_stage"]
