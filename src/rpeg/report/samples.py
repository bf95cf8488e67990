"""Samples of a run as a table to read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from rpeg.trace import Kept

LONGEST = 400
"""Characters of a text that are shown; its middle is left out beyond."""


def chosen(samples: Iterable[Kept], *, step: int | None, order: str, count: int) -> list[Kept]:
    """The samples to show. step: None for the last that has any. order: id, or best or worst reward first."""
    kept = list(samples)
    asked = max(sample.step for sample in kept) if step is None else step
    found = [sample for sample in kept if sample.step == asked]
    if order in ("best", "worst"):
        sign = -1 if order == "best" else 1
        found.sort(key=lambda sample: sign * (sample.reward if sample.reward is not None else 0.0))
    return found[:count]


def samples_table(samples: Sequence[Kept]) -> Table:
    """One sample a row. What a model wrote is shown as it is: no markup, control characters spelt out."""
    table = Table(title=f"samples of step {samples[0].step}" if samples else None, show_lines=True)
    for name in ("id", "prompt", "response", "answer", "reward", "advantage", "tokens"):
        numeric = name in ("id", "reward", "advantage", "tokens")
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for sample in samples:
        table.add_row(
            Text(str(sample.id)),
            shown(sample.prompt),
            shown(sample.response),
            shown(sample.answer),
            Text(_rewards(sample)),
            Text("" if sample.advantage is None else f"{sample.advantage:+.3f}"),
            Text("" if sample.tokens is None else f"{sample.tokens}{' (cut)' if sample.truncated else ''}"),
        )
    return table


def shown(text: str | None) -> Text:
    """A text without what would move the cursor, shortened in its middle."""
    plain = "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text or ""
    )
    if len(plain) > LONGEST:
        plain = f"{plain[: LONGEST // 2]} … {plain[-LONGEST // 2 :]}"
    return Text(plain)


def _rewards(sample: Kept) -> str:
    total = "" if sample.reward is None else f"{sample.reward:.3f}"
    return "\n".join([total, *(f"{name} {value:.3f}" for name, value in sample.rewards.items())])
