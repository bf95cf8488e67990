"""`Precision`: the dtypes of what a stage holds and computes."""

from __future__ import annotations

from dataclasses import dataclass

BYTES_OF = {
    "float64": 8.0,
    "float32": 4.0,
    "tfloat32": 4.0,
    "bfloat16": 2.0,
    "float16": 2.0,
    "float8": 1.0,
    "float4": 0.5625,  # 4 bits and a scale of 8 bits for every 16 (NVFP4)
    "int8": 1.0,
    "nf4": 0.5625,  # 4 bits and a float32 scale for every 64 (QLoRA, arXiv:2305.14314, section 3)
    "nf4-double": 0.515869140625,  # its scales in 8 bits, and a float32 scale of theirs for every 256
    "int4": 0.53125,  # 4 bits and a scale of 16 bits for every 128
}


@dataclass(frozen=True, slots=True)
class Precision:
    """compute: inputs of matrix products. weights: resident parameters. gradients: as accumulated.

    master: a float32 copy of the parameters beside them. moments: both Adam moments. cache: keys and values.
    experts: weights and products of routed experts; "": as `weights` and `compute`.
    activations: what is kept for the backward pass. communication: gradients as they are reduced; "": as `gradients`.
    """

    compute: str = "bfloat16"
    weights: str = "bfloat16"
    gradients: str = "float32"
    master: bool = True
    moments: str = "float32"
    cache: str = "bfloat16"
    experts: str = ""
    activations: str = "bfloat16"
    communication: str = ""

    @property
    def expert_weights(self) -> str:
        """Of the routed experts."""
        return self.experts or self.weights

    @property
    def expert_compute(self) -> str:
        """Of the routed experts' products."""
        return self.experts or self.compute

    @property
    def reduced(self) -> str:
        """Of gradients on the wire."""
        return self.communication or self.gradients


MIXED = Precision()
"""bf16 with float32 gradients and master weights: Megatron-LM's default."""

PURE_BF16 = Precision(gradients="bfloat16", master=False, moments="bfloat16")

FLOAT32 = Precision("float32", "float32", "float32", master=False, cache="float32", activations="float32")
