"""How a batch falls into micro-batches: padded to the longest of each, or packed up to a budget of tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rpeg.cost.execution import Execution
from rpeg.cost.kernels import Amount
from rpeg.cost.sequences import Sequences

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MicroBatches:
    """The micro-batches of one model replica in one pass over its share.

    count: how many. tokens, scored: of each, padding included. reach: keys that its average query sees in full
    causal attention. Numbers, or arrays for many batches at once.
    """

    count: Amount
    tokens: Amount
    scored: Amount
    reach: Amount


def microbatches(sequences: Sequences, execution: Execution, passes: int = 1) -> MicroBatches:
    """What each of dp replicas runs in one of `passes` equal shares of `sequences`.

    Packed: as few micro-batches as the budget allows, equally full, on every replica as many. Padded: the replica
    runs whole micro-batches of `microbatch` sequences, the last of them perhaps not full.
    """
    shares = execution.parallelism.dp * passes
    if not sequences.count or not sequences.tokens:
        return MicroBatches(0, 0.0, 0.0, 0.0)
    if execution.token_budget:
        tokens = sequences.tokens / shares
        count = max(1, math.ceil(tokens / max(execution.token_budget, sequences.longest)))
        reach = sequences.squares / sequences.tokens / 2.0
        return MicroBatches(count, tokens / count, sequences.scored / shares / count, reach)
    of_replica = -(-sequences.count // shares)
    rows = min(execution.microbatch, of_replica)
    count = -(-of_replica // execution.microbatch)
    width = padded(sequences, rows)
    return MicroBatches(count, rows * width, rows * sequences.scored / sequences.count, width / 2.0)


class Lengths(NamedTuple):
    """The sizes of many batches, as `Sequences` has them of one: arrays of one shape."""

    tokens: Floats
    squares: Floats
    longest: Floats
    scored: Floats

    @staticmethod
    def of(batches: Sequence[Sequences]) -> Lengths:
        """One entry a batch."""
        rows = [(b.tokens, b.squares, b.longest, b.scored) for b in batches]
        return Lengths(*np.array(rows, dtype=np.float64).reshape(-1, 4).T)


def packed(lengths: Lengths, execution: Execution, passes: Floats | int = 1) -> MicroBatches:
    """What `microbatches` says of each of many batches, all of them packed."""
    tokens = lengths.tokens / (execution.parallelism.dp * passes)
    count = np.maximum(np.ceil(tokens / np.maximum(execution.token_budget, lengths.longest)), 1.0)
    count = np.where(lengths.tokens > 0, count, 0.0)
    some = np.maximum(count, 1.0)
    scored = lengths.scored / (execution.parallelism.dp * passes) / some
    return MicroBatches(count, tokens / some, scored, lengths.squares / np.maximum(lengths.tokens, 1.0) / 2.0)


def padded(sequences: Sequences, rows: int) -> float:
    """Expected length of the longest of `rows` sequences.

    Between the mean of all (one row) and the longest of all (all rows), by the logarithm of their number: how the
    expected maximum of an exponential tail grows.
    """
    mean, longest = sequences.mean_length, float(sequences.longest)
    if rows >= sequences.count or longest <= mean:
        return longest
    return mean + (longest - mean) * math.log(rows) / math.log(sequences.count)
