"""Where a model's parameters and gradients lie: on every data-parallel rank, or shared out among them."""

from rpeg.backends.training.parameters.chosen import parameters_of
from rpeg.backends.training.parameters.partitioned import Partitioned
from rpeg.backends.training.parameters.protocol import Parameters
from rpeg.backends.training.parameters.replicated import Replicated
from rpeg.backends.training.parameters.sharded import Sharded

__all__ = ["Parameters", "Partitioned", "Replicated", "Sharded", "parameters_of"]
