from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.algorithms.masked import inside, masked_mean, masked_var, masked_whiten

ROWS = st.lists(
    st.tuples(st.floats(-100, 100, allow_subnormal=False), st.booleans()), min_size=1, max_size=12
)
POISON = [float("nan"), float("inf"), -float("inf")]


@given(ROWS, st.sampled_from(POISON))
@settings(max_examples=60, deadline=None)
def test_agrees_with_numpy_whatever_lies_outside(rows: list[tuple[float, bool]], poison: float) -> None:
    mask = torch.tensor([keep for _, keep in rows])
    values = torch.tensor([value if keep else poison for value, keep in rows], dtype=torch.float64)
    kept = np.array([value for value, keep in rows if keep])
    if len(kept) == 0:
        assert masked_mean(values, mask).item() == masked_var(values, mask).item() == 0
        return
    assert masked_mean(values, mask).item() == pytest.approx(kept.mean(), abs=1e-9)
    assert masked_var(values, mask, unbiased=False).item() == pytest.approx(kept.var(), abs=1e-9)
    expected = kept.var(ddof=1) if len(kept) > 1 else 0.0
    assert masked_var(values, mask).item() == pytest.approx(expected, abs=1e-9)


def test_whitened_has_mean_zero_variance_one_and_zeros_outside() -> None:
    values = torch.tensor([[1.0, 2.0, float("nan")], [5.0, float("inf"), 3.0]])
    mask = torch.tensor([[True, True, False], [True, False, True]])
    white = masked_whiten(values, mask)
    assert white.dtype == torch.float32
    assert white[~mask].tolist() == [0.0, 0.0]
    assert masked_mean(white, mask).item() == pytest.approx(0, abs=1e-6)
    assert masked_var(white, mask).item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.95, 1e8, -3.3])
def test_equal_entries_whiten_to_exact_zeros(value: float) -> None:
    values = torch.full((3, 7), value)
    assert masked_whiten(values, values == values).eq(0).all()


def test_one_entry_or_none_whitens_to_zero() -> None:
    values = torch.tensor([[4.0, 2.0]])
    assert masked_whiten(values, torch.tensor([[True, False]])).tolist() == [[0.0, 0.0]]
    assert masked_whiten(values, torch.tensor([[False, False]])).tolist() == [[0.0, 0.0]]
    assert masked_whiten(torch.zeros(2, 0), torch.zeros(2, 0, dtype=torch.bool)).shape == (2, 0)


def test_no_gradient_flows_outside() -> None:
    values = torch.tensor([1.0, float("nan")], requires_grad=True)
    inside(values, torch.tensor([True, False])).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [1.0, 0.0]
