"""What generation ahead saves: the steady state of a generator whose free slots work on the next step.

It is read off three steps of equal lengths, generated one behind the other without a pause: the last one takes the time
by which it ends after the one before. An engine begins no step before the last but one has ended, so that two
neighbours take no less than a longest response does. Keys and values that are computed anew are not counted: one pass
over what was begun, a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rpeg.cost import Cost
from rpeg.ir import Graph, OnNewWeights, Stage
from rpeg.plan import Assignment
from rpeg.sim.costs import Floats

Ints = npt.NDArray[np.int64]

_STEPS = 3


def overlaps(graph: Graph, stage: Stage) -> bool:
    """Whether a generator works ahead: it may, and tokens of one step earlier are within the bound of a schedule that
    uses one version less."""
    edges = graph.weights_into(stage.name)
    return any(edge.on_new_weights is not OnNewWeights.DRAIN and edge.delay > 2 for edge in edges)


@dataclass(frozen=True)
class InARow:
    """Three steps of an item's samples, one behind the other on each of its replicas.

    samples: of a step. replicas: of the item; each has a contiguous block of whole groups of `each` samples, as even as
    can be.
    """

    samples: int
    replicas: int = 1
    each: int = 1

    @property
    def places(self) -> Ints:
        """(3, samples) where each sample of each step lies among all."""
        bounds = np.arange(self.replicas + 1) * (self.samples // self.each) // self.replicas * self.each
        at, sizes = np.arange(self.samples), np.diff(bounds)
        block = np.searchsorted(bounds, at, side="right") - 1
        step = np.arange(_STEPS)[:, None]
        return np.asarray(at + (_STEPS - 1) * bounds[block] + step * sizes[block], dtype=np.int64)

    def lengths(self, own: Ints) -> Ints:
        """(3 · samples,) the lengths of all three steps."""
        found = np.empty(_STEPS * self.samples, dtype=np.int64)
        found[self.places] = own
        return found

    def last(self, offsets: Floats) -> tuple[float, Floats]:
        """(seconds, offset of each sample) of a step in the steady state. offsets: of all, from the first one's start."""
        first, before, last = offsets[self.places]
        begin = float(before.max())
        seconds = max(float(last.max()) - begin, float(first.max()) / 2)
        return seconds, np.clip(last - begin, 0.0, seconds)

    def cost(self, whole: Cost, offsets: Floats) -> tuple[Cost, Floats]:
        """As `last`, with what a step costs of what all three cost."""
        seconds, own = self.last(offsets)
        return whole.scaled(seconds / whole.seconds if whole.seconds else 1.0), own


def in_a_row(graph: Graph, stage: Stage, assignment: Assignment, samples: int, each: int) -> InARow | None:
    """Of an item of a stage's; None where it works on its own step alone."""
    if not overlaps(graph, stage):
        return None
    return InARow(samples, assignment.parallelism.dp // assignment.replicas(stage.kind), each)
