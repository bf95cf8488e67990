"""Records of `memory`: what a published row describes, predicted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rpeg.validation.outcome import Outcome


def predict(record: Mapping[str, Any]) -> Outcome:
    """The outcome of one row; what it describes and cannot be expressed is named in the outcome's reason."""
    raise NotImplementedError
