"""From the measured kernels of an `aiconfigurator-core` installation to tables of efficiency.

The package (Apache-2.0) holds hundreds of thousands of timings of data-centre GPUs. A table keeps a grid of shapes; each
node is the mean of the logarithms of efficiency measured there.
"""

from __future__ import annotations

from pathlib import Path

from rpeg.cluster import DeviceKind
from rpeg.cost.kernels.distil import attention, experts, products
from rpeg.cost.kernels.distil.package import SYSTEMS
from rpeg.cost.kernels.table import Table

__all__ = ["SYSTEMS", "distil"]

_READERS = (
    products.tables,
    attention.prefill_tables,
    attention.decode_tables,
    experts.tables,
    attention.latent_tables,
)


def distil(kind: DeviceKind, data: Path) -> tuple[list[Table], list[str]]:
    """Every table that the package's data folder yields for a kind, and the files that they rest on."""
    root = data / SYSTEMS[kind.name]
    tables: list[Table] = []
    files: list[str] = []
    for read in _READERS:
        made, used = read(kind, root)
        tables += [table for table in made if table is not None]
        files += used
    return tables, sorted({str(Path(file).relative_to(data)) for file in files})
