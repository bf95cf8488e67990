"""How far the model was off on measurements that others published: what stands beside every prediction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class ModelError:
    """Over published measurements of one kind that were not tuned on. Shares of the measured value.

    median, p90: of the absolute error. bias: mean of the signed one, below zero where predictions are too small.
    """

    what: str
    records: int
    median: float
    p90: float
    bias: float

    def likely(self, predicted: float) -> tuple[float, float]:
        """Between which values 9 of 10 measurements lie that are predicted so, were the error theirs."""
        return predicted / (1 + self.p90), predicted / (1 - self.p90)


@cache
def model_errors() -> Mapping[str, ModelError]:
    """By kind of record (`rpeg validate`). The file is written by scripts/document_model.py."""
    data = json.loads((files("rpeg.report") / "data" / "model_error.json").read_text(encoding="utf-8"))
    return {kind: ModelError(**fields) for kind, fields in data.items()}
