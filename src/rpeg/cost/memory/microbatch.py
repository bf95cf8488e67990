"""`Microbatch`: the largest piece of a batch that one device works on at once."""

from __future__ import annotations

from dataclasses import dataclass

from rpeg.cost.execution import Execution
from rpeg.cost.sequences import Sequences


@dataclass(frozen=True, slots=True)
class Microbatch:
    """tokens: after context parallelism. longest: of its sequences, before it. scored: tokens that pass the head.

    count: micro-batches of one model replica in an update.
    """

    tokens: float
    longest: int
    scored: float
    count: int


def microbatch(sequences: Sequences, execution: Execution) -> Microbatch:
    """Padded to its longest sequence, or packed up to the token budget (never below one whole sequence)."""
    cp, dp = execution.parallelism.cp, execution.parallelism.dp
    each, count = max(1, execution.microbatch), max(1, sequences.count)
    most = count * sequences.longest
    share = min(1.0, sequences.scored / sequences.tokens) if sequences.tokens else 1.0
    if execution.token_budget:
        tokens = min(most, max(execution.token_budget, sequences.longest))
        passes = sequences.tokens / max(1, tokens)
    else:
        tokens = min(most, each * sequences.longest)
        passes = count / each
    return Microbatch(tokens / cp, sequences.longest, tokens * share / cp, max(1, round(passes / dp)))
