"""The warning where a plan fits by less than predictions are off."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rpeg.report.hardware import tight
from rpeg.units import GIB


def _estimate(free_gib: float) -> SimpleNamespace:
    peak = SimpleNamespace(bytes=(80 - free_gib) * GIB, phase="generate")
    return SimpleNamespace(tightest=SimpleNamespace(name="device 3", capacity_bytes=80 * GIB, peak=peak))


def test_a_narrow_margin_is_said_with_device_phase_and_both_sizes() -> None:
    (line,) = tight(_estimate(0.5))  # type: ignore[arg-type]
    for word in ("device 3", "512 MiB", "80 GiB", "generate", "may not fit"):
        assert word in line


@pytest.mark.parametrize("free_gib", [5, 40])
def test_a_wide_margin_needs_no_word(free_gib: float) -> None:
    assert not list(tight(_estimate(free_gib)))  # type: ignore[arg-type]
