"""Keys and values of sequences being generated, and how many fit."""

from __future__ import annotations

import math

from rpeg.architecture import Architecture
from rpeg.cost.execution import Execution
from rpeg.cost.memory.activations import kv_share
from rpeg.cost.precision import BYTES_OF

BLOCK_TOKENS = 16
"""Tokens of a block of a paged cache: vLLM's default block size on CUDA."""


def sequence_cache_bytes(architecture: Architecture, context: int, execution: Execution) -> float:
    """Cache of one sequence of `context` tokens on one device, in whole blocks; windows and recurrence do not grow.

    Heads are divided over tp, at least one a rank; a latent cache is whole on every rank. Layers are divided over pp.
    """
    blocks = math.ceil(context / BLOCK_TOKENS) * BLOCK_TOKENS
    p = execution.parallelism
    share = 1.0 if architecture.latent else kv_share(architecture, p.tp)
    keys = architecture.kv_elements(blocks) * share * BYTES_OF[execution.precision.cache]
    state = architecture.state_elements / p.tp * 4
    return (keys + state) / p.pp / p.cp


def cache_bytes(architecture: Architecture, rows: int, context: int, execution: Execution) -> float:
    """Cache of `rows` sequences that each reach `context` tokens."""
    return rows * sequence_cache_bytes(architecture, context, execution)


def rows_that_fit(architecture: Architecture, context: int, execution: Execution, free_bytes: float) -> int:
    """Sequences of `context` tokens whose cache fits into so many bytes of each device."""
    return max(0, int(free_bytes // sequence_cache_bytes(architecture, context, execution)))
