"""What a step works on: prompts, samples and how long they are."""

from rpeg.workload.lengths import Lengths, constant, geometric, lognormal, observed
from rpeg.workload.selection import Selection
from rpeg.workload.workload import Workload

__all__ = ["Lengths", "Selection", "Workload", "constant", "geometric", "lognormal", "observed"]
