"""Adapters over two ranks, whatever the layout: the updates of one process, and the bytes that are predicted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from layouts import CONFIG, assembled, contributions, exercise
from training_cases import tiny_model

from rpeg.architecture.huggingface import from_config
from rpeg.backends.adapters import Adapters, adapt
from rpeg.backends.headed import named_parameters
from rpeg.backends.models import PolicyModel
from rpeg.backends.training.checkpoint import read_weights
from rpeg.backends.training.grid import Grid, Groups, make_grid
from rpeg.backends.training.trainer import ALONE, Trainer
from rpeg.cost import Execution
from rpeg.cost.adapters import layer_adapters
from rpeg.cost.memory.stages import slices
from rpeg.cost.memory.state import holding, parameter_line, shards
from rpeg.cost.precision import Precision
from rpeg.plan import Parallelism

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FEW, WIDE = Adapters(rank=3, scale=0.5), Adapters(rank=8, scale=2.0)
LAYOUTS = [
    Parallelism(tp=2, sequence_parallel=True),
    Parallelism(tp=2),
    Parallelism(dp=2),
    Parallelism(dp=2, zero=1),
    Parallelism(dp=2, zero=2),
    Parallelism(dp=2, zero=3),
    Parallelism(pp=2),
    Parallelism(cp=2, zero=3),
]


def _adapted(**options: Any) -> PolicyModel:
    wide = bool(options)
    model = tiny_model(("lm",), **options) if wide else tiny_model(("lm", "value"))
    adapt(model, WIDE if wide else FEW, seed=1)
    return model


def _wide() -> PolicyModel:
    return _adapted(vocabulary=64, hidden=64, layers=4, dtype=torch.float32)


def _visit(grid: Grid, directory: Path) -> dict[str, Any]:
    trainer = Trainer(_adapted(), grid=grid, optimizer=CONFIG)
    found = exercise(trainer, directory)
    parts = contributions(trainer)
    found["sent"] = sorted(assembled(parts))
    found["received"] = Trainer(_adapted(), grid=grid).receive(parts)
    wide = Trainer(_wide(), grid=grid, optimizer=CONFIG)
    return found | {"parameter_bytes": wide.parameter_bytes(), "moment_bytes": wide.optimizer_bytes()}


def _worker(rank: int, directory: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/meeting", rank=rank, world_size=2)
    made: Groups = {}
    for number, layout in enumerate(LAYOUTS):
        grid = make_grid(layout, range(2), made)
        assert grid is not None
        found = _visit(grid, Path(directory) / f"{number}")
        (Path(directory) / f"{number}-{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[Parallelism, tuple[Path, list[dict[str, Any]]]]:
    directory = tmp_path_factory.mktemp("adapters")
    mp.spawn(_worker, args=(str(directory),), nprocs=2)
    return {
        layout: (
            directory / f"{n}",
            [json.loads((directory / f"{n}-{rank}.json").read_text()) for rank in range(2)],
        )
        for n, layout in enumerate(LAYOUTS)
    }


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    directory = tmp_path_factory.mktemp("one") / "state"
    return directory, exercise(Trainer(_adapted(), grid=ALONE, optimizer=CONFIG), directory)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_updates_are_those_of_one_process(layout: Parallelism, ranks: Any, one: Any) -> None:
    state, found = ranks[layout]
    own_state, own = one
    for rank in found:
        for mine, theirs in zip(own["metrics"], rank["metrics"], strict=True):
            assert mine == pytest.approx(theirs, rel=0, abs=1e-9)
        np.testing.assert_allclose(rank["canary"], own["canary"], rtol=0, atol=1e-9)
    weights, expected = read_weights(state), read_weights(own_state)
    assert weights.keys() == expected.keys()
    for name, weight in expected.items():
        torch.testing.assert_close(weights[name], weight, rtol=0, atol=1e-8)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_trained_tensor_is_sent_and_no_other(layout: Parallelism, ranks: Any) -> None:
    model = _adapted()
    trained = sorted(name for name, _ in named_parameters(model) if name not in model.frozen)
    for rank in ranks[layout][1]:
        assert rank["sent"] == trained
        assert rank["received"] == rank["digest"]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_ranks_hold_what_the_cost_model_predicts(layout: Parallelism, ranks: Any) -> None:
    """The frozen model and its adapters within one per cent, and moments of the adapters alone."""
    architecture = from_config(tiny_model(("lm",), vocabulary=64, hidden=64, layers=4).hf.config.to_dict())
    execution = Execution(layout, Precision(weights="float32"))
    for rank, found in enumerate(ranks[layout][1]):
        part = slices(architecture, layout.pp)[rank if layout.pp > 1 else 0]
        frozen = parameter_line(holding(architecture, part, layout, ("lm",)), execution).bytes
        beside = WIDE.rank * sum(
            count * layer_adapters(architecture, layer, "all", layout.tp) for layer, count in part.groups
        )
        predicted = frozen + 4 * beside / shards(layout, 3)[0]
        assert found["parameter_bytes"] == pytest.approx(predicted, rel=0.01)
        assert found["moment_bytes"] == pytest.approx(2 * 4 * beside / shards(layout, 1)[0], rel=0.01)
