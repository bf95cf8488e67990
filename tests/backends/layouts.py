"""Trainers over process grids, each rank a process, and what one process gives."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from training_cases import make_samples, tiny_mixture, tiny_model, weighted_nll

from rpeg.backends.samples import Samples
from rpeg.backends.training.grid import Groups, make_grid
from rpeg.backends.training.optimizer import OptimizerConfig
from rpeg.backends.training.trainer import ALONE, Trainer
from rpeg.backends.weights import canary_tokens
from rpeg.plan import Parallelism

CONFIG = OptimizerConfig(lr=1e-2, weight_decay=0.01, warmup_steps=3, max_grad_norm=1.0)
STEPS, MINIBATCHES, ROWS = 2, 2, 7


def minibatch(step: int, index: int) -> Samples:
    return make_samples(ROWS, seed=10 * step + index)


def rows_of(rank: int, ranks: int, index: int) -> np.ndarray:
    """Uneven: the first data-parallel rank has most of a minibatch, or all of it."""
    cut = 5 if index == 0 else ROWS
    mine = {1: [ROWS], 2: [cut, ROWS]}.get(ranks, [cut - 2, cut - 1, cut, ROWS])
    return np.arange(([0, *mine])[rank], mine[rank])


def exercise(trainer: Trainer, directory: Path, first_step: int = 0) -> dict[str, Any]:
    """Two steps of two minibatches, then inference on an uneven share, then the state on disk."""
    rank, ranks = trainer.grid.index("dp"), trainer.grid.parallelism.dp
    metrics = []
    for step in range(first_step, first_step + STEPS):
        batches, weights = [], []
        for index in range(MINIBATCHES):
            everything = minibatch(step, index)
            rows = rows_of(rank, ranks, index)
            batches.append(everything.rows(rows))
            weights.append(np.full(len(rows), 1 / everything.lengths.sum()))
        metrics.append(
            trainer.train(batches, weights, weighted_nll, temperature=0.8, microbatch=2, entropy=True)
        )
    mine = minibatch(9, 0).rows(rows_of(rank, ranks, 0))
    trainer.state(str(directory))
    return {
        "metrics": metrics,
        "digest": trainer.digest(),
        "canary": trainer.canary(canary_tokens(61)).tolist(),
        "logprobs": trainer.logprobs(mine, temperature=0.8, microbatch=2).tolist(),
        "values": trainer.values(mine, microbatch=2).tolist(),
        "parameter_bytes": trainer.parameter_bytes(),
    }


def _worker(rank: int, ranks: int, meeting: str, layouts: list[Parallelism], directory: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    made: Groups = {}
    for number, parallelism in enumerate(layouts):
        grid = make_grid(parallelism, range(ranks), made)
        assert grid is not None
        try:
            model = tiny_mixture() if parallelism.ep > 1 else tiny_model(("lm", "value"))
            trainer = Trainer(model, grid=grid, optimizer=CONFIG)
            found = exercise(trainer, Path(directory) / f"{number}")
        except Exception:
            traceback.print_exc()
            raise
        (Path(directory) / f"{number}-{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def spread(layouts: list[Parallelism], directory: Path) -> list[list[dict[str, Any]]]:
    """Of each layout what each rank found."""
    ranks = layouts[0].devices
    mp.spawn(_worker, args=(ranks, str(directory / "meeting"), layouts, str(directory)), nprocs=ranks)
    return [
        [json.loads((directory / f"{n}-{rank}.json").read_text()) for rank in range(ranks)]
        for n in range(len(layouts))
    ]


def alone(directory: Path, *, experts: bool = False) -> dict[str, Any]:
    model = tiny_mixture() if experts else tiny_model(("lm", "value"))
    return exercise(Trainer(model, grid=ALONE, optimizer=CONFIG), directory)
