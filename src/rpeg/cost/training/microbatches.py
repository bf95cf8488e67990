"""How a batch falls into micro-batches: padded to the longest of each, or packed up to a budget of tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rpeg.cost.execution import Execution
from rpeg.cost.sequences import Sequences


@dataclass(frozen=True, slots=True)
class MicroBatches:
    """The micro-batches of one model replica in one pass over its share.

    count: how many. tokens, scored: of each, padding included. reach: keys that its average query sees in full
    causal attention.
    """

    count: int
    tokens: float
    scored: float
    reach: float


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


def padded(sequences: Sequences, rows: int) -> float:
    """Expected length of the longest of `rows` sequences.

    Between the mean of all (one row) and the longest of all (all rows), by the logarithm of their number: how the
    expected maximum of an exponential tail grows.
    """
    mean, longest = sequences.mean_length, float(sequences.longest)
    if rows >= sequences.count or longest <= mean:
        return longest
    return mean + (longest - mean) * math.log(rows) / math.log(sequences.count)
