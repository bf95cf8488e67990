"""Plans on described hardware: what the op-by-op model says of their items, weights and memory."""

from rpeg.sim.hardware.costs import HardwareCosts
from rpeg.sim.hardware.layouts import check_layouts
from rpeg.sim.hardware.memory import host_memory, lane_memory

__all__ = ["HardwareCosts", "check_layouts", "host_memory", "lane_memory"]
