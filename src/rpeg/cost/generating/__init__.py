"""GENERATE stages op by op: continuous and static batches over drawn lengths, and serving at fixed concurrency."""

from rpeg.cost.generating.batch import Batch, deal
from rpeg.cost.generating.capacity import Pool, device_weight_bytes, pool_of
from rpeg.cost.generating.forward import Forward, forward_of
from rpeg.cost.generating.generation import Generation
from rpeg.cost.generating.layout import Layout, layout_of
from rpeg.cost.generating.load import Load, decode, prefill
from rpeg.cost.generating.logprobs import with_logprobs
from rpeg.cost.generating.policy import Policy
from rpeg.cost.generating.serving import Serving, serve
from rpeg.cost.generating.stage import completions, generate_stage

__all__ = [
    "Batch",
    "Forward",
    "Generation",
    "Layout",
    "Load",
    "Policy",
    "Pool",
    "Serving",
    "completions",
    "deal",
    "decode",
    "device_weight_bytes",
    "forward_of",
    "generate_stage",
    "layout_of",
    "pool_of",
    "prefill",
    "serve",
    "with_logprobs",
]
