"""`Outcome`: a measurement that somebody published beside what the model says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rpeg.cost.tree import Cost

Kind = Literal["train", "infer_static", "infer_loop", "memory", "real", "rl", "weightsync"]
KINDS: tuple[Kind, ...] = ("train", "infer_static", "infer_loop", "memory", "real", "rl", "weightsync")


@dataclass(frozen=True)
class Outcome:
    """One record.

    measured, predicted: in `unit` (seconds, bytes); None where the record has no figure or the model cannot
    express it, and then `reason` says why. setting: the record in a few words, as a report shows it.
    fits: whether it was seen to fit into memory; predicted_fits: whether it should; None where not known.
    confirmed: False where what did not run may have failed for another reason than memory.
    """

    id: str
    source: str
    kind: Kind
    setting: str
    measured: float | None
    predicted: float | None = None
    unit: str = "s"
    cost: Cost | None = None
    reason: str = ""
    core: bool = False
    suspect: bool = False
    fits: bool | None = None
    predicted_fits: bool | None = None
    confirmed: bool = True

    @property
    def error(self) -> float | None:
        """(predicted − measured) / measured, None where either is missing."""
        if self.measured is None or self.predicted is None:
            return None
        return (self.predicted - self.measured) / self.measured
