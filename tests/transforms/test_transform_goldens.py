"""Each transform as a reviewer reads it: the graph before, a line `=> transform`, the graph after.

To accept a change: RPEG_ACCEPT=1 pytest tests/transforms/test_transform_goldens.py, then look at the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rpeg.text import parse, text
from rpeg.transforms import parse as transform
from rpeg.transforms import transforms

GOLDENS = Path(__file__).parent / "goldens"
CASES = sorted(path.stem for path in GOLDENS.glob("*.txt"))


def _read(name: str) -> tuple[str, str, str]:
    """(before, transform, after)."""
    before, _, rest = (GOLDENS / f"{name}.txt").read_text().partition("=> ")
    source, _, after = rest.partition("\n")
    return before, source, after


@pytest.mark.parametrize("name", CASES)
def test_the_transform_makes_the_golden_graph(name: str) -> None:
    before, source, after = _read(name)
    graph = transform(source).apply(parse(before))
    if os.environ.get("RPEG_ACCEPT"):
        (GOLDENS / f"{name}.txt").write_text(f"{text(parse(before))}=> {transform(source)}\n{text(graph)}")
        after = text(graph)
    assert text(graph) == after
    assert text(parse(before)) == before


def test_every_transform_has_a_golden() -> None:
    assert {transform(_read(name)[1]).name for name in CASES} == set(transforms())
