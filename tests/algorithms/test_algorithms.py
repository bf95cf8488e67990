from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rpeg import algorithms
from rpeg.errors import InputError
from rpeg.ir import violations
from rpeg.text.graph import parse, text


def test_algorithms_are_found_by_their_file() -> None:
    assert {"grpo", "ppo"} <= set(algorithms.names())
    assert algorithms.load("ppo").__name__ == "rpeg.algorithms.ppo"


@pytest.mark.parametrize("name", ["pppo", "loss", "masked", ""])
def test_unknown_names_and_helper_modules_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"ppo"):
        algorithms.load(name)


@pytest.mark.parametrize("name", algorithms.names())
def test_every_algorithm_keeps_the_contract(name: str) -> None:
    module = algorithms.load(name)
    hyper = module.Hyper()
    assert dataclasses.is_dataclass(hyper)
    assert hash(hyper) == hash(module.Hyper())
    graph = module.graph(hyper)
    assert graph.name == name
    assert violations(graph) == ()
    assert parse(text(graph)) == graph


def test_no_algorithm_imports_torch() -> None:
    code = "import sys; from rpeg import algorithms; algorithms.names(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_algorithm_is_described() -> None:
    text = (Path(__file__).parents[2] / "docs" / "algorithms.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == set(algorithms.names())
