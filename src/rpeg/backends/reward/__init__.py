"""Reward backends: built-in verifiers, and users' functions in a process that a time limit can end."""

from rpeg.backends.reward.scorer import RewardReport, Scorer, check_reward, make_scorer, make_verifier

__all__ = ["RewardReport", "Scorer", "check_reward", "make_scorer", "make_verifier"]
