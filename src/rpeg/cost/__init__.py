"""Time, communication and memory of a stage, as trees that print.

Two models share the trees. Op by op, for any hardware that is described: `train_stage`, `infer_stage`,
`generate_stage` of an `Execution` on a `Machine`; what a device then holds, phase by phase: `train_memory`,
`infer_memory`, `generate_memory`, and `host_memory` of a node. By whole passes, measured through RPEG's own backends
on the machine at hand (`rpeg.cost.passes`): `generate`, `infer`, `train`, `reward`, `publish`, `receive`, `call`,
`phases`, `peak`.
"""

from rpeg.cost.adapters import all_adapters
from rpeg.cost.execution import Execution
from rpeg.cost.generating import completions, generate_stage
from rpeg.cost.machine import Machine
from rpeg.cost.memory import Footprint, generate_memory, host_memory, infer_memory, train_memory
from rpeg.cost.passes.communication import collective
from rpeg.cost.passes.generation import Generation, generate
from rpeg.cost.passes.grid import Grid
from rpeg.cost.passes.host import columns, reward
from rpeg.cost.passes.inference import infer
from rpeg.cost.passes.memory import Memory, Tenant, Use, peak, phases
from rpeg.cost.passes.table import OPS, Calibration
from rpeg.cost.passes.timing import Timing
from rpeg.cost.passes.training import shuffled, train
from rpeg.cost.passes.transfer import call, move_samples, publish, receive, weight_bytes
from rpeg.cost.precision import BYTES_OF, FLOAT32, MIXED, PURE_BF16, Precision
from rpeg.cost.sequences import Sequences
from rpeg.cost.stack import Stack, stack, stacks
from rpeg.cost.training import infer_stage, train_stage
from rpeg.cost.tree import Cost, parallel, sequence

__all__ = [
    "BYTES_OF",
    "FLOAT32",
    "MIXED",
    "OPS",
    "PURE_BF16",
    "Calibration",
    "Cost",
    "Execution",
    "Footprint",
    "Generation",
    "Grid",
    "Machine",
    "Memory",
    "Precision",
    "Sequences",
    "Stack",
    "Tenant",
    "Timing",
    "Use",
    "all_adapters",
    "call",
    "collective",
    "columns",
    "completions",
    "generate",
    "generate_memory",
    "generate_stage",
    "host_memory",
    "infer",
    "infer_memory",
    "infer_stage",
    "move_samples",
    "parallel",
    "peak",
    "phases",
    "publish",
    "receive",
    "reward",
    "sequence",
    "shuffled",
    "stack",
    "stacks",
    "train",
    "train_memory",
    "train_stage",
    "weight_bytes",
]
