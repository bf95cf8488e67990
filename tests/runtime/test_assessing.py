"""The value after a cut, by hand: what the critic says where one token more would have been."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from rpeg.backends.samples import Samples
from rpeg.ir import Call, Op, Scope
from rpeg.runtime.assessing import assess, with_one_more


def samples() -> Samples:
    """Responses of 2, 1 and 3 tokens; the first and the last were cut."""
    return Samples(
        np.array([4, 5, 6]),
        np.array([2, 1, 3]),
        {},
        {"finish": np.array([0, 1, 0])},
        np.array([7, 7, 8]),
        np.array([1, 1, 1]),
        np.array([10, 11, 20, 30, 31, 32]),
    )


class Counting:
    """Its value of a state is how many tokens came before, and a log-probability is minus that."""

    def values(self, batch: Samples, *, microbatch: int) -> np.typing.NDArray[np.float64]:
        return np.concatenate([np.arange(n) + 1.0 for n in batch.lengths])

    def logprobs_and_values(
        self, batch: Samples, *, temperature: float, microbatch: int
    ) -> dict[str, np.typing.NDArray[np.float64]]:
        values = self.values(batch, microbatch=microbatch)
        return {"logprobs": -values, "values": values}


def test_only_cut_responses_get_one_token_more() -> None:
    longer = with_one_more(samples())
    assert longer.lengths.tolist() == [3, 1, 4]
    assert longer.responses is not None
    assert longer.responses.tolist() == [10, 11, 0, 20, 30, 31, 32, 0]


@pytest.mark.parametrize("fused", [False, True])
def test_values_after_the_cut(fused: bool) -> None:
    value = Op("value", Scope.TOKEN, ("rollouts",), ("values", "final_values"))
    logprob = Op("logprob", Scope.TOKEN, ("rollouts",), ("old_logprobs",))
    call = Call("critic", (logprob, value) if fused else (value,))
    found = assess(
        samples(),
        [(call, nullcontext(Counting()))],
        temperature=1.0,
        microbatch=8,
        respell=lambda batch: batch,  # type: ignore[list-item]
    )
    assert found.lengths.tolist() == [2, 1, 3]
    assert found.token["values"].tolist() == [1, 2, 1, 1, 2, 3]
    assert found.sample["final_values"].tolist() == [3, 0, 4]
    if fused:
        assert found.token["old_logprobs"].tolist() == [-1, -2, -1, -1, -2, -3]
