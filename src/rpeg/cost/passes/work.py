"""Work of the ops of a transformer: floating-point operations, bytes and launches, from shapes alone.

Sources: matrix products 2·m·n·k; attention scores and their product with the values 4·query width a pair of a
query and a key that it sees; backward twice the forward (Kaplan et al. 2020, "Scaling Laws for Neural Language
Models", section 2.1, with attention counted exactly).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rpeg.architecture import Architecture

Floats = npt.NDArray[np.float64]

BYTES_OF = {"float64": 8, "float32": 4, "tfloat32": 4, "bfloat16": 2, "float16": 2, "float8": 1}

# Kernels of one layer in eager mode: 7 projections, attention, 2 norms of about 4, rotary 6, activation 2, residual 2.
_LAUNCHES_PER_LAYER = 26
_LAUNCHES_AROUND = 20
_LAUNCHES_PER_UPDATE = 40


@dataclass(frozen=True)
class Work:
    """What each of many calls does; the fields broadcast together.

    bytes: least traffic of the device's memory. launches: kernels that are started one after another.
    """

    flops: npt.ArrayLike = 0.0
    bytes: npt.ArrayLike = 0.0
    launches: npt.ArrayLike = 0.0

    def times(self, factor: float) -> Work:
        """So many times as much of everything."""
        return Work(
            *(np.asarray(x, dtype=np.float64) * factor for x in (self.flops, self.bytes, self.launches))
        )


def layer_flops_per_token(architecture: Architecture) -> float:
    """Of the matrix products of all layers, without attention scores."""
    a = architecture
    projections = a.hidden * (2 * a.query_width + 2 * a.kv_width)
    return 2.0 * a.layers * (projections + a.hidden * a.ffn * (3 if a.gated else 2))


def head_flops_per_token(architecture: Architecture) -> float:
    """Of the projection to the vocabulary."""
    return 2.0 * architecture.hidden * architecture.vocabulary


def causal_pairs(architecture: Architecture, length: npt.ArrayLike) -> Floats:
    """Pairs of a query and a key that it sees, in one causal sequence of `length` tokens."""
    length = np.asarray(length, dtype=np.float64)
    window = np.minimum(length, architecture.window or np.inf)
    return np.asarray(window * (window + 1) / 2 + (length - window) * window)


def forward(architecture: Architecture, rows: npt.ArrayLike, length: npt.ArrayLike, dtype: str) -> Work:
    """The backbone over `rows` sequences of `length` tokens, padding included."""
    rows, length = np.asarray(rows, dtype=np.float64), np.asarray(length, dtype=np.float64)
    tokens = rows * length
    attention = (
        4.0 * architecture.query_width * architecture.layers * rows * causal_pairs(architecture, length)
    )
    # each token's activations are read and written about 16 hidden widths and 4 inner widths a layer
    activations = tokens * architecture.layers * (16 * architecture.hidden + 4 * architecture.ffn)
    return Work(
        tokens * layer_flops_per_token(architecture) + attention,
        (architecture.layers * architecture.layer_parameters + activations) * BYTES_OF[dtype],
        _launches(architecture),
    )


def forward_backward(
    architecture: Architecture, rows: npt.ArrayLike, length: npt.ArrayLike, dtype: str
) -> Work:
    """The backbone forward and backward."""
    return forward(architecture, rows, length, dtype).times(3.0)


def head(architecture: Architecture, tokens: npt.ArrayLike, dtype: str) -> Work:
    """Logits and log-probabilities of so many tokens; logits pass memory about 4 times in float32."""
    tokens = np.asarray(tokens, dtype=np.float64)
    weights = architecture.hidden * architecture.vocabulary * BYTES_OF[dtype]
    return Work(
        tokens * head_flops_per_token(architecture), weights + tokens * architecture.vocabulary * 16.0, 8.0
    )


def head_backward(architecture: Architecture, tokens: npt.ArrayLike, dtype: str) -> Work:
    """Logits and log-probabilities forward and backward."""
    return head(architecture, tokens, dtype).times(3.0)


def prefill(architecture: Architecture, rows: npt.ArrayLike, tokens: npt.ArrayLike, dtype: str) -> Work:
    """The forward of `rows` prompts of `tokens` tokens, with logits of the last."""
    body, last = forward(architecture, rows, tokens, dtype), head(architecture, rows, dtype)
    return Work(
        np.asarray(body.flops) + np.asarray(last.flops),
        np.asarray(body.bytes) + np.asarray(last.bytes),
        np.asarray(body.launches) + np.asarray(last.launches),
    )


def decode(architecture: Architecture, rows: npt.ArrayLike, context: npt.ArrayLike, dtype: str) -> Work:
    """One token for each of `rows` sequences: weights are read once, the cache of `context` tokens by each row."""
    rows, context = np.asarray(rows, dtype=np.float64), np.asarray(context, dtype=np.float64)
    seen = np.minimum(context, architecture.window or np.inf)
    per_row = layer_flops_per_token(architecture) + head_flops_per_token(architecture)
    attention = 4.0 * architecture.query_width * architecture.layers * seen
    cache = 2.0 * architecture.layers * architecture.kv_width * seen
    return Work(
        rows * (per_row + attention),
        (architecture.parameters() + rows * cache) * BYTES_OF[dtype],
        _launches(architecture),
    )


def optimizer(parameters: npt.ArrayLike) -> Work:
    """AdamW over so many parameters: reads and writes weight and both moments, reads the gradient, in float32."""
    parameters = np.asarray(parameters, dtype=np.float64)
    return Work(parameters * 16.0, parameters * 4.0 * 7, _LAUNCHES_PER_UPDATE)


def copies(size_bytes: npt.ArrayLike, passes: float) -> Work:
    """Moving bytes through memory: each pass reads and writes them."""
    return Work(0.0, np.asarray(size_bytes, dtype=np.float64) * 2 * passes, 1.0)


def _launches(architecture: Architecture) -> float:
    return float(architecture.layers * _LAUNCHES_PER_LAYER + _LAUNCHES_AROUND)
