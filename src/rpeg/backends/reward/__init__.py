"""Reward backends: built-in verifiers, and users' functions in a process that a time limit can end."""

from rpeg.backends.reward.scorer import RewardReport, Scorer, check_reward, make_scorer, make_verifier
from rpeg.backends.reward.total import Total, TotalReport, make_total

__all__ = [
    "RewardReport",
    "Scorer",
    "Total",
    "TotalReport",
    "check_reward",
    "make_scorer",
    "make_total",
    "make_verifier",
]
