"""Event files for TensorBoard in RUN/tensorboard: `tensorboard --logdir RUN/tensorboard`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rpeg.job import Job

PACKAGE = "tensorboard"


class _TensorBoard:
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def open_logger(job: Job, run: Path, first_step: int) -> _TensorBoard:
    """What an earlier stretch wrote from `first_step` on is hidden by TensorBoard (purge_step)."""
    import tensorboard  # noqa: F401  (torch's own message would not name it)
    from torch.utils.tensorboard import SummaryWriter

    purge = first_step or None
    writer = SummaryWriter(str(run / "tensorboard"), purge_step=purge)
    return _TensorBoard(writer)
