"""Seconds of single kernels on one kind of device: from distilled measurements, else a roofline.

Everything above asks `kernels_of(machine)` and knows nothing of tables. Read `work` (what is counted), `table`
(efficiency over shape), `sources` (whose tables), `kernels` (the questions).
"""

from rpeg.cost.kernels.kernels import Kernels, kernels_of
from rpeg.cost.kernels.sources import source_of
from rpeg.cost.kernels.timed import Timed
from rpeg.cost.kernels.work import Amount

__all__ = ["Amount", "Kernels", "Timed", "kernels_of", "source_of"]
