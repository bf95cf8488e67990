"""Trainers over process grids, each rank a process, and what one process gives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor
from torch.distributed.tensor.debug import CommDebugMode
from training_cases import make_samples, tiny_mixture, tiny_model, weighted_nll

from rpeg.backends.boxes import Box
from rpeg.backends.models import PolicyModel, Wanted
from rpeg.backends.samples import Samples
from rpeg.backends.training.grid import Grid, Groups, make_grid
from rpeg.backends.training.microbatch import build
from rpeg.backends.training.optimizer import OptimizerConfig
from rpeg.backends.training.passes import TOKEN_WEIGHT
from rpeg.backends.training.tally import Tally
from rpeg.backends.training.trainer import ALONE, Trainer
from rpeg.backends.weights import Published, canary_tokens
from rpeg.plan import Parallelism

CONFIG = OptimizerConfig(lr=1e-2, weight_decay=0.01, warmup_steps=3, max_grad_norm=1.0)
STEPS, MINIBATCHES, ROWS = 2, 2, 7


def minibatch(step: int, index: int) -> Samples:
    return make_samples(ROWS, seed=10 * step + index)


def rows_of(rank: int, ranks: int, index: int) -> np.ndarray:
    """Uneven: the first data-parallel ranks have most of a minibatch, the last perhaps nothing."""
    ends = {1: [ROWS], 2: [5, ROWS] if index == 0 else [ROWS, ROWS], 4: [3, 4, 5, ROWS]}[ranks]
    return np.arange(([0, *ends])[rank], ends[rank])


def exercise(trainer: Trainer, directory: Path, first_step: int = 0) -> dict[str, Any]:
    """Two steps of two minibatches, then inference on an uneven share, then the state on disk."""
    metrics = [one_step(trainer, step) for step in range(first_step, first_step + STEPS)]
    mine = minibatch(9, 0).rows(rows_of(trainer.grid.index("dp"), trainer.grid.parallelism.dp, 0))
    trainer.state(str(directory))
    return {
        "metrics": metrics,
        "digest": trainer.digest(),
        "canary": trainer.canary(canary_tokens(61)).tolist(),
        "logprobs": trainer.logprobs(mine, temperature=0.8, microbatch=2).tolist(),
        "values": trainer.values(mine, microbatch=2).tolist(),
    }


def one_step(trainer: Trainer, step: int) -> dict[str, float]:
    batches, weights = [], []
    for index in range(MINIBATCHES):
        everything = minibatch(step, index)
        rows = rows_of(trainer.grid.index("dp"), trainer.grid.parallelism.dp, index)
        batches.append(everything.rows(rows))
        weights.append(np.full(len(rows), 1 / everything.lengths.sum()))
    return trainer.train(batches, weights, weighted_nll, temperature=0.8, microbatch=2, entropy=True)


def alone(directory: Path, *, experts: bool = False) -> dict[str, Any]:
    return exercise(Trainer(_model(experts), grid=ALONE, optimizer=CONFIG), directory)


def _model(experts: bool) -> PolicyModel:
    return tiny_mixture() if experts else dense()


def dense(seed: int = 0) -> PolicyModel:
    """With a layer for each chunk of two stages."""
    return tiny_model(("lm", "value"), seed=seed, layers=4)


def _wide() -> PolicyModel:
    """Of sizes that all layouts divide."""
    return tiny_model(("lm",), vocabulary=64, hidden=64, layers=4, dtype=torch.float32)


def counted(trainer: Trainer) -> dict[str, int]:
    """Collectives of one micro-batch forward and backward, by name."""
    samples = make_samples(2, seed=1).with_columns(sample={TOKEN_WEIGHT: np.ones(2)})
    micro = build(samples, trainer.device)
    with CommDebugMode() as counts:
        trainer.passes.train([micro], weighted_nll, Wanted(logprobs=True), Tally())
    return {str(op).rpartition(".")[2]: n for op, n in counts.get_comm_counts().items()}


def contributions(trainer: Trainer, version: int = 1) -> list[Published]:
    """Of all ranks, on all ranks."""
    mine = trainer.publish(version)
    if trainer.grid.block is None:
        return [mine]
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, mine)
    return [part for part in found if part.manifest.entries]


def assembled(parts: Sequence[Published]) -> dict[str, Tensor]:
    """Whole parameters by name."""
    whole: dict[str, Tensor] = {}
    for piece in (piece for part in parts for piece in part.pieces()):
        out = whole.setdefault(piece.name, torch.full(piece.shape, torch.nan, dtype=piece.tensor.dtype))
        out[piece.box.within(Box.whole(piece.shape))] = piece.tensor
    return whole


def grid_of(parallelism: Parallelism, made: Groups) -> Grid:
    grid = make_grid(parallelism, range(dist.get_world_size()), made)
    assert grid is not None
    return grid


def _visit(
    number: int, parallelism: Parallelism, following: Parallelism, directory: Path, made: Groups
) -> Any:
    """Trains in one layout, then hands weights over to the following one, where the state on disk is trained on."""
    grid, experts = grid_of(parallelism, made), parallelism.ep > 1
    trainer = Trainer(_model(experts), grid=grid, optimizer=CONFIG)
    found = exercise(trainer, directory / f"{number}")
    ways: dict[str, Any] = {"recompute": "full", "tokens_per_sample": 8, "logit_chunk": 5}
    found["saving"] = one_step(Trainer(_model(experts), grid=grid, optimizer=CONFIG, **ways), 0)
    parts = contributions(trainer)
    found["sent_bytes"] = trainer.publish(1).size_bytes
    if not experts:
        following = following if following.ep == 1 else Parallelism(dp=2)
        other = Trainer(_model(experts), grid=grid_of(following, made), optimizer=CONFIG)
        found["received"] = other.receive(parts)
        found["received_canary"] = other.canary(canary_tokens(61)).tolist()
        other.load_state(str(directory / f"{number}"))
        found["continued"] = exercise(other, directory / f"{number}-continued", STEPS)["metrics"]
        wide = Trainer(_wide(), grid=grid, optimizer=CONFIG)
        found["parameter_bytes"], found["moment_bytes"] = wide.parameter_bytes(), wide.optimizer_bytes()
        if parallelism.vpp == 1:  # torch's counter loses its place where chunks of a module run by themselves
            found["collectives"] = counted(wide)
    return found


def _worker(rank: int, ranks: int, layouts: list[Parallelism], directory: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/meeting", rank=rank, world_size=ranks)
    made: Groups = {}
    for number, parallelism in enumerate(layouts):
        following = layouts[(number + 1) % len(layouts)]
        found = _visit(number, parallelism, following, Path(directory), made)
        (Path(directory) / f"{number}-{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def spread(layouts: list[Parallelism], directory: Path) -> list[list[dict[str, Any]]]:
    """Of each layout what each rank found."""
    ranks = layouts[0].devices
    mp.spawn(_worker, args=(ranks, layouts, str(directory)), nprocs=ranks)
    return [
        [json.loads((directory / f"{n}-{rank}.json").read_text()) for rank in range(ranks)]
        for n in range(len(layouts))
    ]
