"""Probes of a sharded trainer (ZeRO-3): what gathering and reducing add to a micro-batch and to an update."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch.distributed as dist

from rpeg.backends.models import PolicyModel, Wanted
from rpeg.backends.training.grid import make_grid
from rpeg.backends.training.microbatch import build
from rpeg.backends.training.optimizer import OptimizerConfig
from rpeg.backends.training.tally import Tally
from rpeg.backends.training.trainer import Trainer
from rpeg.calibrate.probe import Probe
from rpeg.calibrate.training import policy_loss, policy_samples
from rpeg.plan import Parallelism

_CALLS = 8
_ROWS, _LENGTH = 4, 8


def probes(make: Callable[[], PolicyModel]) -> Iterator[Probe]:
    """`plain_*` and `sharded_*` of the same small micro-batch: forward, forward and backward, and with an update.

    make: a new model, the same on every rank; every rank makes the same calls in step.
    """
    optimizer = OptimizerConfig()
    yield from _probes("plain", Trainer(make(), optimizer=optimizer), None)
    ranks = dist.get_world_size()
    grid = make_grid(Parallelism(dp=ranks, zero=3), range(ranks), {})
    assert grid is not None
    yield from _probes("sharded", Trainer(make(), grid=grid, optimizer=optimizer), _CALLS)


def _probes(prefix: str, trainer: Trainer, calls: int | None) -> Iterator[Probe]:
    samples = policy_samples(_ROWS, _LENGTH, trainer.model.vocab_size)
    wanted = Wanted(logprobs=True)

    def forward() -> None:
        trainer.logprobs(samples, temperature=1.0, microbatch=_ROWS)

    def backward(last: bool = False) -> None:
        flight = trainer.passes.forward(build(samples, trainer.device), wanted)
        trainer.passes.backward(flight, policy_loss, Tally(), last=last)

    def update() -> None:
        backward(last=True)
        trainer.step()
        trainer.parameters.zero_gradients()

    yield Probe(f"{prefix}_forward", (), forward, calls=calls)
    yield Probe(f"{prefix}_backward", (), backward, calls=calls)
    yield Probe(f"{prefix}_update", (), update, calls=calls)
