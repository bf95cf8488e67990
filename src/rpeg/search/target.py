"""The cheapest row of a sweep that is fast enough, and how well a job scales over its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rpeg.search.sweep import Row


@dataclass(frozen=True)
class Choice:
    """row: the cheapest whose mean step takes at most `target_seconds`; None where there is none.

    fastest: of all rows; None where no row has a plan. by_price: whether money decided; else device-hours did, as
    some price is unknown.
    """

    target_seconds: float
    row: Row | None
    fastest: Row | None
    by_price: bool


def cheapest(rows: Sequence[Row], target_seconds: float) -> Choice:
    """Equally cheap ones: the faster."""
    planned = [(row, row.outcome) for row in rows if row.outcome is not None]
    by_price = all(outcome.price is not None for _, outcome in planned)
    ranked = sorted(
        (
            ((outcome.price or 0.0) if by_price else row.device_hours or 0.0, outcome.step_seconds, i)
            for i, (row, outcome) in enumerate(planned)
            if outcome.step_seconds <= target_seconds
        ),
    )
    fastest = min(planned, key=lambda one: one[1].step_seconds)[0] if planned else None
    return Choice(target_seconds, planned[ranked[0][2]][0] if ranked else None, fastest, by_price)


def efficiency(row: Row, rows: Sequence[Row]) -> float | None:
    """Tokens a second and device, as a share of those at the smallest size of its series that has a plan."""
    alike = [other for other in rows if other.series == row.series and other.outcome is not None]
    smallest = min(alike, key=lambda other: other.devices, default=None)
    own = row.tokens_per_second_per_device
    base = smallest.tokens_per_second_per_device if smallest else None
    return own / base if own is not None and base else None
