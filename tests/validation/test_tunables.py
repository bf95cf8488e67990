"""Tunables are keyed by device kind × software stack × op, never by who measured or what ran, and are documented."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from rpeg.cluster import device_kinds
from rpeg.cost.stack import Quantity, Stack, quantities, stacks

ROOT = Path(__file__).parents[2]
SECTIONS = {"kernels", "network", "training", "memory", "serving"}
STACKS = {"megatron", "flash", "eager", "compiled", "vllm", "tensorrt-llm", "sglang", "deepspeed"}
RESULTS = ROOT / "benchmarks" / "results" / "validate.json"
FILES = ("defaults", *stacks())


def loaded(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem + "_script", ROOT / path)
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
    assert len(quantity.source) >= len("definition")  # of a neutral value; "estimate" alone says nothing


@pytest.mark.parametrize("section", sorted(SECTIONS))
def test_each_field_of_a_section_is_documented(section: str) -> None:
    traits = getattr(Stack("any"), section)
    fields = {field.name: field.default for field in dataclasses.fields(traits)}
    documented = {q.name: q.value for q in quantities("defaults") if q.section == section}
    assert documented.keys() == fields.keys(), (
        "defaults.yaml documents every field, with what it is and its source"
    )
    assert documented == {name: list(v) if isinstance(v, tuple) else v for name, v in fields.items()}


def test_there_are_a_few_dozen_numbers_at_most() -> None:
    numbers = {(q.section, q.name) for q in every() if loaded("scripts/document_model.py").is_number(q.value)}
    assert len(numbers) <= 48


@pytest.mark.parametrize("document", ["docs/model.md", "README.md"])
def test_documents_are_what_the_files_say(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    assert loaded("scripts/document_model.py").updated(text) == text, "run: python scripts/document_model.py"


def test_the_document_lists_every_quantity() -> None:
    text = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")
    for quantity in every():
        assert f"`{quantity.section}.{quantity.name}`" in text


def test_the_document_states_the_published_errors() -> None:
    figures = json.loads(RESULTS.read_text(encoding="utf-8"))["core"]
    text = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")
    assert figures
    for row in figures.values():
        assert row["mape"] is None or f"{row['mape']:.1%}" in text


def test_the_published_errors_are_those_of_the_present_tunables() -> None:
    published = json.loads(RESULTS.read_text(encoding="utf-8"))["tunables_digest"]
    assert published == loaded("benchmarks/validate.py").tunables_digest(), "run: benchmarks/validate.py DATA"
