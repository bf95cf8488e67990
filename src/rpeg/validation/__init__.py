"""Predictions of published measurements, and how far off they are."""

from rpeg.validation.evaluate import Bug, Evaluation, Judged, evaluate, explained, predictors, select
from rpeg.validation.outcome import KINDS, Kind, Outcome
from rpeg.validation.read import Located, Reading, read_records
from rpeg.validation.statistics import Fits, Statistics, fits, statistics
from rpeg.validation.summary import Group, Reason, Summary, summarise

__all__ = [
    "KINDS",
    "Bug",
    "Evaluation",
    "Fits",
    "Group",
    "Judged",
    "Kind",
    "Located",
    "Outcome",
    "Reading",
    "Reason",
    "Statistics",
    "Summary",
    "evaluate",
    "explained",
    "fits",
    "predictors",
    "read_records",
    "select",
    "statistics",
    "summarise",
]
