"""Seconds of single kernels on one kind of device: from distilled measurements, else a roofline.

Everything above asks `kernels_of(machine)` and knows nothing of tables.
"""

from rpeg.cost.kernels.kernels import Amount, Kernels, Timed, kernels_of

__all__ = ["Amount", "Kernels", "Timed", "kernels_of"]
