"""RPEG: plan, predict and run reinforcement-learning post-training as one graph."""

__version__ = "0.1.0"
