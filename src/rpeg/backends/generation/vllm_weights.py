"""Weights for a vLLM engine of this process, as a transfer engine of vLLM's own weight-update API.

vLLM's built-in transfer engines go between processes, over NCCL or CUDA IPC. Where trainer and engine share one process
the tensors themselves are handed over: nothing is serialised. Importing this module imports vLLM and registers it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor
from vllm.distributed.weight_transfer import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

NAME = "in_process"


@dataclass
class Nothing(WeightTransferInitInfo):  # type: ignore[misc]
    """There is no meeting point to arrange."""


@dataclass
class Weights(WeightTransferUpdateInfo):  # type: ignore[misc]
    """Tensors by their Hugging Face names, whole."""

    weights: Iterable[tuple[str, Tensor]]


class InProcessTransfer(WeightTransferEngine[Nothing, Weights]):  # type: ignore[misc]
    """Copies tensors of this process into the engine's model, layer by layer, as a checkpoint would be loaded."""

    init_info_cls = Nothing
    update_info_cls = Weights

    def init_transfer_engine(self, init_info: Nothing) -> None:
        pass

    def start_weight_update(self) -> None:
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: Weights) -> None:
        self.model.load_weights(update_info.weights)

    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        pass


WeightTransferEngineFactory.register_engine(NAME, InProcessTransfer)
