"""Measuring single kernels of the device at hand, CPU or CUDA, for `rpeg.cost.kernels`.

`measure_kernels` times products, attention, passes over memory, launches, copies, layers and collectives, and returns a
kernel file in the schema of the bundled ones. The same code runs on every device; only the clock differs.
"""

from rpeg.calibrate.accelerator.measure import device_of, kind_of, measure_kernels

__all__ = ["device_of", "kind_of", "measure_kernels"]
