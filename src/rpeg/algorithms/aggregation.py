"""How the losses of tokens are put together into one number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args, overload

import numpy as np
import numpy.typing as npt

from rpeg.algorithms.checks import check_choice
from rpeg.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

Aggregation = Literal[
    "token_mean", "token_sum", "sequence_mean_token_mean", "sequence_mean_token_sum", "fixed_length"
]


@dataclass(frozen=True)
class AggregationHyper:
    """loss_aggregation, fixed_length: see `token_weights`."""

    loss_aggregation: Aggregation = "token_mean"
    fixed_length: int | None = None


@overload
def token_weights(
    lengths: npt.NDArray[Any], kind: Aggregation, fixed_length: int | None = None, epsilon: float = 0.0
) -> npt.NDArray[np.float64]: ...
@overload
def token_weights(
    lengths: Tensor, kind: Aggregation, fixed_length: int | None = None, epsilon: float = 0.0
) -> Tensor: ...


def token_weights(
    lengths: npt.NDArray[Any] | Tensor,
    kind: Aggregation,
    fixed_length: int | None = None,
    epsilon: float = 0.0,
) -> npt.NDArray[np.float64] | Tensor:
    """The weight of each token of each response in the loss: loss = Σ_i w_i Σ_t loss[i, t].

    lengths: (n,) how many tokens of each response are trained on, in the *whole* minibatch, over all
    data-parallel ranks and micro-batches, so that no split changes the gradient. epsilon: added to a length
    before it is divided by (see `conventions`). Returns (n,) float64 of the same kind (numpy or tensor). With
    n the responses that have a token to train on:

    - token_mean: 1 / Σ lengths, each token counts alike (DAPO, arXiv:2503.14476).
    - token_sum: 1.
    - sequence_mean_token_mean: 1 / (n · length), each response counts alike (GRPO, arXiv:2402.03300).
    - sequence_mean_token_sum: 1 / n, the policy gradient of the mean return.
    - fixed_length: 1 / (n · fixed_length), the same up to a constant (Dr. GRPO, arXiv:2503.20783).

    A response without a token to train on, empty or left out, counts nowhere; its weight is finite.
    Raises InputError for an unknown kind, or for `fixed_length` without a length.
    """
    check_aggregation(kind, fixed_length)
    exact: Any = np.asarray(lengths, np.float64) if isinstance(lengths, np.ndarray) else lengths.double()
    same = exact * 0
    count = (exact > 0).sum().clip(1)
    divisor = {
        "token_mean": same + exact.sum().clip(1),
        "token_sum": same + 1,
        "sequence_mean_token_mean": count * (exact.clip(1) + epsilon),
        "sequence_mean_token_sum": same + count,
        "fixed_length": same + count * (fixed_length or 1),
    }[kind]
    weights: npt.NDArray[np.float64] | Tensor = 1.0 / divisor
    return weights


def check_aggregation(kind: str, fixed_length: int | None) -> None:
    """InputError unless the kind is known and has the length that it needs."""
    check_choice("loss_aggregation", kind, get_args(Aggregation))
    if kind == "fixed_length" and (fixed_length is None or fixed_length < 1):
        raise InputError(
            f"loss_aggregation 'fixed_length' divides by fixed_length, which is {fixed_length}. "
            "Set fixed_length to the longest response allowed, in tokens."
        )
