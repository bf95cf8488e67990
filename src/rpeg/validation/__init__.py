"""Predictions of published measurements, and how far off they are."""

from rpeg.validation.outcome import KINDS, Kind, Outcome

__all__ = ["KINDS", "Kind", "Outcome"]
