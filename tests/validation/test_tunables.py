"""Tunables are keyed by device kind × software stack × op, never by who measured or what ran, and are documented."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from rpeg.cluster import device_kinds
from rpeg.cost.stack import Quantity, quantities, stacks

ROOT = Path(__file__).parents[2]
SECTIONS = {"kernels", "network", "training", "memory", "serving"}
STACKS = {"megatron", "flash", "eager", "compiled", "vllm", "tensorrt-llm", "sglang", "deepspeed"}
FILES = ("defaults", *stacks())


def documents() -> ModuleType:
    spec = importlib.util.spec_from_file_location("document_model", ROOT / "scripts" / "document_model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def every() -> list[Quantity]:
    return [quantity for name in FILES for quantity in quantities(name)]


def test_stacks_are_kinds_of_software() -> None:
    assert set(stacks()) == STACKS


@pytest.mark.parametrize("quantity", every(), ids=lambda q: f"{q.stack}.{q.section}.{q.name}")
def test_a_quantity_is_keyed_by_kinds_alone_and_sourced(quantity: Quantity) -> None:
    assert quantity.section in SECTIONS
    assert {kind for kind, _ in quantity.by_kind} <= set(device_kinds())
    assert len(quantity.what) > 10
    assert len(quantity.source) > 10


def test_there_are_a_few_dozen_at_most() -> None:
    assert len({(q.section, q.name) for q in every()}) <= 60


def test_the_document_is_what_the_files_say() -> None:
    script = documents()
    text = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")
    assert script.updated(text) == text, "run: python scripts/document_model.py"


def test_the_document_lists_every_quantity() -> None:
    text = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")
    for quantity in every():
        assert f"`{quantity.section}.{quantity.name}`" in text
