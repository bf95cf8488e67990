"""What runs a job: engines that generate and stacks that train, by the names under which their costs are known."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from rpeg.job.fields import Text
from rpeg.job.section import Section

ENGINES = ("deepspeed", "eager", "sglang", "tensorrt-llm", "vllm")
TRAINERS = ("compiled", "eager", "flash", "megatron")
_EAGER_PYTORCH = (
    "accelerate",
    "automodel",
    "ddp",
    "deepspeed",
    "fsdp",
    "fsdp2",
    "openrlhf",
    "pytorch",
    "trl",
    "verl",
)
ALIKE: Mapping[str, Mapping[str, str]] = {
    "trainer": {
        **dict.fromkeys(_EAGER_PYTORCH, "flash"),
        **dict.fromkeys(("mcore", "megatron-core", "megatron-lm", "nemo"), "megatron"),
        **dict.fromkeys(("jax", "maxtext", "torch.compile", "xla"), "compiled"),
    },
    "engine": {
        **dict.fromkeys(("fastertransformer", "tensorrt", "trt-llm", "trtllm"), "tensorrt-llm"),
        **dict.fromkeys(("hf", "huggingface", "transformers"), "eager"),
        **dict.fromkeys(("deepspeed-mii", "mii"), "deepspeed"),
    },
}
"""What people call software, and the stack that stands for it."""


class Software(Section):
    """What runs the job, for planning on described hardware."""

    engine: Text = Field(
        default="vllm", description="what generates: vllm, sglang, tensorrt-llm, deepspeed or eager"
    )
    trainer: Text = Field(
        default="flash",
        description="what trains and scores: flash (PyTorch FSDP), megatron, compiled or eager",
    )
