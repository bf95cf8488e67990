"""The tunable quantities of a software stack, grouped by what they act on. Values stand in `data/stacks`."""

from rpeg.cost.traits.kernels import KernelTraits
from rpeg.cost.traits.memory import MemoryTraits
from rpeg.cost.traits.network import NetworkTraits
from rpeg.cost.traits.serving import ServingTraits
from rpeg.cost.traits.training import TrainingTraits

__all__ = ["KernelTraits", "MemoryTraits", "NetworkTraits", "ServingTraits", "TrainingTraits"]
