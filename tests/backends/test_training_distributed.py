"""Two gloo ranks give what one process gives: replicas (zero=0) and FSDP2 (zero=3)."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from layouts import assembled, contributions, grid_of
from training_cases import Out, make_samples, tiny_model, weighted_nll

from rpeg.backends.samples import Samples
from rpeg.backends.training.grid import Grid, Groups
from rpeg.backends.training.optimizer import OptimizerConfig
from rpeg.backends.training.trainer import ALONE, Trainer
from rpeg.backends.weights import canary_tokens
from rpeg.errors import RunError
from rpeg.plan import Parallelism

CONFIG = OptimizerConfig(lr=1e-2, weight_decay=0.01, warmup_steps=3, max_grad_norm=1.0)
STEPS, MINIBATCHES, ROWS = 2, 2, 7
DTYPES = {"float64": torch.float64, "float32": torch.float32}
KINDS = [("float64", "lm,value"), ("float64", "lm"), ("float64", "value"), ("float32", "lm,value")]
CASES = [(zero, *kind) for zero in (0, 3) for kind in KINDS]


def minibatch(step: int, index: int) -> Samples:
    return make_samples(ROWS, seed=10 * step + index)


def share(samples: Samples, rank: int, world: int, index: int) -> np.ndarray:
    """Uneven: rank 1 of 2 has two of seven rows of the first minibatch and none of the second."""
    if world == 1:
        return np.arange(len(samples))
    cut = 5 if index == 0 else ROWS
    return np.arange(cut) if rank == 0 else np.arange(cut, ROWS)


def exercise(trainer: Trainer, rank: int, world: int, first_step: int = 0) -> dict[str, Any]:
    """Two steps of two minibatches, then inference on an uneven share."""
    metrics = []
    for step in range(first_step, first_step + STEPS):
        batches, weights = [], []
        for index in range(MINIBATCHES):
            whole = minibatch(step, index)
            rows = share(whole, rank, world, index)
            batches.append(whole.rows(rows))
            weights.append(np.full(len(rows), 1 / whole.lengths.sum()))
        metrics.append(
            trainer.train(batches, weights, weighted_nll, temperature=0.8, microbatch=2, entropy=True)
        )
    whole = minibatch(9, 0)
    mine = whole.rows(share(whole, rank, world, 0))
    out: dict[str, Any] = {"metrics": metrics, "digest": trainer.digest()}
    out["canary"] = trainer.canary(canary_tokens(61)).tolist()
    if "lm" in trainer.model.heads:
        out["logprobs"] = trainer.logprobs(mine, temperature=0.8, microbatch=2).tolist()
    if "value" in trainer.model.heads:
        out["values"] = trainer.values(mine, microbatch=2).tolist()
    out["weights"] = {name: t.double().tolist() for name, t in assembled(contributions(trainer)).items()}
    return out


def value_only(columns: Any, mask: torch.Tensor) -> Any:
    return weighted_nll({**columns, "logprobs": columns["new_values"] * 0}, mask)


def run_case(case: tuple[int, str, str], rank: int, world: int, made: Groups | None) -> dict[str, Any]:
    zero, dtype, heads = case
    model = tiny_model(tuple(heads.split(",")), dtype=DTYPES[dtype], tied=heads != "lm")
    grid = ALONE if made is None else grid_of(Parallelism(dp=world, zero=zero), made)
    trainer = Trainer(model, grid=grid, optimizer=CONFIG)
    if heads == "value":
        original = trainer.train
        trainer.train = lambda b, w, _loss, **o: original(b, w, value_only, **{**o, "entropy": False})  # type: ignore[method-assign,assignment,return-value]
    return exercise(trainer, rank, world) | {"parameter_bytes": trainer.parameter_bytes()}


def worker(rank: int, port: int, directory: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    made: Groups = {}
    results: dict[str, Any] = {repr(case): run_case(case, rank, 2, made) for case in CASES}
    results["extra"] = further(rank, grid_of(Parallelism(dp=2, zero=3), made), Path(directory))
    (Path(directory) / f"{rank}.json").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


def unused_head(trainer: Trainer, rank: int, world: int) -> str:
    """A loss that leaves the value head out, while one of two ranks has no samples: that rank must not get stuck."""
    samples = minibatch(3, 0).rows(range(ROWS if rank == 0 else 0))
    loss = lambda columns, mask: Out(-columns["logprobs"])  # noqa: E731
    trainer.train([samples], [np.full(len(samples), 0.1)], loss, microbatch=3)
    return trainer.publish(1).digest


def further(rank: int, grid: Grid, directory: Path) -> dict[str, Any]:
    """Resharding, receiving, saving, memory-lean accumulation, and a rank given too few minibatches."""
    sharded = Trainer(tiny_model(), grid=grid, optimizer=CONFIG, reduce_every_microbatch=True)
    first = exercise(sharded, rank, 2)
    sharded.state(str(directory / "state"))
    sharded.save_model(str(directory / "model"))
    loaded = Trainer(tiny_model(seed=5), grid=grid, optimizer=CONFIG)
    loaded.load_state(str(directory / "state"))
    restored = contributions(loaded)
    other = Trainer(tiny_model(seed=6), grid=grid)
    other.logprobs(minibatch(0, 0), temperature=1.0, microbatch=4)
    received = other.receive(restored)
    after = other.canary(canary_tokens(61)).tolist()
    try:
        sharded.train(
            [minibatch(0, 0)] * (rank + 1), [np.ones(ROWS)] * (rank + 1), weighted_nll, microbatch=4
        )
        refused = ""
    except RunError as error:
        refused = str(error)
    shared = Trainer(tiny_model(("lm", "value")), grid=grid, optimizer=CONFIG)
    return {
        "unused_head": unused_head(shared, rank, 2),
        "first": first,
        "restored": restored[0].digest,
        "received": received,
        "canary": after,
        "refused": refused,
        "continued": exercise(loaded, rank, 2, first_step=2),
    }


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    directory = tmp_path_factory.mktemp("ranks")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(worker, args=(port, str(directory)), nprocs=2)
    return directory, [json.loads((directory / f"{rank}.json").read_text()) for rank in (0, 1)]


def close(got: Any, expected: Any, tolerance: float) -> None:
    np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=0, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_two_ranks_are_one_process(
    case: tuple[int, str, str], ranks: tuple[Path, list[dict[str, Any]]]
) -> None:
    alone = run_case((0, *case[1:]), 0, 1, None)
    both = [results[repr(case)] for results in ranks[1]]
    exact = case[1] == "float64"
    for together in both:
        for mine, theirs in zip(alone["metrics"], together["metrics"], strict=True):
            assert mine == pytest.approx(theirs, rel=0, abs=1e-9 if exact else 1e-5)
        for name, weight in alone["weights"].items():
            close(together["weights"][name], weight, 1e-8 if exact else 1e-4)
    for name in {"logprobs", "values"} & alone.keys():
        close(both[0][name] + both[1][name], alone[name], 1e-8 if exact else 1e-3)
    close(both[0]["canary"], alone["canary"], 1e-8 if exact else 1e-3)
    assert both[0]["digest"] == both[1]["digest"]
    assert both[0]["metrics"] == both[1]["metrics"]


@pytest.mark.slow
def test_shards_hold_half(ranks: tuple[Path, list[dict[str, Any]]]) -> None:
    held = [results[repr((3, "float64", "lm,value"))]["parameter_bytes"] for results in ranks[1]]
    whole = run_case((0, "float64", "lm,value"), 0, 1, None)["parameter_bytes"]
    assert max(held) < 0.6 * whole


@pytest.mark.slow
def test_state_reshards_onto_another_number_of_ranks(ranks: tuple[Path, list[dict[str, Any]]]) -> None:
    directory, results = ranks
    alone = Trainer(tiny_model(seed=5), optimizer=CONFIG)
    alone.load_state(str(directory / "state"))
    assert (
        alone.publish(4).digest == results[0]["extra"]["restored"] == results[0]["extra"]["first"]["digest"]
    )
    assert alone.updates == STEPS * MINIBATCHES
    continued = exercise(alone, 0, 1, first_step=2)
    for name, weight in continued["weights"].items():
        close(results[1]["extra"]["continued"]["weights"][name], weight, 1e-8)


@pytest.mark.slow
def test_weights_received_are_weights_used(ranks: tuple[Path, list[dict[str, Any]]]) -> None:
    """Also right after an inference, which leaves gathered parameters behind."""
    for results in ranks[1]:
        extra = results["extra"]
        assert extra["received"] == extra["restored"]
        close(extra["canary"], extra["first"]["canary"], 1e-12)


@pytest.mark.slow
def test_a_rank_without_samples_beside_an_unused_head(ranks: tuple[Path, list[dict[str, Any]]]) -> None:
    alone = unused_head(Trainer(tiny_model(("lm", "value")), optimizer=CONFIG), 0, 1)
    assert [results["extra"]["unused_head"] for results in ranks[1]] == [alone, alone]


@pytest.mark.slow
def test_unequal_numbers_of_minibatches_are_refused(ranks: tuple[Path, list[dict[str, Any]]]) -> None:
    for results in ranks[1]:
        assert "[1, 2] minibatches" in results["extra"]["refused"]


@pytest.mark.slow
def test_saved_model_is_a_hugging_face_directory(ranks: tuple[Path, list[dict[str, Any]]]) -> None:
    from rpeg.backends.models import load_model

    directory, results = ranks
    model = load_model(str(directory / "model"), heads=("lm",), dtype=torch.float64, device="cpu")
    assert Trainer(model).publish(4).digest == results[0]["extra"]["restored"]
