"""Every case of the facts that the project keeps agrees, within the tolerance that the facts state."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from algorithms.reference import FACTS, RUNNERS, Loose, pairs, read_cases, tolerance

CASES = read_cases()
SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "numerics.json"


def check(case: dict[str, Any]) -> int:
    relative, absolute = tolerance(case)
    compared = 0
    for ours, theirs in pairs(case):
        loose = isinstance(ours, Loose)
        found = torch.as_tensor(float(ours) if loose else ours).detach()
        expected = torch.as_tensor(theirs, dtype=found.dtype)
        bounds = {"rtol": 1e-5, "atol": 1e-6} if loose else {"rtol": relative, "atol": absolute}
        torch.testing.assert_close(found, expected, **bounds)
        compared += found.numel()
    return compared


@pytest.mark.parametrize("case", CASES, ids=[c["id"] for c in CASES])
def test_case(case: dict[str, Any]) -> None:
    assert check(case) > 0


def test_the_copy_is_of_the_shared_facts() -> None:
    if not SHARED.exists():
        pytest.skip("the shared facts are not here")
    shared = {c["id"]: c for c in read_cases(SHARED)}
    assert shared.keys() <= {c["id"] for c in CASES}
    for case in CASES:
        assert case["inputs"] == shared[case["id"]]["inputs"]
        assert case["outputs"] == shared[case["id"]]["outputs"]


def test_cases_are_many_and_of_many_functions() -> None:
    kinds = Counter(case["fn"] for case in CASES)
    assert len(CASES) == 103
    assert len(kinds) == 21
    assert kinds.keys() <= RUNNERS.keys()
    assert FACTS.stat().st_size < 200_000
