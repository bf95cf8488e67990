"""What the costs of a plan rest on beside the plan itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rpeg import cost
from rpeg.architecture import Architecture
from rpeg.cost import Calibration
from rpeg.job.adapters import LoRA


@dataclass(frozen=True)
class Facts:
    """architectures: of each model of the graph, by its name. dtype: of parameters and activations.

    evaluation_prompts: held-out prompts that an evaluation answers, one response each.
    calibration: measured tables of this machine; None leans on rooflines, and every estimate says so.
    reward_seconds, evaluation_reward_seconds: what the rewards of a response take beyond a built-in verifier.
    engine, trainer: software stacks that generate, and that train and score, on described hardware.
    lora: what is trained instead of the models that are trained. bases: by frozen model the trained one that computes the
    same without its adapters.
    """

    architectures: Mapping[str, Architecture]
    dtype: str = "float32"
    evaluation_prompts: int = 0
    calibration: Calibration | None = field(default=None)
    engine: str = "vllm"
    trainer: str = "flash"
    reward_seconds: float = 0.0
    evaluation_reward_seconds: float = 0.0
    lora: LoRA | None = None
    bases: Mapping[str, str] = field(default_factory=dict)

    def adapters(self, model: str, tp: int = 1) -> float:
        """Parameters of the adapters of a trained model on a tensor-parallel rank; 0 where all of it is trained."""
        if self.lora is None:
            return 0.0
        return cost.all_adapters(self.architectures[model], self.lora.rank, self.lora.targets, tp)
