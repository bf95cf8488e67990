"""The warning where a plan fits by less than predictions are off."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rpeg.report.forecast import tight
from rpeg.report.model_error import ModelError, model_errors
from rpeg.units import GIB


def _estimate(free_gib: float) -> SimpleNamespace:
    peak = SimpleNamespace(bytes=(80 - free_gib) * GIB, phase="generate")
    return SimpleNamespace(tightest=SimpleNamespace(name="device 3", capacity_bytes=80 * GIB, peak=peak))


def test_a_narrow_margin_is_said_with_device_phase_and_both_sizes() -> None:
    (line,) = tight(_estimate(0.5))  # type: ignore[arg-type]
    for word in ("device 3", "512 MiB", "80 GiB", "generate", "may not fit"):
        assert word in line


@pytest.mark.parametrize("free_gib", [8, 40])
def test_a_wide_margin_needs_no_word(free_gib: float) -> None:
    assert not list(tight(_estimate(free_gib)))  # type: ignore[arg-type]


def test_what_is_measured_lies_within_the_error_on_either_side() -> None:
    error = ModelError("steps", 10, 0.1, 0.25, 0.0)
    low, high = error.likely(100.0)
    assert (100.0 - low) / low == pytest.approx(0.25)
    assert (high - 100.0) / high == pytest.approx(0.25)


def test_the_package_knows_its_error_on_steps_and_on_memory() -> None:
    for kind in ("rl", "memory"):
        error = model_errors()[kind]
        assert 0 < error.median < error.p90 < 1
        assert error.records > 50
