"""States that rest on the host: exact bytes, gone meanwhile, the same afterwards."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from training_cases import make_samples, tiny_model, weighted_nll

from rpeg.backends.training.optimizer import OptimizerConfig
from rpeg.backends.training.resting import HostCopies
from rpeg.backends.training.trainer import State, Trainer


def train(trainer: Trainer, seed: int) -> dict[str, float]:
    samples = make_samples(5, seed=seed)
    return trainer.train([samples], [np.full(5, 1 / samples.lengths.sum())], weighted_nll, microbatch=2)


@pytest.mark.parametrize("states", [("optimizer",), ("weights",), ("weights", "optimizer")])
def test_training_goes_on_as_if_nothing_had_rested(states: tuple[State, ...]) -> None:
    stays, goes = (Trainer(tiny_model(), optimizer=OptimizerConfig(lr=1e-2)) for _ in range(2))
    for step in range(3):
        assert train(stays, step) == train(goes, step)
        for state in states:
            moved = goes.offload(state)
            assert moved == (
                goes.parameters.local[0].nbytes if state == "weights" else goes.optimizer_bytes()
            )
            assert goes.is_resting(state)
            assert goes.offload(state) == 0
            held = goes.parameters.storage() if state == "weights" else goes.parameters.scratch()
            assert all(tensor.untyped_storage().nbytes() == 0 for tensor in held)
        for state in states:
            assert goes.reload(state) > 0
            assert goes.reload(state) == 0
    assert stays.digest() == goes.digest()


def test_what_never_changes_goes_to_the_host_once() -> None:
    tensor = torch.arange(6.0)
    view = tensor[2:]
    copies = HostCopies([tensor, view], constant=True)
    assert [copies.offload(), copies.reload(), copies.offload(), copies.reload()] == [24, 24, 0, 24]
    assert torch.equal(view, torch.arange(2.0, 6.0))
